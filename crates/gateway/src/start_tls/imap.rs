//! IMAP: STARTTLS (RFC 9051, section 6.2.1). Inside TLS, the client asks for capabilities again, and the server does not
//! greet again.

use super::{Dialogue, StartTls, Step, quoted, take_line};

pub(super) const PROTOCOL: StartTls = StartTls {
    scheme: "imap",
    port: 143,
    as_server: || Box::new(Server),
    as_client: || Box::new(Client::Greeted),
    refusal: |reason| format!("* BYE {reason}\r\n").into(),
    alpn: &[],
};

const CAPABILITIES: &str = "CAPABILITY IMAP4rev1 STARTTLS LOGINDISABLED";

struct Server;

impl Dialogue for Server {
    fn greeting(&self) -> Vec<u8> {
        format!("* OK [{CAPABILITIES}] refrain\r\n").into()
    }

    fn next(&mut self, received: &mut Vec<u8>) -> Step {
        let Some(line) = take_line(received) else {
            return Step::More;
        };
        let (tag, command) = line.split_once(' ').unwrap_or((&line, ""));
        // It comes back to the client.
        let is_tag = |byte: u8| byte.is_ascii_graphic() && !b"(){%*\"\\+".contains(&byte);
        let tag = match !tag.is_empty() && tag.bytes().all(is_tag) {
            true => tag,
            false => "*",
        };
        let say = |text: String| Step::Say(text.into());
        match command.to_ascii_uppercase().as_str() {
            "STARTTLS" => Step::Begin(format!("{tag} OK begin TLS\r\n").into()),
            "CAPABILITY" => say(format!("* {CAPABILITIES}\r\n{tag} OK done\r\n")),
            "NOOP" => say(format!("{tag} OK done\r\n")),
            "LOGOUT" => {
                let bye = format!("* BYE\r\n{tag} OK done\r\n");
                Step::Refuse(bye.into(), "it left before TLS".into())
            }
            _ => say(format!("{tag} BAD begin TLS first (STARTTLS)\r\n")),
        }
    }
}

enum Client {
    /// The server greets first.
    Greeted,
    StartTls,
}

impl Dialogue for Client {
    fn next(&mut self, received: &mut Vec<u8>) -> Step {
        loop {
            let Some(line) = take_line(received) else {
                return Step::More;
            };
            let refused = || {
                let reason = format!("it answered before TLS: {}", quoted(&line));
                Step::Refuse(Vec::new(), reason.into())
            };
            match self {
                Client::Greeted if line.starts_with("* OK") => {
                    *self = Client::StartTls;
                    return Step::Say(b"r STARTTLS\r\n".into());
                }
                Client::Greeted => return refused(),
                Client::StartTls if line.starts_with("r OK") => return Step::Begin(Vec::new()),
                Client::StartTls if line.starts_with("* ") => {}
                Client::StartTls => return refused(),
            }
        }
    }
}
