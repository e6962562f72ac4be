//! Requests through proxies of all kinds, each of which keeps what it was asked for.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use refrain_http_ranges::{ConnectionError, ProxyChoice, Remote, RemoteError, RemoteOptions};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::{
    options,
    server::{File, Reply, Server},
};

/// Nobody has this name: who asks for it without a proxy fails.
const NOWHERE: &str = "origin.invalid";

fn through(proxy: &str) -> RemoteOptions {
    RemoteOptions {
        proxy: ProxyChoice::Url(proxy.to_owned()),
        ..options()
    }
}

fn assert_reads(url: &str, options: RemoteOptions, file: &File) {
    let remote = Remote::open(url, options).unwrap_or_else(|error| panic!("{url}: {error}"));
    let mut buffer = [0; 1_000];
    remote.read_at(2_000, &mut buffer).expect("it is there");
    assert_eq!(&buffer[..], file.part(&(2_000..3_000)));
}

#[test]
fn an_http_address_is_asked_for_by_its_whole_name() {
    let file = File::new(5_000);
    let served = file.clone();
    let proxy = Server::start(move |request| served.reply(request));
    for (user, authorization) in [
        ("", None),
        ("me:se%20cret@", Some("Basic bWU6c2UgY3JldA==")),
    ] {
        let before = proxy.requests().len();
        let url = format!("http://{NOWHERE}:81/file?a=b");
        let mut options = through(&format!("http://{user}{}", proxy.address));
        options.bearer = Some("token".to_owned());
        assert_reads(&url, options, &file);
        let asked = &proxy.requests()[before..];
        assert_eq!(asked.len(), 2);
        for request in asked {
            assert_eq!((&request.method[..], &request.path), ("GET", &url));
            assert_eq!(request.header("host"), Some("origin.invalid:81"));
            assert_eq!(request.header("proxy-authorization"), authorization);
            assert_eq!(request.header("authorization"), Some("Bearer token"));
        }
        // One connection does it.
        assert_eq!(asked[0].connection, asked[1].connection);
    }
}

#[test]
fn an_https_address_is_asked_for_by_connect_and_a_refusal_names_the_proxy() {
    for status in [403, 407, 502] {
        let proxy = Server::start(move |_| Reply::new(status, ""));
        let options = through(&format!("http://me:secret@{}", proxy.address));
        let error = Remote::open(
            &format!("https://{NOWHERE}/file"),
            RemoteOptions {
                roots: certificates().map(|folder| folder.path().join("tls.crt")),
                ..options
            },
        );
        // Without certificates nothing is asked for.
        let error = match error {
            Err(RemoteError::NoRoots { .. } | RemoteError::Roots { .. }) => {
                println!("skipped: there are no certificates");
                return;
            }
            error => error.expect_err("it is refused").to_string(),
        };
        assert!(error.contains(&proxy.address.to_string()), "{error}");
        assert!(error.contains(&format!("status {status}")), "{error}");
        assert!(!error.contains("secret"), "{error}");
        let [request] = &proxy.requests()[..] else {
            panic!("{:?}", proxy.requests());
        };
        assert_eq!(request.method, "CONNECT");
        assert_eq!(request.path, "origin.invalid:443");
        assert_eq!(
            request.header("proxy-authorization"),
            Some("Basic bWU6c2VjcmV0")
        );
        assert_eq!(request.header("authorization"), None);
    }
}

#[test]
fn a_server_that_does_not_speak_tls_is_named_as_that() {
    let Some(folder) = certificates() else {
        println!("skipped: there are no certificates");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        // It stays open until the client has read that.
        let _ = io::copy(&mut connection, &mut io::sink());
    });
    let options = RemoteOptions {
        roots: Some(folder.path().join("tls.crt")),
        ..options()
    };
    let opened = Remote::open(&format!("https://{address}/file"), options);
    let RemoteError::Connection { source, .. } = opened.expect_err("it is refused") else {
        panic!("another error");
    };
    assert_eq!(*source, ConnectionError::NotTls);
}

/// A SOCKS proxy that leads to `origin`, whatever it is asked for, and what that was. It ends with the
/// test's process.
fn socks(origin: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = asked.clone();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, seen) = (client.expect("a connection"), seen.clone());
            thread::spawn(move || {
                let request = greet(&client).expect("a client of SOCKS");
                seen.lock().expect("no panic").push(request);
                let server = TcpStream::connect(origin).expect("the origin is there");
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || drop(io::copy(&mut from, &mut to)));
                let _ = io::copy(&mut &server, &mut &client);
            });
        }
    });
    (address, asked)
}

/// Reads what a client of SOCKS wants, and lets it have it.
fn greet(mut client: &TcpStream) -> io::Result<String> {
    fn bytes<const N: usize>(mut client: &TcpStream) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        client.read_exact(&mut bytes)?;
        Ok(bytes)
    }
    let text = |length: u8| -> io::Result<String> {
        let mut text = vec![0; length.into()];
        (&*client).read_exact(&mut text)?;
        Ok(String::from_utf8(text).expect("text"))
    };
    let until_zero = || -> io::Result<String> {
        let mut text = String::new();
        loop {
            match bytes::<1>(client)? {
                [0] => return Ok(text),
                [byte] => text.push(byte.into()),
            }
        }
    };
    let [version] = bytes(client)?;
    if version == 4 {
        let [_connect, high, low, a, b, c, d] = bytes(client)?;
        until_zero()?;
        let host = match [a, b, c] {
            [0, 0, 0] => until_zero()?,
            _ => format!("{a}.{b}.{c}.{d}"),
        };
        client.write_all(&[0, 90, 0, 0, 0, 0, 0, 0])?;
        return Ok(format!("4 {host}:{}", u16::from_be_bytes([high, low])));
    }
    let [methods] = bytes(client)?;
    let methods = text(methods)?;
    let mut user = String::new();
    if methods.contains('\u{2}') {
        client.write_all(&[5, 2])?;
        let [_, length] = bytes(client)?;
        user = text(length)?;
        let [length] = bytes(client)?;
        user += &format!(":{}@", text(length)?);
        client.write_all(&[1, 0])?;
    } else {
        client.write_all(&[5, 0])?;
    }
    let [_, _connect, _, kind] = bytes(client)?;
    let host = match kind {
        1 => std::net::Ipv4Addr::from(bytes::<4>(client)?).to_string(),
        4 => std::net::Ipv6Addr::from(bytes::<16>(client)?).to_string(),
        _ => {
            let [length] = bytes(client)?;
            text(length)?
        }
    };
    let port = u16::from_be_bytes(bytes(client)?);
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    Ok(format!("5 {user}{host}:{port}"))
}

#[test]
fn socks_proxies_of_all_kinds_lead_to_the_server() {
    let file = File::new(5_000);
    let served = file.clone();
    let origin = Server::start(move |request| served.reply(request));
    let (address, asked) = socks(origin.address);
    for (proxy, url, expected) in [
        (
            "socks5h://",
            "http://origin.invalid/file",
            "5 origin.invalid:80",
        ),
        (
            "socks5h://me:secret@",
            "http://origin.invalid:99/file",
            "5 me:secret@origin.invalid:99",
        ),
        ("socks5://", "http://localhost/file", "5 localhost:80"),
        ("socks5://", "http://127.0.0.7/file", "5 127.0.0.7:80"),
        ("socks5h://", "http://[::7]:81/file", "5 ::7:81"),
        (
            "socks4a://",
            "http://origin.invalid/file",
            "4 origin.invalid:80",
        ),
        ("socks4://", "http://127.0.0.7:99/file", "4 127.0.0.7:99"),
    ] {
        assert_reads(url, through(&format!("{proxy}{address}")), &file);
        for asked in asked.lock().expect("no panic").drain(..) {
            // Those that take no names are given an address.
            let asked = asked
                .replace(" 127.0.0.1:", " localhost:")
                .replace(" ::1:", " localhost:");
            assert_eq!(asked, expected, "{proxy} {url}");
        }
    }
    // Names that are to be found here, and are not.
    let error = Remote::open(
        "http://origin.invalid/",
        through(&format!("socks5://{address}")),
    );
    let error = error.expect_err("it has no address").to_string();
    assert!(error.contains("cannot be resolved"), "{error}");
    // Nobody listens at the proxy.
    let error = Remote::open(&origin.url(), through("socks5://127.0.0.1:9"));
    let error = error.expect_err("there is no proxy").to_string();
    assert!(error.contains("socks5://127.0.0.1:9"), "{error}");
    assert_eq!(asked.lock().expect("no panic").len(), 0);
}

#[test]
fn a_proxy_that_is_not_understood_is_an_error_before_anything_is_sent() {
    let origin = Server::start(|_| Reply::new(404, ""));
    for proxy in [
        "socks://127.0.0.1:9",
        "ftp://a",
        "http://",
        "127.0.0.1:port",
        "http:/a:1",
    ] {
        let error = Remote::open(&origin.url(), through(proxy)).expect_err("it is none");
        assert!(
            matches!(error, RemoteError::Proxy { .. }),
            "{proxy}: {error}"
        );
    }
    assert_eq!(origin.requests().len(), 0);
}

/// A key and a certificate for localhost; none where there is no openssl.
fn certificates() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().expect("a folder");
    let made = Command::new("openssl")
        .args("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost".split(' '))
        .args("-addext subjectAltName=DNS:localhost".split(' '))
        .args("-addext basicConstraints=critical,CA:FALSE".split(' '))
        .args("-keyout tls.key -out tls.crt".split(' '))
        .current_dir(folder.path())
        .output();
    made.is_ok_and(|made| made.status.success())
        .then_some(folder)
}

fn tls(folder: &Path) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(folder.join("tls.crt")).expect("one");
    let key = PrivateKeyDer::from_pem_file(folder.join("tls.key")).expect("one");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("ring has them").with_no_client_auth();
    let config = config.with_single_cert(vec![certificate], key);
    Arc::new(config.expect("they belong together"))
}

trait Io: Read + Write {}
impl<T: Read + Write> Io for T {}

fn secured(io: Box<dyn Io>, tls: &Arc<ServerConfig>) -> Box<dyn Io> {
    let connection = ServerConnection::new(tls.clone()).expect("it is configured");
    Box::new(StreamOwned::new(connection, io))
}

fn head(io: &mut dyn Io) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        io.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8(head).expect("text"))
}

/// What a proxy that is reached over TLS, if `is_secure` is set, and the server behind it are asked for.
fn serve(
    client: TcpStream,
    is_secure: bool,
    tls: &Arc<ServerConfig>,
    file: &File,
    asked: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut io: Box<dyn Io> = Box::new(client);
    if is_secure {
        io = secured(io, tls);
    }
    loop {
        let head = head(&mut *io)?;
        let first = head.lines().next().unwrap_or_default().to_owned();
        let is_connect = first.starts_with("CONNECT ");
        asked.lock().expect("no panic").push(first);
        if is_connect {
            // With what proxies may send, and do not often.
            let interim = "HTTP/1.1 100 Continue\r\n\r\n";
            let fields = "X-Proxy: yes\r\n".repeat(200);
            let answer = format!("{interim}HTTP/1.1 201 Connected\r\n{fields}\r\n");
            io.write_all(answer.as_bytes())?;
            io.flush()?;
            io = secured(io, tls);
            continue;
        }
        let range = head.to_lowercase();
        let range = range
            .split("range: bytes=")
            .nth(1)
            .and_then(|rest| rest.lines().next());
        let (start, last) = range
            .and_then(|range| range.split_once('-'))
            .expect("a range");
        let range = start.parse::<u64>().unwrap()..last.parse::<u64>().unwrap() + 1;
        let answer = format!(
            "HTTP/1.1 206 Part\r\nContent-Range: bytes {start}-{last}/{}\r\nContent-Length: {}\r\n\r\n",
            file.len(),
            range.end - range.start
        );
        io.write_all(answer.as_bytes())?;
        io.write_all(file.part(&range))?;
        io.flush()?;
    }
}

#[test]
fn tls_is_spoken_with_the_proxy_and_through_it() {
    let Some(folder) = certificates() else {
        println!("skipped: openssl is not installed");
        return;
    };
    let (file, tls) = (File::new(5_000), tls(folder.path()));
    for is_secure in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, config, served) = (asked.clone(), tls.clone(), file.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let (seen, config, served) = (seen.clone(), config.clone(), served.clone());
                let client = client.expect("a connection");
                thread::spawn(move || drop(serve(client, is_secure, &config, &served, &seen)));
            }
        });
        let scheme = if is_secure { "https" } else { "http" };
        for (url, expected) in [
            (
                "http://localhost:81/file",
                &["GET http://localhost:81/file HTTP/1.1"; 2][..],
            ),
            (
                "https://localhost:444/file",
                &[
                    "CONNECT localhost:444 HTTP/1.1",
                    "GET /file HTTP/1.1",
                    "GET /file HTTP/1.1",
                ],
            ),
        ] {
            let options = RemoteOptions {
                roots: Some(folder.path().join("tls.crt")),
                ..through(&format!("{scheme}://localhost:{port}"))
            };
            assert_reads(url, options, &file);
            let asked: Vec<String> = asked.lock().expect("no panic").drain(..).collect();
            assert_eq!(asked, expected, "{scheme} {url}");
        }
        // The certificate is not for this name.
        let options = RemoteOptions {
            roots: Some(folder.path().join("tls.crt")),
            ..through(&format!("{scheme}://localhost:{port}"))
        };
        Remote::open("https://127.0.0.1:444/file", options).expect_err("it is another's");
    }
}
