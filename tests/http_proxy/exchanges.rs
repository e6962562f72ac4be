//! Requests and answers of all kinds and framings.

use std::{
    fs,
    io::{Read, Write},
    net::Shutdown,
};

use crate::{
    common::{
        addresses::free_address,
        content::{letters, noise},
        digest,
        http::{HandMadeClient, HandMadeOrigin, field},
        listeners::AllListeners,
        nginx::{Nginx, assert_kept},
        programs::are_installed,
        websocket,
    },
    proxy,
};

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

/// What a near end sends for further requests with this field, over one connection and over new ones.
fn bytes_of_repeated(field: &str) -> u64 {
    const REQUESTS: usize = 10;
    let (pair, proxy) = proxy();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let origin = HandMadeOrigin::keeping(move |_, _, _| Some(answer.to_owned()));
    let request = format!(
        "GET http://{}/ HTTP/1.1\r\n{field}\r\nAccept: */*\r\n\r\n",
        origin.address
    );
    let mut before = 0;
    for new_connections in [false, true] {
        let mut client = HandMadeClient::say(proxy, &request);
        assert_eq!(client.answer().1, "ok");
        if !new_connections {
            before = pair.near.peer().sent.link_bytes;
        }
        for _ in 0..REQUESTS {
            match new_connections {
                true => client = HandMadeClient::say(proxy, &request),
                false => client.say_more(&request),
            }
            assert_eq!(client.answer().1, "ok");
        }
    }
    let sent = pair.near.peer().sent.link_bytes - before;
    for heard in origin.heard(1) {
        assert!(heard.contains(&format!("\r\n{field}\r\n")), "{heard}");
    }
    sent / (2 * REQUESTS as u64)
}

/// Not even by the client's own request before: an attacker's page sends requests with the user's cookies.
#[test]
fn fields_with_secrets_are_not_shortened_by_what_was_sent_before() {
    let secret = letters(1, 2_000)
        .iter()
        .map(|byte| char::from(*byte | 1))
        .collect::<String>();
    let secret = secret.replace([' ', '\n', '\r'], "x");
    for field in [
        "Cookie: session=",
        "authorization: Bearer ",
        "X-Auth-Token: ",
    ] {
        let sent = bytes_of_repeated(&format!("{field}{secret}"));
        assert!(sent > 2_000, "{field}: {sent}");
    }
    let sent = bytes_of_repeated(&format!("X-Page: {secret}"));
    assert!(sent < 1_000, "{sent}");
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
