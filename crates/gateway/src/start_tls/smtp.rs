//! SMTP: STARTTLS (RFC 3207). Inside TLS, the client begins again with EHLO, and the server does not greet again.

use super::{Dialogue, StartTls, Step, quoted, take_line};

pub(super) const PROTOCOL: StartTls = StartTls {
    scheme: "smtp",
    port: 587,
    as_server: || Box::new(Server),
    as_client: || Box::new(Client::Greeted),
    refusal: |reason| format!("421 4.4.1 {reason}\r\n").into(),
    alpn: &[],
};

struct Server;

impl Dialogue for Server {
    fn greeting(&self) -> Vec<u8> {
        b"220 refrain ESMTP\r\n".into()
    }

    fn next(&mut self, received: &mut Vec<u8>) -> Step {
        let Some(line) = take_line(received) else {
            return Step::More;
        };
        let verb = line.split(' ').next().unwrap_or_default();
        match verb.to_ascii_uppercase().as_str() {
            "STARTTLS" => Step::Begin(b"220 2.0.0 begin TLS\r\n".into()),
            "EHLO" => Step::Say(b"250-refrain\r\n250 STARTTLS\r\n".into()),
            "HELO" => Step::Say(b"250 refrain\r\n".into()),
            "NOOP" | "RSET" => Step::Say(b"250 2.0.0 ok\r\n".into()),
            "QUIT" => Step::Refuse(b"221 2.0.0 bye\r\n".into(), "it left before TLS".into()),
            _ => Step::Say(b"530 5.7.0 begin TLS first (STARTTLS)\r\n".into()),
        }
    }
}

/// The last message to the server.
enum Client {
    /// Nothing yet: it greets first.
    Greeted,
    Hello,
    StartTls,
}

impl Dialogue for Client {
    fn next(&mut self, received: &mut Vec<u8>) -> Step {
        // Of an answer in several lines, the last has a blank behind its number.
        let line = loop {
            let Some(line) = take_line(received) else {
                return Step::More;
            };
            if line.as_bytes().get(3) != Some(&b'-') {
                break line;
            }
        };
        let is_positive = line.starts_with('2');
        match self {
            _ if !is_positive => {
                let reason = format!("it answered before TLS: {}", quoted(&line));
                Step::Refuse(b"QUIT\r\n".into(), reason.into())
            }
            Client::Greeted => {
                *self = Client::Hello;
                Step::Say(b"EHLO refrain\r\n".into())
            }
            Client::Hello => {
                *self = Client::StartTls;
                Step::Say(b"STARTTLS\r\n".into())
            }
            Client::StartTls => Step::Begin(Vec::new()),
        }
    }
}
