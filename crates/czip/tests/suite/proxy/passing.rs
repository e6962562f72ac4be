//! All that is no archive: requests and answers that are passed.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use refrain_czip::serve::proxy::{Proxy, ProxyOptions};

use super::{
    client::Client,
    server::{Ending, Reply},
    world::{World, noise},
};

#[test]
fn files_come_as_they_are() {
    let world = World::new();
    let content = noise(1, 3_000_000);
    world.origin.put("/x", &content, "\"first\"");
    let answer = world.get("/x", &[]);
    assert_eq!(answer.header("etag"), Some("\"first\""));
    assert!(answer.body == content);
    let range = world.get("/x", &[("Range", "bytes=1000-1999")]);
    assert_eq!(range.status, 206);
    assert_eq!(
        range.header("content-range"),
        Some("bytes 1000-1999/3000000")
    );
    assert!(range.body == content[1000..2000]);
    let head = world.head("/x", &[]);
    assert_eq!(head.header("content-length"), Some("3000000"));
    assert_eq!(world.get("/none", &[]).body, b"there is no such file\n");
    assert_eq!(world.status().origin_bytes, 3_001_022);
}

#[test]
fn a_body_of_unknown_length_is_passed() {
    let world = World::new();
    let content = noise(1, 100_000);
    world.origin.put("/x", &content, "\"first\"");
    world.origin.change(|request, reply| match &*request.path {
        "/x" => reply.chunked(),
        _ => reply,
    });
    assert!(world.get("/x", &[]).body == content);
}

#[test]
fn what_concerns_one_connection_stays_there() {
    let world = World::new();
    world.origin.put("/x", b"content", "\"first\"");
    world.origin.change(|_, reply| {
        let reply = reply.with("Connection", "x-mine").with("X-Mine", "1");
        reply.with("Keep-Alive", "timeout=5").with("X-Other", "2")
    });
    let headers = [
        ("Connection", "x-secret, keep-alive"),
        ("X-Secret", "1"),
        ("X-Open", "2"),
        ("Keep-Alive", "timeout=9"),
        ("TE", "trailers"),
        ("Upgrade", "websocket"),
        ("Proxy-Authorization", "Basic me"),
        ("X-Forwarded-For", "10.1.1.1"),
    ];
    let answer = world.get("/x?", &headers);
    assert_eq!(answer.status, 404, "nothing is at this path");
    assert_eq!(answer.header("x-mine"), None);
    assert_eq!(answer.header("keep-alive"), None);
    assert_eq!(answer.header("x-other"), Some("2"));
    assert!(
        answer
            .header("via")
            .expect("who we are")
            .contains("refrain")
    );
    let passed = &world.origin.requests_for("/x?")[0];
    for name in [
        "x-secret",
        "keep-alive",
        "te",
        "upgrade",
        "proxy-authorization",
        "connection",
    ] {
        assert_eq!(passed.header(name), None, "{name}");
    }
    assert_eq!(passed.header("x-open"), Some("2"));
    let origin = world.origin.server.address.to_string();
    assert_eq!(passed.header("host"), Some(&origin[..]));
    assert_eq!(
        passed.header("x-forwarded-for"),
        Some("10.1.1.1, 127.0.0.1")
    );
    assert_eq!(passed.header("x-forwarded-host"), Some("here"));
}

/// An origin that answers one request with what it got, byte for byte.
fn echo() -> (std::net::SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let answering = thread::spawn(move || {
        for stream in listener.incoming().take(1) {
            answer_with_request(stream.expect("a connection")).expect("a whole request");
        }
    });
    (address, answering)
}

fn answer_with_request(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(&stream);
    let mut got = Vec::new();
    let mut length = None;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        got.extend_from_slice(line.as_bytes());
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    match length {
        Some(length) => {
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            got.extend_from_slice(&body);
        }
        None => {
            while !got.ends_with(b"0\r\n\r\n") {
                let mut line = Vec::new();
                if reader.read_until(b'\n', &mut line)? == 0 {
                    break;
                }
                got.extend_from_slice(&line);
            }
        }
    }
    let head = format!(
        "HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n",
        got.len()
    );
    (&stream).write_all(&[head.as_bytes(), &got].concat())
}

/// A world before an origin that is at this address.
fn world_before(address: std::net::SocketAddr, change: impl FnOnce(&mut ProxyOptions)) -> World {
    World::with(|options| {
        options.origin = format!("http://{address}/folder/");
        change(options);
    })
}

#[test]
fn bodies_are_passed_with_their_lengths() {
    let (address, answering) = echo();
    let world = world_before(address, |_| {});
    let body = noise(1, 300_000);
    let mut client = world.client();
    client.ask("POST", "/form", &[("Expect", "100-continue")], &body);
    let goes_on = client.head().expect("it is told to go on");
    assert_eq!(goes_on.status, 100);
    let answer = client.answer(false).expect("an answer");
    assert_eq!(answer.status, 201);
    assert!(answer.body.starts_with(b"POST /folder/form HTTP/1.1\r\n"));
    assert!(answer.body.ends_with(&body));
    let head = answer.body.len() - body.len();
    let head = String::from_utf8_lossy(&answer.body[..head]).to_ascii_lowercase();
    assert!(head.contains("content-length: 300000\r\n"), "{head}");
    assert!(!head.contains("expect:"), "{head}");
    drop(world);
    answering.join().expect("it ends");
}

#[test]
fn bodies_without_a_length_are_passed_in_chunks() {
    let (address, answering) = echo();
    let world = world_before(address, |_| {});
    let mut client = world.client();
    client.send(b"PUT /x HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(b"5\r\nhello\r\n0\r\n\r\n");
    let answer = client.answer(false).expect("an answer");
    let got = String::from_utf8_lossy(&answer.body).to_ascii_lowercase();
    assert!(got.contains("transfer-encoding: chunked\r\n"), "{got}");
    assert!(got.ends_with("5\r\nhello\r\n0\r\n\r\n"), "{got}");
    drop(world);
    answering.join().expect("it ends");
}

/// How long a body is, is said once.
#[test]
fn a_request_with_two_lengths_goes_on_with_one() {
    for lengths in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 6",
        "Connection: content-length\r\nContent-Length: 10",
    ] {
        let (address, answering) = echo();
        let world = world_before(address, |_| {});
        let mut client = world.client();
        let head = format!("POST /x HTTP/1.1\r\nHost: h\r\n{lengths}\r\n\r\n");
        client.send(head.as_bytes());
        client.send(b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n");
        let answer = client.answer(false).expect("an answer");
        let got = String::from_utf8_lossy(&answer.body).to_ascii_lowercase();
        let said = ["content-length:", "transfer-encoding:"].map(|name| got.matches(name).count());
        assert_eq!(said.iter().sum::<usize>(), 1, "{lengths}: {got}");
        assert!(!got.contains("smuggled"), "{lengths}: {got}");
        drop(world);
        answering.join().expect("it ends");
    }
}

#[test]
fn requests_that_are_none_are_refused() {
    let world = World::new();
    world.origin.put("/x", b"content", "\"first\"");
    for head in [
        "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nContent-Length: 7\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: h\r\nX-A: b\r\n c: d\r\n\r\n",
        "GET /a/../x HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a/%2e%2E/x HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a/..%2fx HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a/..%5Cx HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a\\..\\x HTTP/1.1\r\nHost: h\r\n\r\n",
        "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        let mut client = Client::new(world.address);
        client.send(head.as_bytes());
        let answer = client.head();
        let status = answer.map_or(400, |answer| answer.status);
        assert!((400..500).contains(&status), "{head}: {status}");
    }
    assert!(world.origin.server.requests().is_empty());
}

#[test]
fn an_origin_that_would_speak_another_protocol_is_not_passed() {
    let world = World::new();
    world.origin.change(|_, _| {
        let reply = Reply::new(101, "").with("Upgrade", "websocket");
        reply.with("Connection", "upgrade")
    });
    let headers = [("Connection", "upgrade"), ("Upgrade", "websocket")];
    assert_eq!(world.get("/x?", &headers).status, 502);
}

#[test]
fn redirects_lead_back_here() {
    let world = World::with(|options| options.origin += "/folder");
    let base = format!("http://{}", world.origin.server.address);
    for (location, expected) in [
        (format!("{base}/folder/y?z"), "/y?z"),
        ("/folder/y".to_owned(), "/y"),
        ("/other/y".to_owned(), "/other/y"),
        ("/folders/y".to_owned(), "/folders/y"),
        ("y".to_owned(), "y"),
        (
            "/folder//evil.example/".to_owned(),
            "/folder//evil.example/",
        ),
        (
            "https://example.org/folder/y".to_owned(),
            "https://example.org/folder/y",
        ),
    ] {
        world
            .origin
            .change(move |_, _| Reply::new(302, "").with("Location", &location));
        let answer = world.get("/x", &[]);
        assert_eq!(answer.status, 302);
        assert_eq!(answer.header("location"), Some(expected));
    }
    assert!(!world.origin.requests_for("/folder/x").is_empty());
}

#[test]
fn an_origin_that_is_not_there_is_said() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nobody.local_addr().expect("it is bound");
    drop(nobody);
    let world = world_before(address, |_| {});
    let answer = world.get("/x", &[]);
    assert_eq!(answer.status, 502);
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(said.contains("the origin cannot be reached"), "{said}");
    assert!(!said.contains(&address.to_string()), "{said}");
}

#[test]
fn an_origin_that_says_nothing_is_not_waited_for() {
    let world = World::with(|options| options.origin_timeout = Duration::from_millis(200));
    world.origin.put("/x", &noise(1, 100_000), "\"first\"");
    world.origin.change(|request, reply| match &*request.path {
        "/x" => reply.ending(Ending::Stall(50_000)),
        _ => reply,
    });
    // It begins, and is cut off.
    assert!(world.try_get("/x", &[]).is_none());
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("it is bound");
    let world = world_before(address, |options| {
        options.origin_timeout = Duration::from_millis(200);
    });
    assert_eq!(world.get("/x?y", &[]).status, 504);
}

#[test]
fn an_answer_that_breaks_off_breaks_off() {
    let world = World::new();
    world.origin.put("/x", &noise(1, 100_000), "\"first\"");
    world.origin.change(|request, reply| match &*request.path {
        "/x" => reply.ending(Ending::Cut(50_000)),
        "/y" => Reply::new(200, noise(1, 5000))
            .chunked()
            .ending(Ending::Cut(2000)),
        _ => reply,
    });
    assert!(world.try_get("/x", &[]).is_none());
    assert!(world.try_get("/y", &[]).is_none());
}

#[test]
fn what_leads_in_a_circle_ends() {
    let world = World::new();
    let via = ["1.1 refrain-czip"; 8].join(", ");
    assert_eq!(world.get("/x", &[("Via", &via)]).status, 508);
}

#[test]
fn an_origin_that_is_none_is_refused() {
    for origin in ["", "example.org", "ftp://example.org/", "http://h/?q"] {
        let options = ProxyOptions::new(origin, "cache".into());
        assert!(Proxy::new(&options).is_err(), "{origin}");
    }
}
