//! PostgreSQL (its manual, chapter *Frontend/Backend Protocol*): a request for TLS of eight bytes and an answer of one; or
//! TLS at once, from version 17 on.

use super::{Dialogue, StartTls, Step};

pub(super) const PROTOCOL: StartTls = StartTls {
    scheme: "postgres",
    port: 5432,
    as_server: || Box::new(Server),
    as_client: || Box::new(Client),
    refusal: |reason| error("08006", reason),
    alpn: &[b"postgresql"],
};

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// The first byte of a record of TLS with a hello.
const HANDSHAKE: u8 = 0x16;

struct Server;

impl Dialogue for Server {
    fn next(&mut self, received: &mut Vec<u8>) -> Step {
        if received.first() == Some(&HANDSHAKE) {
            return Step::Direct;
        }
        let Some((head, _)) = received.split_first_chunk::<8>() else {
            return Step::More;
        };
        let [length, code] = [0, 4]
            .map(|at| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        match (length, code) {
            (8, SSL_REQUEST) => {
                received.drain(..8);
                Step::Begin(b"S".into())
            }
            (8, GSS_REQUEST) => {
                received.drain(..8);
                Step::Say(b"N".into())
            }
            // It has a secret that lasts as long as a connection. Clients of before version 17 send it without TLS.
            (16, CANCEL_REQUEST) => Step::Plain,
            _ => {
                let reason = "this server needs TLS (sslmode=require)";
                Step::Refuse(error("28000", reason), "it began without TLS".into())
            }
        }
    }
}

/// An error as clients show it, with its code (SQLSTATE).
fn error(code: &str, text: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    for (kind, value) in [(b'S', "FATAL"), (b'V', "FATAL"), (b'C', code), (b'M', text)] {
        fields.push(kind);
        fields.extend(value.as_bytes());
        fields.push(0);
    }
    fields.push(0);
    let length = (fields.len() + 4) as u32;
    [&b"E"[..], &length.to_be_bytes(), &fields].concat()
}

struct Client;

impl Dialogue for Client {
    fn greeting(&self) -> Vec<u8> {
        [8_u32.to_be_bytes(), SSL_REQUEST.to_be_bytes()].concat()
    }

    fn next(&mut self, received: &mut Vec<u8>) -> Step {
        let reason = match received.first() {
            None => return Step::More,
            Some(b'S') => {
                received.remove(0);
                return Step::Begin(Vec::new());
            }
            Some(b'N') => "it does not accept TLS (ssl = on in postgresql.conf)",
            Some(_) => "it does not speak PostgreSQL at this port",
        };
        Step::Refuse(Vec::new(), reason.into())
    }
}
