//! The beginning of a client's bytes, which shows whether it speaks TLS, and the server that it asks for.

use std::io::Cursor;

use rustls::server::{Accepted, Acceptor};

/// The beginning of a client's bytes.
pub enum Beginning {
    /// A whole ClientHello, and nothing after it.
    Hello(Box<Accepted>),
    /// Part of one.
    More,
    /// Something else.
    Other,
}

/// The first byte of a handshake of TLS.
pub(crate) const HANDSHAKE: u8 = 0x16;

/// The protocols that this end offers to clients inside TLS (ALPN).
pub(crate) const PROTOCOLS: [&[u8]; 3] = [HTTP2, b"http/1.1", b"http/1.0"];

/// HTTP/2, as ALPN names it.
pub(crate) const HTTP2: &[u8] = b"h2";

impl Beginning {
    /// The longest ClientHello.
    pub const BYTES_MAX: usize = 16 << 10;

    /// By the bytes that a client has sent so far.
    pub fn of(early: &[u8]) -> Beginning {
        match early.first() {
            None => return Beginning::More,
            Some(&HANDSHAKE) => {}
            Some(_) => return Beginning::Other,
        }
        let mut acceptor = Acceptor::default();
        let mut rest = Cursor::new(early);
        while rest.position() < early.len() as u64 {
            if acceptor.read_tls(&mut rest).is_err() {
                return Beginning::Other;
            }
            match acceptor.accept() {
                // A client waits for the answer. What follows would be lost.
                Ok(Some(_)) if rest.position() < early.len() as u64 => return Beginning::Other,
                Ok(Some(accepted)) => return Beginning::Hello(Box::new(accepted)),
                Ok(None) => {}
                Err(_) => return Beginning::Other,
            }
        }
        match early.len() < Beginning::BYTES_MAX {
            true => Beginning::More,
            false => Beginning::Other,
        }
    }
}

/// Whether a client offers this protocol.
pub(crate) fn offers(accepted: &Accepted, protocol: &[u8]) -> bool {
    let hello = accepted.client_hello();
    hello
        .alpn()
        .is_some_and(|mut protocols| protocols.any(|name| name == protocol))
}

/// Whether a client speaks HTTP, as far as it says so.
pub(crate) fn speaks_http(accepted: &Accepted) -> bool {
    let hello = accepted.client_hello();
    hello
        .alpn()
        .is_none_or(|mut protocols| protocols.any(|name| PROTOCOLS.contains(&name)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};

    use super::*;

    fn hello(name: &str, protocols: &[&str]) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_hello_is_whole_at_its_last_byte_and_names_the_server() {
        let bytes = hello("example.org", &["h2", "http/1.1"]);
        for length in 0..bytes.len() {
            let beginning = Beginning::of(&bytes[..length]);
            assert!(matches!(beginning, Beginning::More), "{length} bytes");
        }
        let Beginning::Hello(accepted) = Beginning::of(&bytes) else {
            panic!("no hello");
        };
        assert_eq!(accepted.client_hello().server_name(), Some("example.org"));
        assert!(speaks_http(&accepted));
    }

    #[test]
    fn a_client_of_other_protocols_only_is_known() {
        let speaks = |protocols: &[&str]| match Beginning::of(&hello("example.org", protocols)) {
            Beginning::Hello(accepted) => speaks_http(&accepted),
            _ => panic!("no hello"),
        };
        assert!(speaks(&[]) && speaks(&["http/1.0"]) && speaks(&["h2"]));
        assert!(!speaks(&["h3"]));
    }

    #[test]
    fn other_bytes_are_no_hello() {
        for bytes in [
            b"GET / HTTP/1.1\r\n".as_slice(),
            b"SSH-2.0",
            b"\x16\x03\x01\x00\x05\x02aaaa",
        ] {
            assert!(
                matches!(Beginning::of(bytes), Beginning::Other),
                "{bytes:?}"
            );
        }
        let endless = [
            b"\x16\x03\x01\x40\x00\x01".as_slice(),
            &[0; Beginning::BYTES_MAX],
        ]
        .concat();
        assert!(matches!(Beginning::of(&endless), Beginning::Other));
    }

    #[test]
    fn damaged_hellos_are_survived() {
        let bytes = hello("example.org", &["http/1.1"]);
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                let _ = Beginning::of(&damaged);
            }
        }
    }
}
