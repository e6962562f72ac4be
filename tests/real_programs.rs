//! nginx, curl, a WebSocket and a browser, through a pair of gateways, unmodified.

mod common;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
};

use common::{
    PATIENCE,
    addresses::has_ipv6,
    content::{letters, noise},
    digest, eventually,
    listeners::AllListeners,
    nginx::Nginx,
    programs::{are_installed, find, run_ok},
    websocket,
};

/// A page of text, as its origin serves it.
fn page(nginx: &Nginx, name: &str, seed: u64, bytes: usize) -> Vec<u8> {
    let content = letters(seed, bytes);
    nginx.serve(name, &content);
    content
}

#[test]
fn curl_through_every_listener() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let nginx = Nginx::start();
    let page = page(&nginx, "page", 1, 300_000);
    let world = AllListeners::to(nginx.http);
    let (socks, proxy) = (world.socks.to_string(), world.proxy());
    let port = nginx.http.port();
    let direct = format!("http://127.0.0.1:{port}/page");
    let named = format!("http://localhost:{port}/page");
    let forward = format!("http://{}/page", world.forward);
    let ipv6 = format!("http://[::1]:{port}/page");
    let mut ways: Vec<Vec<&str>> = vec![
        vec![&forward],
        vec!["--socks5", &socks, &direct],
        vec!["--socks5-hostname", &socks, &named],
        vec!["--proxy", &proxy, &direct],
        vec!["--proxy", &proxy, &named],
        vec!["--proxy", &proxy, "--proxytunnel", &direct],
        vec!["--proxy", &proxy, "--proxytunnel", &named],
    ];
    if has_ipv6() {
        ways.push(vec!["--globoff", "--socks5", &socks, &ipv6]);
        ways.push(vec!["--globoff", "--proxy", &proxy, &ipv6]);
        ways.push(vec!["--globoff", "--proxy", &proxy, "--proxytunnel", &ipv6]);
    }
    let before = world.pair.near.link_bytes();
    world.curl(&ways[0]);
    let first = world.pair.near.link_bytes() - before;
    assert!(
        first > 100_000,
        "letters at random do not fit into {first} bytes"
    );
    for way in &ways {
        let before = world.pair.near.link_bytes();
        let received = world.curl(way);
        let again = world.pair.near.link_bytes() - before;
        assert_eq!(digest(&received), digest(&page), "curl {way:?}");
        // The page itself, the client's and the lane's words.
        assert!(
            again < first / 20,
            "curl {way:?}: {again} bytes, {first} at first"
        );
    }
}

#[test]
fn requests_of_all_kinds_through_the_http_proxy() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let nginx = Nginx::start();
    let first = page(&nginx, "first", 2, 50_000);
    let second = page(&nginx, "second", 3, 50_000);
    let world = AllListeners::to(nginx.http);
    let url = |path: &str| format!("http://{}/{path}", nginx.http);
    let proxy = world.proxy();
    let curl = |arguments: &[&str]| world.curl(&[&["--proxy", &proxy], arguments].concat());

    let head = String::from_utf8(curl(&["--head", &url("first")])).expect("text");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("50000"),
        "{head}"
    );
    let missing = curl(&[
        "--write-out",
        "%{http_code}",
        "--output",
        "lost",
        &url("lost"),
    ]);
    assert_eq!(missing, b"404");
    let both = curl(&[&url("first"), &url("second")]);
    assert_eq!(digest(&both), digest(&[first, second].concat()));
    let part = curl(&["--range", "100-199", &url("second")]);
    assert_eq!(part, letters(3, 50_000)[100..200]);

    let body = noise(4, 2_000_000);
    fs::write(world.scratch.path().join("body"), &body).expect("a new file");
    let post = url("post");
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
fn uploads_through_the_other_listeners() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let nginx = Nginx::start();
    let world = AllListeners::to(nginx.http);
    let body = letters(5, 1_000_000);
    fs::write(world.scratch.path().join("body"), &body).expect("a new file");
    let upload = ["--data-binary", "@body"];
    let forward = format!("http://{}/post", world.forward);
    assert_kept(&world.curl(&[&upload[..], &[&forward]].concat()), &body);
    let (socks, direct) = (
        world.socks.to_string(),
        format!("http://{}/post", nginx.http),
    );
    let command = [&upload[..], &["--socks5-hostname", &socks, &direct]].concat();
    assert_kept(&world.curl(&command), &body);
}

/// `answer` is the path of the file in which nginx kept a body.
#[track_caller]
fn assert_kept(answer: &[u8], body: &[u8]) {
    let path = String::from_utf8_lossy(answer);
    let kept = fs::read(Path::new(&*path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(digest(&kept), digest(body));
}

#[test]
fn https_is_sent_as_it_is_and_stays_out_of_the_cache() {
    if !are_installed(&["nginx", "curl", "openssl"]) {
        return;
    }
    let nginx = Nginx::start_with_tls();
    let page = page(&nginx, "page", 6, 3_000_000);
    let https = nginx.https.expect("it was asked for");
    let world = AllListeners::to(https);
    let (proxy, url) = (world.proxy(), format!("https://{https}/page"));
    // Slow enough to be looked at.
    let slow = ["--insecure", "--limit-rate", "1M", "--proxy", &proxy, &url];
    let (class, received) = std::thread::scope(|threads| {
        let download = threads.spawn(|| world.curl(&slow));
        let class = eventually("the flow is classified", || {
            let flow = world.pair.far.status().flows.pop()?;
            (flow.class != "unknown").then_some(flow.class)
        });
        (class, download.join().expect("no panic"))
    });
    assert_eq!(class, "excluded");
    assert_eq!(digest(&received), digest(&page));
    assert_eq!(
        digest(&world.curl(&["--insecure", "--proxy", &proxy, &url])),
        digest(&page)
    );
    let sent = world.pair.far.peer().sent;
    assert_eq!(sent.matching_saved_bytes, 0, "{sent:?}");
    assert_eq!(sent.cache_filled_bytes, 0, "{sent:?}");
    assert_eq!(sent.bypassed_blocks, sent.blocks, "{sent:?}");
}

#[test]
fn a_websocket_echoes() {
    let server = websocket::start_echo();
    let world = AllListeners::to(server);
    let connect = |address| {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream
    };
    websocket::talk(connect(world.forward), server);
    let mut tunnel = connect(world.http);
    let request = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    tunnel.write_all(request.as_bytes()).expect("a connection");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tunnel.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    assert!(
        answer.starts_with(b"HTTP/1.1 200 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    websocket::talk(tunnel, server);
}

#[test]
fn a_browser_shows_a_page() {
    // Too large for `lab/setup`: used where somebody has one.
    if find("chromium").is_none() || !are_installed(&["nginx"]) {
        eprintln!("skipped: chromium is not installed");
        return;
    }
    let nginx = Nginx::start();
    let script = "document.title = 'shown';";
    let text = "<html><script src='script.js'></script><p id='body'>a page</p></html>";
    nginx.serve("page.html", text.as_bytes());
    nginx.serve("script.js", script.as_bytes());
    let world = AllListeners::to(nginx.http);
    let url = format!("http://{}/page.html", nginx.http);
    for proxy in [world.proxy(), format!("socks5://{}", world.socks)] {
        let opened = world.pair.near.peer().flows_opened;
        let shown = run_ok(
            "chromium",
            world.scratch.path(),
            &[
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--user-data-dir=profile",
                "--proxy-bypass-list=<-loopback>",
                &format!("--proxy-server={proxy}"),
                "--dump-dom",
                &url,
            ],
        );
        let shown = String::from_utf8_lossy(&shown);
        assert!(
            shown.contains("<title>shown</title>") && shown.contains("a page"),
            "{shown}"
        );
        let opened = world.pair.near.peer().flows_opened - opened;
        assert!(opened > 0, "the browser went around {proxy}");
    }
}
