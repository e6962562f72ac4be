//! Answers that come early, late, too large, in part or not at all.

use std::{
    fs,
    io::{Read, Write},
    net::Shutdown,
    sync::{Arc, Barrier},
    time::Duration,
};

use crate::{
    common::{
        content::{letters, noise},
        http::{HandMadeClient, HandMadeOrigin, field},
        listeners::AllListeners,
        programs::are_installed,
        read,
        server::serve,
    },
    get, proxy,
};

#[test]
fn an_answer_may_come_before_the_whole_request() {
    let early = HandMadeOrigin::answering(
        "HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nmuch",
    );
    let (_pair, proxy) = proxy();
    let head = format!(
        "POST http://{}/ HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n",
        early.address
    );
    let mut client = HandMadeClient::say(proxy, &head);
    let (head, body) = client.answer();
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    assert_eq!(field(&head, "Connection"), Some("close"));
    assert_eq!(body, "much");
    assert_eq!(client.rest(), "");
    // It may still send what it had promised, and the origin gets it.
    client.say_more(&"x".repeat(1_000_000));
    drop(client);
    let heard = early.heard(1).remove(0);
    assert!(heard.ends_with(&"x".repeat(1_000_000)), "{}", heard.len());
}

/// An origin that refuses an upload and does not read it resets the connection with its close. Its
/// answer arrives all the same.
#[test]
fn an_upload_that_is_not_read_is_answered() {
    if !are_installed(&["curl"]) {
        return;
    }
    let origin = serve(|mut stream| {
        stream.read_exact(&mut [0; 1000])?;
        stream.write_all(
            b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\nmuch",
        )
    });
    let world = AllListeners::to(origin);
    fs::write(world.scratch.path().join("body"), noise(5, 10_000_000)).expect("a new file");
    let proxy = world.proxy();
    let socks = format!("socks5h://{}", world.socks);
    for _ in 0..4 {
        for way in [&proxy, &socks] {
            let url = format!("http://{origin}/");
            let upload = ["--header", "Expect:", "--data-binary", "@body", &url];
            let body = world.curl(&[&["--proxy", way], &upload[..]].concat());
            assert_eq!(String::from_utf8_lossy(&body), "much", "{way}");
        }
    }
}

#[test]
fn answers_that_end_too_early_are_seen_to() {
    let (_pair, proxy) = proxy();
    for framing in [
        "Content-Length: 8\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n8\r\n",
    ] {
        let origin = HandMadeOrigin::conversing(move |stream, _| {
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{framing}body").as_bytes())?;
            stream.shutdown(Shutdown::Write)
        });
        let answer = HandMadeClient::say(proxy, &get(&origin).repeat(2)).rest();
        assert!(answer.ends_with("body"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    }
    // Only the end of the connection would show the end of this one.
    let is_read = Arc::new(Barrier::new(2));
    let resetting = serve({
        let is_read = Arc::clone(&is_read);
        move |mut stream| {
            stream.read_exact(&mut [0; 16])?;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nbody")?;
            is_read.wait();
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))
        }
    });
    let request = format!("GET http://{resetting}/ HTTP/1.1\r\n\r\n");
    let mut client = HandMadeClient::say(proxy, &request);
    assert!(client.head().contains("\r\nConnection: close\r\n"));
    assert_eq!(client.body(4), "body");
    is_read.wait();
    let end = read(client.into_stream(), &mut [0]);
    let error = end.expect_err("no end as if all were well");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_client_without_an_answer_gets_the_real_reason() {
    let (mut pair, proxy) = proxy();
    let is_read = Arc::new(Barrier::new(2));
    let resetting = serve({
        let is_read = Arc::clone(&is_read);
        move |mut stream| {
            stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n")?;
            is_read.wait();
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))
        }
    });
    let silent = HandMadeOrigin::answering("HTTP/1.1 102 Processing\r\n\r\n");
    for (origin, reason) in [
        (
            resetting,
            "the origin reset the connection before it answered",
        ),
        (
            silent.address,
            "the link to the far end broke before the origin answered",
        ),
    ] {
        let request = format!("GET http://{origin}/ HTTP/1.1\r\n\r\n");
        let mut client = HandMadeClient::say(proxy, &request);
        assert!(client.head().starts_with("HTTP/1.1 102 "));
        match origin == resetting {
            true => drop(is_read.wait()),
            false => pair.far.kill(),
        }
        let (head, body) = client.answer();
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        assert!(body.contains(reason), "{body}");
        pair.near.wait_for_log(&[&origin.to_string(), reason]);
    }
}

/// The client of a complete answer gets it, however late, though the origin's connection breaks
/// meanwhile; a part of it would be taken for the beginning of the next.
#[test]
fn a_slow_client_gets_whole_answers_of_origins_that_reset() {
    const COUNT: usize = 400;
    let letters = String::from_utf8(letters(40, 60_000)).expect("letters");
    let origin = serve({
        let letters = letters.clone();
        move |stream| {
            let mut client = HandMadeClient::over(stream);
            while client.comes_within(Duration::from_millis(300)) && !client.head().is_empty() {
                let length = letters.len();
                client.say_more(&format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{letters}"
                ));
            }
            socket2::SockRef::from(&client.into_stream()).set_linger(Some(Duration::ZERO))
        }
    });
    let (_pair, proxy) = proxy();
    let request = format!("GET http://{origin}/ HTTP/1.1\r\n\r\n");
    let mut client = HandMadeClient::say(proxy, &request.repeat(COUNT));
    // All buffers are full by then, and the origin has waited in vain.
    std::thread::sleep(Duration::from_secs(2));
    for _ in 0..COUNT {
        let (_, body) = client.answer();
        assert!(body == letters, "{} bytes, others", body.len());
    }
}

#[test]
fn as_many_fields_pass_as_fit_into_a_head() {
    let fields: String = (0..2000)
        .map(|number| format!("X-{number}: 1\r\n"))
        .collect();
    let large = fields.repeat(4);
    let answer = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n");
    let (_pair, proxy) = proxy();
    let origin = HandMadeOrigin::answering(answer(&fields));
    let request = format!("GET http://{}/ HTTP/1.1\r\n{fields}\r\n", origin.address);
    let mut client = HandMadeClient::say(proxy, &request);
    assert!(client.head().contains(&fields));
    drop(client);
    assert!(origin.heard(1)[0].contains(&fields));

    let origin = HandMadeOrigin::answering(answer(&large));
    let told = HandMadeClient::say(proxy, &get(&origin)).rest();
    assert!(
        told.starts_with("HTTP/1.1 502 ") && told.contains("64 KiB"),
        "{told}"
    );
    let request = format!("GET http://{}/ HTTP/1.1\r\n{large}\r\n", origin.address);
    let told = HandMadeClient::say(proxy, &request).rest();
    assert!(
        told.starts_with("HTTP/1.1 431 ") && told.contains("64 KiB"),
        "{told}"
    );
}
