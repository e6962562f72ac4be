//! What clients cannot do, and how the server ends.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use refrain_czip::serve::ServeOptions;
use refrain_czip_format::header::Profile;

use super::{
    client::Client,
    world::{World, letters, options},
};

#[test]
fn a_head_that_is_too_long_is_refused() {
    let world = World::new();
    fs::write(world.path("plain"), b"0123456789").expect("a new file");
    for bytes in [17_000, 1_000_000] {
        let mut client = world.client();
        let long = "a".repeat(bytes);
        let head = format!("GET /plain HTTP/1.1\r\nHost: here\r\nX: {long}\r\n\r\n");
        // The server may answer, and close, before it has read all.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            client.send(head.as_bytes());
        }));
        if let Some(answer) = client.head() {
            assert_eq!(answer.status, 431, "{bytes}");
        }
    }
    assert_eq!(world.get("/plain", &[]).status, 200);
}

#[test]
fn what_is_no_http_is_refused() {
    let world = World::new();
    for bytes in [
        &b"\r\n\r\n\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET /a HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ] {
        let mut client = world.client();
        client.send(bytes);
        client.send(b"\r\n\r\n");
        if let Some(answer) = client.head() {
            assert_eq!(answer.status, 400, "{bytes:?}");
        }
    }
    assert_eq!(world.get("/", &[]).status, 200);
}

#[test]
fn a_head_that_does_not_end_is_refused_before_it_takes_much() {
    let world = World::with(ServeOptions {
        head_timeout: Duration::from_secs(3600),
        ..ServeOptions::default()
    });
    let mut client = world.client();
    let begun = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(20_000));
    client.send(begun.as_bytes());
    assert_eq!(client.head().expect("an answer").status, 431);
}

#[test]
fn a_request_that_drips_in_is_cut_off() {
    let world = World::with(ServeOptions {
        head_timeout: Duration::from_millis(300),
        ..ServeOptions::default()
    });
    let mut client = TcpStream::connect(world.address).expect("it listens");
    client
        .write_all(b"GET / HTTP/1.1\r\nX: ")
        .expect("it reads");
    // A byte now and then is no head.
    let end = Instant::now() + Duration::from_secs(60);
    while client.write_all(b"a").is_ok() {
        assert!(Instant::now() < end, "it waits on");
        thread::sleep(Duration::from_millis(20));
    }
    // Nor is a connection that is kept for later, and not used.
    fs::write(world.path("plain"), b"0123456789").expect("a new file");
    let mut client = world.client();
    client.ask("GET", "/plain", &[], b"");
    assert_eq!(client.answer(false).expect("an answer").status, 200);
    assert!(client.head().is_none_or(|answer| answer.status == 408));
}

#[test]
fn who_takes_nothing_is_cut_off() {
    let world = World::with(ServeOptions {
        stall_timeout: Duration::from_millis(300),
        ..ServeOptions::default()
    });
    fs::write(world.path("plain"), vec![7; 64 << 20]).expect("a new file");
    let mut client = world.client();
    client.ask("GET", "/plain", &[], b"");
    let end = Instant::now() + Duration::from_secs(30);
    while world.status().connections_now == 0 {
        assert!(Instant::now() < end, "it never connected");
        thread::sleep(Duration::from_millis(10));
    }
    while world.status().connections_now > 0 {
        assert!(Instant::now() < end, "it is connected still");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(client.answer(false).is_none(), "the rest was not sent");
}

#[test]
fn little_is_read_ahead_of_a_client_that_waits() {
    let world = World::new();
    let content = letters(1, 40_000_000);
    world.archive("a.czip", &content, &options(Profile::Shared));
    fs::write(world.path("plain"), &content).expect("a new file");
    for path in ["/a", "/a.czip", "/plain"] {
        let before = world.status().sent_bytes;
        let mut client = world.client();
        client.ask("GET", path, &[], b"");
        // It goes on till nobody takes more: the kernels at both ends have a few megabytes.
        let mut sent = before;
        loop {
            thread::sleep(Duration::from_millis(500));
            let now = world.status().sent_bytes;
            if now == sent && now > before {
                break;
            }
            sent = now;
        }
        let ahead = sent - before;
        assert!(ahead < content.len() as u64 / 2, "{path}: {ahead}");
        assert!(client.answer(false).expect("a whole answer").body.len() > 25_000_000);
    }
}

#[test]
fn requests_may_follow_each_other_without_waiting() {
    let world = World::new();
    let content = letters(1, 300_000);
    world.archive("a.czip", &content, &options(Profile::Shared));
    let mut client = world.client();
    for first in 0..50 {
        let range = format!("bytes={first}000-{first}099");
        client.ask("GET", "/a", &[("Range", &range)], b"");
    }
    for first in 0..50_usize {
        let answer = client.answer(false).expect("an answer");
        assert!(
            answer.body == content[first * 1000..first * 1000 + 100],
            "{first}"
        );
    }
}

#[test]
fn what_is_being_sent_is_sent_to_its_end_when_the_server_stops() {
    let mut world = World::new();
    let content = letters(1, 20_000_000);
    world.archive("a.czip", &content, &options(Profile::Shared));
    let mut client = world.client();
    client.ask("GET", "/a", &[], b"");
    let mut idle = world.client();
    idle.ask("GET", "/a", &[("Range", "bytes=0-9")], b"");
    assert_eq!(idle.answer(false).expect("an answer").status, 206);
    let head = client.head().expect("an answer");
    assert_eq!(head.status, 200);
    let mut begun = world.client();
    begun.send(b"GET /a HT");
    world.stop();
    // Who was not answered ends at once, while others still are.
    assert!(idle.head().is_none() && begun.head().is_none());
    let mut received = Vec::new();
    while received.len() < content.len() {
        let piece = client.read_some(1 << 20);
        assert!(!piece.is_empty(), "cut off");
        received.extend_from_slice(&piece);
    }
    assert!(received == content);
    let address = world.address;
    world.wait();
    let refused = std::panic::catch_unwind(|| Client::new(address));
    assert!(refused.is_err(), "nobody listens");
}
