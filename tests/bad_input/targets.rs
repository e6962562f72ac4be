//! Targets that refuse, do not exist or are not allowed: what each proxy's client hears.

use std::{
    io::{Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
};

use crate::common::{
    PATIENCE,
    addresses::{free_address, has_ipv6},
    origin,
    site::Pair,
};

/// A pair with both proxies.
fn pair_with_proxies(far_options: &[&str]) -> (Pair, SocketAddr, SocketAddr) {
    let (socks, http) = (free_address(), free_address());
    let near_options = [
        "--socks5",
        &socks.to_string(),
        "--http-proxy",
        &http.to_string(),
    ];
    (Pair::start(far_options, &near_options), socks, http)
}

/// What a SOCKS5 proxy replies to a request for a host by its name.
fn socks_reply(proxy: SocketAddr, host: &str, port: u16) -> u8 {
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.write_all(&[5, 1, 0]).expect("a connection");
    let mut accepted = [0; 2];
    stream.read_exact(&mut accepted).expect("an answer");
    let mut request = vec![5, 1, 0, 3, host.len() as u8];
    request.extend(host.as_bytes());
    request.extend(port.to_be_bytes());
    stream.write_all(&request).expect("a connection");
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).expect("a reply");
    reply[1]
}

/// The status line of an HTTP proxy's answer.
fn http_answer(proxy: SocketAddr, request_line: &str) -> String {
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = format!("{request_line} HTTP/1.1\r\nHost: target\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a connection");
    stream.shutdown(Shutdown::Write).expect("a connection");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[track_caller]
fn assert_http(answer: &str, status: &str, reason: &str) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
    assert!(answer.contains(reason), "{answer}");
}

#[test]
fn a_target_that_refuses() {
    let (pair, socks, http) = pair_with_proxies(&[]);
    let closed = free_address();
    assert_eq!(
        socks_reply(socks, "127.0.0.1", closed.port()),
        5,
        "connection refused"
    );
    let answer = http_answer(http, &format!("GET http://{closed}/"));
    assert_http(&answer, "502", "refused");
    let answer = http_answer(http, &format!("CONNECT {closed}"));
    assert_http(&answer, "502", "refused");
    pair.far
        .wait_for_log(&["refused a connection for the peer", &closed.to_string()]);
}

#[test]
fn a_name_that_does_not_resolve() {
    let (_pair, socks, http) = pair_with_proxies(&[]);
    // Reserved never to resolve (RFC 6761).
    assert_eq!(
        socks_reply(socks, "nowhere.invalid", 80),
        4,
        "host unreachable"
    );
    let answer = http_answer(http, "GET http://nowhere.invalid/");
    assert_http(&answer, "502", "resolve");
}

/// An address of this machine other than loopback, or one that nobody has (RFC 5737).
fn other_than_loopback() -> IpAddr {
    let routed = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("198.51.100.1:9")?;
        socket.local_addr()
    });
    match routed {
        Ok(address) if !address.ip().is_loopback() => address.ip(),
        _ => [198, 51, 100, 1].into(),
    }
}

#[test]
fn a_target_that_is_not_allowed() {
    let address = other_than_loopback();
    // It would answer, if it were asked: where the machine has such an address.
    let listener = TcpListener::bind((address, 0));
    let port = listener
        .as_ref()
        .ok()
        .and_then(|listener| listener.local_addr().ok());
    let target = SocketAddr::from((address, port.map_or(80, |address| address.port())));
    let (_pair, socks, http) = pair_with_proxies(&[]);
    assert_eq!(
        socks_reply(socks, &address.to_string(), target.port()),
        2,
        "not allowed"
    );
    let answer = http_answer(http, &format!("GET http://{target}/"));
    assert_http(&answer, "403", "allow");
    let answer = http_answer(http, &format!("CONNECT {target}"));
    assert_http(&answer, "403", "allow");
    if let Ok(listener) = listener {
        listener.set_nonblocking(true).expect("a listener");
        assert!(
            listener.accept().is_err(),
            "the far end connected all the same"
        );
    }
}

#[test]
fn loopback_by_other_names_is_loopback() {
    let (_pair, socks, _) = pair_with_proxies(&[]);
    let target = origin::start();
    for host in ["localhost", "127.0.0.1", "127.1.2.3", "::ffff:127.0.0.1"] {
        let reply = socks_reply(socks, host, target.port());
        // The origin listens on 127.0.0.1 alone: 127.1.2.3 is allowed, and refuses.
        let expected = if host == "127.1.2.3" { 5 } else { 0 };
        assert_eq!(reply, expected, "{host}");
    }
    let (_pair, socks, _) = pair_with_proxies(&["--allow", "127.0.0.1:1"]);
    for host in ["localhost", "127.0.0.1", "::ffff:127.0.0.1"] {
        assert_eq!(socks_reply(socks, host, target.port()), 2, "{host}");
    }
}

#[test]
fn ipv6_loopback_is_allowed() {
    if !has_ipv6() {
        eprintln!("skipped: this machine has no IPv6 on loopback");
        return;
    }
    let target = origin::start_on("[::1]:0".parse().expect("an address"));
    let (_pair, socks, http) = pair_with_proxies(&[]);
    assert_eq!(socks_reply(socks, "::1", target.port()), 0);
    let answer = http_answer(http, &format!("CONNECT {target}"));
    assert_http(&answer, "200", "established");
}
