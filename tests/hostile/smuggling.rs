//! Smuggling through the HTTP proxy and services: origins that say more than one answer, or answers with several
//! ends; clients whose requests hide others. Whatever they try, each request is answered by the
//! origin that it was for, or visibly not at all.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread::scope,
    time::Duration,
};

use crate::common::{
    PATIENCE,
    addresses::free_address,
    eventually,
    hostile_answers::{
        Reading::{self, Instead, Last, Truncated, Whole},
        SECRET, hostile_answers,
    },
    http::{HandMadeClient, HandMadeOrigin, field},
    resident::resident_bytes,
    site::Pair,
};

/// A pair with an HTTP proxy, and where that listens.
fn proxy() -> (Pair, SocketAddr) {
    let listen = free_address();
    let pair = Pair::start(&[], &["--http-proxy", &listen.to_string()]);
    (pair, listen)
}

/// An origin that answers each request in the same, well-formed way.
fn honest(name: &'static str) -> HandMadeOrigin {
    HandMadeOrigin::keeping(move |_, _, _| {
        let length = name.len();
        Some(format!(
            "HTTP/1.1 200 OK\r\nX: {name}\r\nContent-Length: {length}\r\n\r\n{name}"
        ))
    })
}

/// Asks a hostile origin that says `answer` and, at once or a little later, a second one; then an
/// honest one over the same connection.
fn ask(proxy: SocketAddr, good: &HandMadeOrigin, answer: &str, expected: &Reading, at_once: bool) {
    let evil = HandMadeOrigin::conversing({
        let answer = answer.to_owned();
        let closes = matches!(expected, Last(_));
        move |stream, _| {
            if closes {
                stream.write_all(answer.as_bytes())?;
                return stream.shutdown(Shutdown::Write);
            }
            match at_once {
                true => stream.write_all((answer.clone() + SECRET).as_bytes()),
                false => {
                    stream.write_all(answer.as_bytes())?;
                    std::thread::sleep(Duration::from_millis(5));
                    stream.write_all(SECRET.as_bytes())
                }
            }
        }
    });
    let get = |origin: &HandMadeOrigin| format!("GET http://{}/ HTTP/1.1\r\n\r\n", origin.address);
    let mut client = HandMadeClient::say(proxy, &get(&evil));
    let note = format!("{answer:?}, {at_once}");
    match *expected {
        Whole(body) => {
            let (head, read) = client.answer();
            assert_eq!(read, body, "{note}: {head}");
            assert_eq!(field(&head, "Connection"), None, "{note}: {head}");
            for _ in 0..2 {
                client.say_more(&get(good));
                let (head, read) = client.answer();
                assert_eq!(
                    (field(&head, "X"), &read[..]),
                    (Some("good"), "good"),
                    "{note}"
                );
            }
            // Over a connection of its own.
            client.say_more(&get(&evil));
            let (head, read) = client.answer();
            assert_eq!(read, body, "{note}: {head}");
        }
        Last(body) => {
            let all = client.rest();
            assert!(all.contains("\r\nConnection: close\r\n"), "{note}: {all}");
            assert!(all.ends_with(&format!("\r\n\r\n{body}")), "{note}: {all}");
        }
        Instead(status) => {
            let all = client.rest();
            assert!(
                all.starts_with(&format!("HTTP/1.1 {status} "))
                    || all.contains("\r\n\r\nHTTP/1.1 502 "),
                "{note}: {all}"
            );
            assert!(!all.contains("secret"), "{note}: {all}");
        }
        Truncated => {
            let all = client.rest();
            assert!(all.starts_with("HTTP/1.1 200 "), "{note}: {all}");
            assert!(!all.ends_with("0\r\n\r\n"), "{note}: {all}");
            assert!(!all.contains("secret"), "{note}: {all}");
        }
    }
}

#[test]
fn no_answer_brings_another() {
    let (_pair, proxy) = proxy();
    let good = honest("good");
    for cases in hostile_answers().chunks(12) {
        scope(|threads| {
            for (answer, expected) in cases {
                for at_once in [true, false] {
                    let good = &good;
                    threads.spawn(move || ask(proxy, good, answer, expected, at_once));
                }
            }
        });
    }
}

/// What an origin says while nobody asks is not the answer to what is asked next.
#[test]
fn an_answer_in_advance_answers_nothing() {
    let (_pair, proxy) = proxy();
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
    let evil = HandMadeOrigin::conversing(move |stream, _| {
        stream.write_all(ok.as_bytes())?;
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(SECRET.as_bytes())
    });
    let get = format!("GET http://{}/ HTTP/1.1\r\n\r\n", evil.address);
    let mut client = HandMadeClient::say(proxy, &get);
    for asked in 1..4 {
        assert_eq!(client.answer().1, "body");
        // The flow is over as soon as more comes.
        evil.heard(asked);
        client.say_more(&get);
    }
}

/// A HEAD is answered without a body, whatever comes.
#[test]
fn a_body_to_head_is_no_answer_to_what_follows() {
    let (_pair, proxy) = proxy();
    let good = honest("good");
    for framing in ["Content-Length: 60", "Transfer-Encoding: chunked", "X: 1"] {
        let evil =
            HandMadeOrigin::answering(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{SECRET}"));
        let request = format!(
            "HEAD http://{}/ HTTP/1.1\r\n\r\nGET http://{}/ HTTP/1.1\r\n\r\n",
            evil.address, good.address
        );
        let mut client = HandMadeClient::say(proxy, &request);
        let head = client.head();
        assert!(head.contains(framing), "{head}");
        assert_eq!(client.answer().1, "good");
    }
}

/// Whether clients ask a proxy for the origin, or a listener that serves it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Proxy,
    Service,
}

impl Way {
    /// A pair, and where clients of the origin connect.
    fn start(self, origin: &HandMadeOrigin) -> (Pair, SocketAddr) {
        let Way::Service = self else {
            return proxy();
        };
        let listen = free_address();
        let service = format!("{listen}=http://{}", origin.address);
        (Pair::start(&[], &["--service", &service]), listen)
    }

    /// The first line of a request, and the field for the host.
    fn line(self, method: &str, origin: &HandMadeOrigin, path: &str) -> String {
        match self {
            Way::Proxy => format!("{method} http://{}{path} HTTP/1.1\r\n", origin.address),
            Way::Service => format!("{method} {path} HTTP/1.1\r\nHost: x\r\n"),
        }
    }
}

/// Requests that are refused: they could be read as several.
#[test]
fn no_request_hides_another() {
    for way in [Way::Proxy, Way::Service] {
        hide_requests(way);
    }
}

fn hide_requests(way: Way) {
    let origin = honest("good");
    let (_pair, near) = way.start(&origin);
    let hidden = way.line("GET", &origin, "/hidden") + "\r\n";
    let refused = [
        "Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "Content-Length: 0, 44\r\n\r\n",
        "Content-Length: +0\r\n\r\n",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: 0x0\r\n\r\n",
        "Content-Length: \r\n\r\n",
        "Content-Length: 18446744073709551616\r\n\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        "X: 1\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "X: 1\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "X: \0\r\n\r\n",
        "Host: a\r\nHost: b\r\n\r\n",
        " X: 1\r\n\r\n",
        // The body cannot be read to its end.
        "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n00000000000000000\r\n\r\n",
    ];
    for fields in refused {
        let request = way.line("POST", &origin, "/") + fields + &hidden;
        let told = HandMadeClient::say(near, &request).rest();
        // A head that is sound may have been answered before its body was seen.
        let is_refused = told.starts_with("HTTP/1.1 400 ") && !told.contains("good");
        let answered_before = told.starts_with("HTTP/1.1 200 ")
            && told.matches("HTTP/1.1 ").count() == 1
            && told.contains("\r\nConnection: close\r\n");
        let is_in_body = fields.contains("chunked\r\n\r\n") && fields.starts_with("Transfer");
        assert!(
            is_refused || is_in_body && answered_before,
            "{way:?}: {fields:?}: {told}"
        );
    }
    // What looks like a request in a body is a body.
    let length = hidden.len();
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{hidden}\r\n0\r\n\r\n");
    let counted = format!("Content-Length: {length}\r\n\r\n{hidden}");
    let heard = HandMadeOrigin::answering("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes");
    let (_other, near_heard) = way.start(&heard);
    for body in [chunked, counted] {
        let request = way.line("POST", &heard, "/") + &body;
        let mut client = HandMadeClient::say(near_heard, &request);
        assert_eq!(client.answer().1, "yes");
        client.half_close();
        assert_eq!(client.rest(), "");
    }
    for body in heard.heard(2) {
        assert!(body.contains("/hidden"), "{body}");
    }
    // Nobody was ever asked for what was hidden.
    let last = way.line("GET", &origin, "/last") + "Connection: close\r\n\r\n";
    assert_eq!(HandMadeClient::say(near, &last).answer().1, "good");
    let all = eventually("the last request was heard", || {
        let all = origin.heard(1).concat();
        all.contains("/last").then_some(all)
    });
    assert!(!all.contains("GET /hidden"), "{all}");
}

/// A client that asks for more and more, and takes nothing, is not read on for ever.
#[test]
fn what_is_read_ahead_of_a_client_is_bounded() {
    let (pair, proxy) = proxy();
    let origin = honest("good");
    let requests = format!("GET http://{}/ HTTP/1.1\r\n\r\n", origin.address).repeat(1000);
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .expect("a limit");
    let before = resident_bytes(&pair.near);
    let mut sent = 0;
    // The kernels' buffers take some megabytes; the gateway would take what is left of 1 GB.
    while sent < 1 << 30 {
        match stream.write(requests.as_bytes()) {
            Ok(bytes) => sent += bytes,
            Err(_) => break,
        }
    }
    assert!(sent < 1 << 28, "{sent} bytes were taken");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.read_exact(&mut [0; 4096]).expect("answers");
    let more = resident_bytes(&pair.near).saturating_sub(before);
    assert!(more < 64 << 20, "{more} bytes more");
}
