//! The name of the server, in a client's first bytes: of TLS, the ClientHello's server_name (RFC 6066, section 3), and
//! of HTTP/1, the field `Host`.

use std::{net::IpAddr, time::Duration};

use httparse::Status;
use rustls::server::Acceptor;

use crate::http_proxy::fields;

/// The most that is read in search of a name, in bytes.
pub(crate) const SEARCHED_BYTES_MAX: usize = 16 << 10;

/// How long a client has for the bytes that name its server. Where the server speaks first, it waits this long too.
pub(crate) const NAME_TIMEOUT: Duration = Duration::from_millis(500);

/// What begins with it is a record of a TLS handshake.
const TLS_HANDSHAKE: u8 = 22;

/// A search for the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Search {
    /// The name, in lower case.
    Found(String),
    /// Bytes that have none.
    Nameless,
    /// The beginning of bytes that may have one.
    More,
}

/// Searches the first bytes of a client.
pub fn search(received: &[u8]) -> Search {
    let found = match received.first() {
        None => return Search::More,
        Some(&TLS_HANDSHAKE) => of_tls(received),
        // A method.
        Some(byte) if byte.is_ascii_uppercase() => of_http(received),
        Some(_) => return Search::Nameless,
    };
    match found {
        Search::More if received.len() >= SEARCHED_BYTES_MAX => Search::Nameless,
        found => found,
    }
}

fn of_tls(mut received: &[u8]) -> Search {
    let mut acceptor = Acceptor::default();
    while !received.is_empty() {
        match acceptor.read_tls(&mut received) {
            Ok(0) | Err(_) => return Search::Nameless,
            Ok(_) => {}
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_owned);
                return name.map_or(Search::Nameless, of_text);
            }
            Ok(None) => {}
            Err(_) => return Search::Nameless,
        }
    }
    Search::More
}

fn of_http(received: &[u8]) -> Search {
    fields::with_room(received, |room| {
        let mut request = httparse::Request::new(room);
        match request.parse(received) {
            Ok(Status::Complete(_)) => {}
            Ok(Status::Partial) => return Search::More,
            Err(_) => return Search::Nameless,
        }
        let mut hosts = fields::values(request.headers, "Host");
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Search::Nameless;
        };
        let host = String::from_utf8_lossy(host.trim_ascii());
        match host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                of_text(host.to_owned())
            }
            _ => of_text(host.into_owned()),
        }
    })
}

/// What a text says that is to name a host.
fn of_text(host: String) -> Search {
    host_name(&host).map_or(Search::Nameless, Search::Found)
}

/// The name of a host in lower case, if it is one and not an address.
pub(super) fn host_name(host: &str) -> Option<String> {
    /// Of a domain name (RFC 1035, section 2.3.4).
    const BYTES_MAX: usize = 255;
    let host = host.trim_end_matches('.');
    let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = (1..=BYTES_MAX).contains(&host.len()) && host.bytes().all(is_byte);
    (is_name && host.parse::<IpAddr>().is_err()).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};

    use super::*;

    /// The first bytes of a TLS client.
    fn client_hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut hello = Vec::new();
        client.write_tls(&mut hello).expect("memory");
        hello
    }

    fn found(name: &str) -> Search {
        Search::Found(name.to_owned())
    }

    #[test]
    fn names_of_tls_and_http_are_found_when_they_are_whole() {
        let request = b"GET /a HTTP/1.1\r\nhost: Shop.Example.org:8080\r\nA: b\r\n\r\nrest";
        for (bytes, name) in [
            (client_hello("shop.example.org"), "shop.example.org"),
            (request.to_vec(), "shop.example.org"),
        ] {
            assert_eq!(search(&bytes), found(name));
            let whole = (0..=bytes.len()).find(|&length| search(&bytes[..length]) != Search::More);
            let whole = whole.expect("it is found");
            for length in whole..=bytes.len() {
                assert_eq!(search(&bytes[..length]), found(name), "{length}");
            }
        }
    }

    #[test]
    fn bytes_without_a_name_are_not_waited_for() {
        for bytes in [
            &b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..],
            b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
            b"GET / HTTP/1.0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: 10.20.0.5:80\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: [fd00::5]:80\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: one\r\nHost: two\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        ] {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(search(bytes), Search::Nameless, "{text}");
        }
        // A client that names an address says nothing.
        assert_eq!(search(&client_hello("10.20.0.5")), Search::Nameless);
        assert_eq!(search(b""), Search::More);
        let endless = [b"GET /".to_vec(), vec![b'a'; SEARCHED_BYTES_MAX]].concat();
        assert_eq!(search(&endless), Search::Nameless);
        let endless = [
            &b"\x16\x03\x01\x40\x00\x01\x00\xff\xff"[..],
            &[0; SEARCHED_BYTES_MAX],
        ];
        assert_eq!(search(&endless.concat()), Search::Nameless);
    }

    proptest! {
        #[test]
        fn bytes_that_were_changed_are_read_or_not(at in 0_usize..200, byte: u8, length in 0_usize..600) {
            let mut hello = client_hello("shop.example.org");
            hello[at] = byte;
            hello.truncate(length);
            let _ = search(&hello);
        }
    }
}
