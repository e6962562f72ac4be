//! The HTTP proxy with requests of all kinds: curl and nginx, and clients and origins made by
//! hand where those are too polite.

mod common;

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr},
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use common::{
    addresses::free_address,
    content::{letters, noise},
    digest,
    http::{HandMadeClient, HandMadeOrigin, field},
    listeners::AllListeners,
    nginx::{Nginx, assert_kept},
    programs::are_installed,
    server::serve,
    site::Pair,
    websocket,
};

/// A pair with an HTTP proxy, and where that listens.
fn proxy() -> (Pair, SocketAddr) {
    let listen = free_address();
    let pair = Pair::start(&[], &["--http-proxy", &listen.to_string()]);
    (pair, listen)
}

#[test]
fn requests_of_all_kinds_through_the_http_proxy() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let nginx = Nginx::start();
    let first = nginx.serve_letters("first", 2, 50_000);
    let second = nginx.serve_letters("second", 3, 50_000);
    let world = AllListeners::to(nginx.http);
    let proxy = world.proxy();
    let curl = |arguments: &[&str]| world.curl(&[&["--proxy", &proxy], arguments].concat());

    let head = String::from_utf8(curl(&["--head", &nginx.url("first")])).expect("text");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("50000"),
        "{head}"
    );
    let missing = curl(&[
        "--write-out",
        "%{http_code}",
        "--output",
        "lost",
        &nginx.url("lost"),
    ]);
    assert_eq!(missing, b"404");
    let both = curl(&[&nginx.url("first"), &nginx.url("second")]);
    assert_eq!(digest(&both), digest(&[&first[..], &second].concat()));
    let part = curl(&["--range", "100-199", &nginx.url("second")]);
    assert_eq!(part, second[100..200]);

    let body = noise(4, 15_000_000);
    fs::write(world.scratch.path().join("body"), &body).expect("a new file");
    let post = nginx.url("post");
    let uploads: [&[&str]; 3] = [
        &["--header", "Expect:"],
        &[
            "--header",
            "Expect:",
            "--header",
            "Transfer-Encoding: chunked",
        ],
        &["--header", "Expect: 100-continue"],
    ];
    for upload in uploads {
        let command = [upload, &["--data-binary", "@body", &post]].concat();
        assert_kept(&curl(&command), &body);
    }
    let told = [&["--proxy", &proxy, "--verbose"], uploads[2]].concat();
    let told = world.curl_output(&[&told[..], &["--data-binary", "@body", &post]].concat());
    let told = String::from_utf8_lossy(&told.stderr);
    assert!(told.contains("HTTP/1.1 100 Continue"), "{told}");
}

#[test]
fn a_websocket_echoes() {
    let server = websocket::start_echo();
    let world = AllListeners::to(server);
    let forwarded = HandMadeClient::say(world.forward, "").into_stream();
    websocket::talk(forwarded, server);
    let connect = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    let mut tunnel = HandMadeClient::say(world.http, &connect);
    let head = tunnel.head();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    websocket::talk(tunnel.into_stream(), server);
    websocket::talk_through(world.http, server);
}

#[test]
fn what_comes_with_the_switch_of_protocols_is_the_new_ones() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
         Upgrade: WebSocket\r\n\r\n";
    let origin = HandMadeOrigin::answering(format!("{switch}greeting"));
    let (_pair, proxy) = proxy();
    let request = format!(
        "GET http://{}/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly",
        origin.address
    );
    let mut client = HandMadeClient::say(proxy, &request);
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    assert_eq!(client.body(8), "greeting");
    client.say_more("late");
    drop(client);
    let heard = origin.heard(1).remove(0);
    assert!(
        heard.contains("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"),
        "{heard}"
    );
    assert!(heard.ends_with("\r\n\r\nearlylate"), "{heard}");
}

/// Origins that do not close are not taken for the proxy: the next request on the connection
/// may be for another, and hold a secret.
#[test]
fn an_origin_hears_nothing_of_other_requests() {
    let origin = HandMadeOrigin::answering(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=60\r\n\
         Content-Length: 4\r\n\r\nbody",
    );
    let (_pair, proxy) = proxy();
    let chunked = "Transfer-Encoding: chunked\r\n\r\n4;x=y\r\nbody\r\n0\r\nX-Sum: 7\r\n\r\n";
    let counted = "Content-Length: 4\r\n\r\nbody";
    let refused = "Connection: upgrade\r\nUpgrade: other\r\n\r\n";
    for (index, rest) in ["\r\n", counted, chunked, refused].into_iter().enumerate() {
        let first = format!("POST http://{}/ HTTP/1.1\r\n{rest}", origin.address);
        let second = "GET http://other.invalid/secret HTTP/1.1\r\nCookie: secret\r\n\r\n";
        let mut client = HandMadeClient::say(proxy, &format!("{first}{second}"));
        let head = client.head();
        assert!(
            !head.contains("Keep-Alive") && !head.contains("keep-alive"),
            "{head}"
        );
        assert_eq!(client.body(4), "body");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        let heard = origin.heard(index + 1).remove(index);
        assert!(!heard.contains("secret"), "{heard}");
        assert!(!rest.contains("body") || heard.contains("body"), "{heard}");
    }
}

#[test]
fn one_curl_fetches_from_many_hosts() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let origins = [(); 3].map(|()| Nginx::start());
    let world = AllListeners::to(origins[0].http);
    let mut urls = Vec::new();
    let mut expected = Vec::new();
    for (seed, origin) in (20..).zip(&origins) {
        expected.push(origin.serve_letters("page", seed, 10_000));
        urls.push(origin.url("page"));
    }
    let proxy = world.proxy();
    let by_turns = urls.iter().cycle().take(12).map(String::as_str);
    let command: Vec<&str> = ["--proxy", &proxy].into_iter().chain(by_turns).collect();
    assert_eq!(
        digest(&world.curl(&command)),
        digest(&expected.concat().repeat(4))
    );
}

#[test]
fn answers_without_a_body_end_at_their_head() {
    if !are_installed(&["curl"]) {
        return;
    }
    let world = AllListeners::to(free_address());
    let proxy = world.proxy();
    for (status, method) in [
        ("204 No Content", "GET"),
        ("304 Not Modified", "GET"),
        ("200 OK", "HEAD"),
    ] {
        // The length is that of the body which would have come with a 200 to a GET.
        let length = if status.starts_with("204") {
            ""
        } else {
            "Content-Length: 4\r\n"
        };
        let answer = format!("HTTP/1.1 {status}\r\nETag: \"x\"\r\n{length}\r\n");
        let origin = HandMadeOrigin::answering(answer);
        let url = format!("http://{}/", origin.address);
        let ask = if method == "HEAD" { "--head" } else { "--get" };
        let shown = world.curl(&["--include", "--proxy", &proxy, ask, &url]);
        let shown = String::from_utf8(shown).expect("text");
        let expected =
            format!("HTTP/1.1 {status}\r\nETag: \"x\"\r\nVia: 1.1 refrain\r\n{length}\r\n");
        assert_eq!(shown, expected);
        assert!(origin.heard(1)[0].starts_with(method));
    }
}

#[test]
fn bodies_come_as_origins_frame_them() {
    if !are_installed(&["curl"]) {
        return;
    }
    let world = AllListeners::to(free_address());
    let proxy = world.proxy();
    for framed in [
        "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nthe body",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         3\r\nthe\r\n5;x=y\r\n body\r\n0\r\nX-Sum: 7\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\nthe body",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
         HTTP/1.1 200 OK\nContent-Length: 8\n\nthe body",
    ] {
        let origin = HandMadeOrigin::answering(framed);
        let url = format!("http://{}/", origin.address);
        let body = world.curl(&["--proxy", &proxy, &url]);
        assert_eq!(String::from_utf8_lossy(&body), "the body", "{framed}");
        if framed.contains("X-Sum") {
            let raw = world.curl(&["--raw", "--proxy", &proxy, &url]);
            assert!(
                raw.ends_with(b"\r\n0\r\nX-Sum: 7\r\n\r\n"),
                "trailers are lost"
            );
        }
    }
    // This one ends where the connection does.
    let origin = HandMadeOrigin::conversing(|stream, _| {
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nthe body")?;
        stream.shutdown(Shutdown::Write)
    });
    let url = format!("http://{}/", origin.address);
    assert_eq!(world.curl(&["--proxy", &proxy, &url]), b"the body");
}

#[test]
fn a_client_that_waits_to_be_told_to_go_on_is_told_so_or_no() {
    if !are_installed(&["curl"]) {
        return;
    }
    let world = AllListeners::to(free_address());
    let (proxy, body) = (world.proxy(), letters(30, 10_000_000));
    fs::write(world.scratch.path().join("body"), &body).expect("a new file");
    let post = |origin: &HandMadeOrigin| {
        let wait = [
            "--header",
            "Expect: 100-continue",
            "--expect100-timeout",
            "30",
        ];
        let url = format!("http://{}/", origin.address);
        let upload = [
            "--include",
            "--proxy",
            &proxy,
            "--data-binary",
            "@body",
            &url,
        ];
        String::from_utf8(world.curl(&[&wait[..], &upload].concat())).expect("text")
    };

    let no = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
    let refusing = HandMadeOrigin::answering(no);
    let shown = post(&refusing);
    assert!(shown.starts_with("HTTP/1.1 413 "), "{shown}");
    let heard = refusing.heard(1).remove(0);
    assert!(
        heard.ends_with("\r\n\r\n"),
        "{} bytes were sent",
        heard.len()
    );

    let length = body.len();
    let taking = HandMadeOrigin::conversing(move |stream, _| {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        let mut received = vec![0; length];
        stream.read_exact(&mut received)?;
        let digest = digest(&received);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            digest.len()
        );
        stream.write_all((head + &digest).as_bytes())
    });
    let shown = post(&taking);
    assert!(shown.starts_with("HTTP/1.1 100 Continue\r\n"), "{shown}");
    assert!(shown.ends_with(&digest(&body)), "{shown}");
}

#[test]
fn a_chunked_upload_keeps_its_trailers() {
    let origin = HandMadeOrigin::answering("HTTP/1.1 204 No Content\r\n\r\n");
    let (_pair, proxy) = proxy();
    let head = format!(
        "POST http://{}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n",
        origin.address
    );
    let body = "4\r\nbody\r\n0\r\nX-Sum: 7\r\n\r\n";
    let mut client = HandMadeClient::say(proxy, &head);
    client.head();
    // Byte by byte, and longer than the origin waited with its answer.
    for byte in body.chars() {
        client.say_more(&byte.to_string());
    }
    drop(client);
    let heard = origin.heard(1).remove(0);
    assert!(heard.contains("\r\nTrailer: X-Sum\r\n"), "{heard}");
    assert!(heard.ends_with(&format!("\r\n\r\n{body}")), "{heard}");
}

#[test]
fn clients_of_http_1_0_are_served() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let nginx = Nginx::start();
    let page = nginx.serve_letters("page", 31, 20_000);
    let world = AllListeners::to(nginx.http);
    let proxy = world.proxy();
    let body = world.curl(&["--http1.0", "--proxy", &proxy, &nginx.url("page")]);
    assert_eq!(digest(&body), digest(&page));

    // As it was before there was a `Host`.
    let request = format!("GET {} HTTP/1.0\r\n\r\n", nginx.url("page"));
    let answer = HandMadeClient::say(world.http, &request).rest();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert_eq!(field(head, "Connection"), Some("close"));
    assert_eq!(digest(body.as_bytes()), digest(&page));
    // Chunks are unknown to it, and where they end as well.
    let origin = HandMadeOrigin::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nthe\r\n5\r\n body\r\n0\r\n\r\n",
    );
    let request = format!(
        "GET http://{}/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        origin.address
    );
    let answer = HandMadeClient::say(world.http, &request).rest();
    assert!(answer.ends_with("\r\n\r\nthe body"), "{answer}");
    // Where there is a length, it may keep its connection.
    let request = format!(
        "GET {} HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
        nginx.url("page")
    );
    let mut client = HandMadeClient::say(world.http, "");
    for _ in 0..2 {
        client.say_more(&request);
        let (head, body) = client.answer();
        assert_eq!(field(&head, "Connection"), Some("keep-alive"));
        assert_eq!(digest(body.as_bytes()), digest(&page));
    }
}

#[test]
fn what_is_no_http_is_answered_for_the_origin() {
    let (_pair, proxy) = proxy();
    for said in [
        "SSH-2.0-other\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ] {
        let origin = HandMadeOrigin::answering(said);
        let request = format!("GET http://{}/ HTTP/1.1\r\n\r\n", origin.address);
        let head = HandMadeClient::say(proxy, &request).head();
        assert!(head.starts_with("HTTP/1.1 502 "), "{said:?}: {head}");
        assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
        // An answer to HEAD has no body, ours included.
        let request = request.replace("GET", "HEAD");
        let answer = HandMadeClient::say(proxy, &request).rest();
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    }
    let silent = HandMadeOrigin::conversing(|stream, _| stream.shutdown(Shutdown::Write));
    let request = format!("GET http://{}/ HTTP/1.1\r\n\r\n", silent.address);
    let answer = HandMadeClient::say(proxy, &request).rest();
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("before it answered"),
        "{answer}"
    );
}

/// An origin whose answers name the connection and the request, and what they add to that.
fn naming(framing: &'static str) -> HandMadeOrigin {
    HandMadeOrigin::keeping(move |connection, number, _| {
        let body = format!("c{connection}r{number}");
        Some(format!(
            "HTTP/1.1 200 OK\r\n{framing}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    })
}

fn get(origin: &HandMadeOrigin) -> String {
    format!("GET http://{}/ HTTP/1.1\r\n\r\n", origin.address)
}

fn post(origin: &HandMadeOrigin) -> String {
    let address = origin.address;
    format!("POST http://{address}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody")
}

#[test]
fn a_client_keeps_its_connection_and_its_flow() {
    let origin = naming("");
    let (_pair, proxy) = proxy();
    let mut client = HandMadeClient::say(proxy, "");
    for number in 0..3 {
        for request in [get(&origin), post(&origin)] {
            client.say_more(&request);
            let (head, body) = client.answer();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert_eq!(field(&head, "Connection"), None);
            let expected = 2 * number + usize::from(request.starts_with("POST"));
            assert_eq!(body, format!("c0r{expected}"));
        }
    }
    // Others have flows of their own: an origin may know a client by its connection.
    let mut other = HandMadeClient::say(proxy, &get(&origin));
    assert_eq!(other.answer().1, "c1r0");
    client.say_more(&get(&origin));
    assert_eq!(client.answer().1, "c0r6");
    // One that wants no more is told that it is so, at both sides.
    let last = get(&origin).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    client.say_more(&last);
    let (head, body) = client.answer();
    assert_eq!(field(&head, "Connection"), Some("close"));
    assert_eq!(body, "c0r7");
    assert_eq!(client.rest(), "");
    let heard = origin.heard(1).remove(0);
    assert_eq!(heard.matches("HTTP/1.1\r\n").count(), 8);
    assert_eq!(heard.matches("\r\nConnection: close\r\n").count(), 1);
    drop(other);
    origin.heard(2);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (first, second) = (naming("X: first\r\n"), naming("X: second\r\n"));
    let (_pair, proxy) = proxy();
    let chunked = post(&first).replace(
        "Content-Length: 4\r\n\r\nbody",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    );
    let requests = [
        get(&first),
        post(&first),
        get(&second),
        get(&second),
        post(&first),
        get(&first),
    ];
    let expected = [
        ("first", "c0r0"),
        ("first", "c0r1"),
        ("second", "c0r0"),
        ("second", "c0r1"),
        ("first", "c1r0"),
        ("first", "c1r1"),
    ];
    let check = |client: &mut HandMadeClient| {
        for (name, body) in expected {
            let (head, answered) = client.answer();
            assert_eq!(field(&head, "X"), Some(name));
            assert_eq!(answered, body);
        }
    };
    let mut client = HandMadeClient::say(proxy, &requests.concat());
    check(&mut client);
    // Thousands of them, more than is read ahead.
    let many = get(&second).repeat(4000);
    let mut writer = client.into_stream();
    let reader = writer.try_clone().expect("a connection");
    let writing = std::thread::spawn(move || writer.write_all(many.as_bytes()));
    let mut client = HandMadeClient::over(reader);
    for number in 0..4000 {
        assert_eq!(client.answer().1, format!("c1r{number}"));
    }
    writing.join().expect("no panic").expect("a connection");
    // The end of a chunked body, and what follows it, in one piece. This origin does not know
    // chunks: it answers to the head, and takes the body for another request.
    let other = naming("");
    client.say_more(&(chunked.replace(&first.address.to_string(), &other.address.to_string())));
    client.say_more(&get(&second));
    assert_eq!(client.answer().1, "c0r0");
}

#[test]
fn a_client_that_half_closes_gets_its_answers() {
    let origin = HandMadeOrigin::answering("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
    let (_pair, proxy) = proxy();
    for count in [1, 3] {
        let mut client = HandMadeClient::say(proxy, &get(&origin).repeat(count));
        client.half_close();
        let answers = client.rest();
        assert_eq!(answers.matches("\r\n\r\nbody").count(), count, "{answers}");
    }
    // The origin hears that nothing else comes, and need not answer a client that has gone.
    let silent = HandMadeOrigin::conversing(|stream, said| {
        stream.read_to_string(said)?;
        stream.shutdown(Shutdown::Write)
    });
    let client = HandMadeClient::say(proxy, &get(&silent));
    drop(client);
    silent.heard(1);
}

#[test]
fn a_request_over_a_flow_that_has_ended_takes_a_new_one() {
    // It says nothing of it, and ends each connection after an answer.
    let origin = HandMadeOrigin::conversing(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody")?;
        stream.shutdown(Shutdown::Write)
    });
    let (_pair, proxy) = proxy();
    let mut client = HandMadeClient::say(proxy, &get(&origin));
    for index in 0..4 {
        assert_eq!(client.answer().1, "body");
        // The near end has noticed, and ended its side.
        let heard = origin.heard(index + 1).remove(index);
        assert!(!heard.contains("POST") || heard.ends_with("\r\n\r\nbody"));
        client.say_more(&post(&origin));
    }
}

/// An origin may end an idle connection while the next request is on its way.
#[test]
fn only_what_changes_nothing_is_sent_again_and_once() {
    let (_pair, proxy) = proxy();
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
    // Each connection answers one request only, the later ones none if `answers` are used up.
    let origin = |answers: usize| {
        HandMadeOrigin::keeping(move |connection, number, _| {
            (number == 0 && connection < answers).then(|| format!("{ok}c{connection}r{number}"))
        })
    };
    let retried = origin(2);
    let mut client = HandMadeClient::say(proxy, &get(&retried));
    assert_eq!(client.answer().1, "c0r0");
    client.say_more(&get(&retried));
    assert_eq!(client.answer().1, "c1r0");
    let heard = retried.heard(1).remove(0);
    assert_eq!(heard.matches("GET / ").count(), 2, "{heard}");
    drop(client);
    assert_eq!(retried.heard(2).remove(1).matches("GET / ").count(), 1);

    let in_vain = origin(1);
    let mut client = HandMadeClient::say(proxy, &get(&in_vain).repeat(2));
    assert_eq!(client.answer().1, "c0r0");
    let (head, body) = client.answer();
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(
        body.contains("closed the connection before it answered"),
        "{body}"
    );
    assert_eq!(client.rest(), "");
    let heard = in_vain.heard(2).concat();
    assert_eq!(heard.matches("GET / ").count(), 3, "{heard}");

    let posted = origin(2);
    let mut client = HandMadeClient::say(proxy, &(get(&posted) + &post(&posted)));
    assert_eq!(client.answer().1, "c0r0");
    let (head, _) = client.answer();
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert_eq!(client.rest(), "");
    let heard = posted.heard(1).concat();
    assert_eq!(heard.matches("POST / ").count(), 1, "{heard}");
}

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
fn a_tunnel_may_follow_other_requests() {
    let server = websocket::start_echo();
    let origin = naming("");
    let (_pair, proxy) = proxy();
    let connect = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    let mut client = HandMadeClient::say(proxy, &(get(&origin).repeat(2) + &connect));
    assert_eq!(client.answer().1, "c0r0");
    assert_eq!(client.answer().1, "c0r1");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    websocket::talk(client.into_stream(), server);
    // The flow that carried the others has ended.
    origin.heard(1);
}

#[test]
fn an_upgrade_may_follow_other_requests_and_be_refused() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
         Upgrade: websocket\r\n\r\n";
    let origin = HandMadeOrigin::keeping(move |_, number, _| match number {
        2 => Some(switch.to_owned()),
        _ => Some("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno".to_owned()),
    });
    let (_pair, proxy) = proxy();
    let upgrade = get(&origin).replace(
        "\r\n\r\n",
        "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    let mut client = HandMadeClient::say(proxy, &(get(&origin) + &upgrade));
    assert_eq!(client.answer().1, "no");
    assert_eq!(client.answer().1, "no");
    client.say_more(&upgrade);
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    client.say_more("\x01\x02");
    drop(client);
    let heard = origin.heard(1).remove(0);
    assert!(heard.ends_with("\x01\x02"), "{heard}");
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
    let end = client.into_stream().read(&mut [0]);
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
            "the link to the other side broke before the origin answered",
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

/// Neither end waits for clients that only keep their connections.
#[test]
fn kept_connections_end_when_a_gateway_stops() {
    let origin = naming("");
    let (mut pair, proxy) = proxy();
    let mut client = HandMadeClient::say(proxy, &get(&origin));
    assert_eq!(client.answer().1, "c0r0");
    pair.far.signal("TERM");
    assert_eq!(pair.far.wait_for_exit().code(), Some(0));
    assert!(
        !pair.far.log().contains("were still open"),
        "{}",
        pair.far.log()
    );
    client.say_more(&get(&origin));
    let (head, _) = client.answer();
    assert!(head.starts_with("HTTP/1.1 50"), "{head}");

    let (mut pair, proxy) = self::proxy();
    let mut client = HandMadeClient::say(proxy, &get(&origin));
    assert_eq!(client.answer().1, "c1r0");
    pair.near.signal("TERM");
    assert_eq!(pair.near.wait_for_exit().code(), Some(0));
    assert!(
        !pair.near.log().contains("were still open"),
        "{}",
        pair.near.log()
    );
}

#[test]
fn idle_clients_are_let_go() {
    let origin = naming("");
    let (_pair, proxy) = proxy();
    let mut client = HandMadeClient::say(proxy, &get(&origin));
    assert_eq!(client.answer().1, "c0r0");
    let began = Instant::now();
    let mut stream = client.into_stream();
    let patience = Duration::from_secs(90);
    stream.set_read_timeout(Some(patience)).expect("a limit");
    let end = stream.read(&mut [0]).expect("an end without a reset");
    assert_eq!(end, 0);
    assert!(began.elapsed() > Duration::from_secs(20));
    origin.heard(1);
}
