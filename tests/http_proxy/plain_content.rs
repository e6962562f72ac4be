//! Origins are asked for plain content, and their answers pass as they are.

use std::{io::Write, net::SocketAddr, path::Path};

use crate::{
    common::{
        content::letters,
        eventually,
        http::{HandMadeClient, HandMadeOrigin, field},
        nginx::Nginx,
        programs::{are_installed, run_ok},
        server::serve,
    },
    proxy, proxy_with,
};

/// What curl gets, directly or through a proxy: the head, and the body undecoded.
fn fetch(proxy: Option<SocketAddr>, url: &str, fields: &[&str]) -> (String, Vec<u8>) {
    let proxy = proxy.map_or(String::new(), |proxy| proxy.to_string());
    let mut arguments = vec!["--disable", "--silent", "--show-error", "--include"];
    arguments.extend(["--proxy", &proxy, url]);
    for field in fields {
        arguments.extend(["--header", field]);
    }
    let answer = run_ok("curl", Path::new("/"), &arguments);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.expect("a head") + 4);
    (
        String::from_utf8(head.to_vec()).expect("text"),
        body.to_vec(),
    )
}

/// nginx that compresses whatever it may, for clients behind proxies too.
fn compressing() -> Nginx {
    Nginx::start_with_lines(
        "gzip on; gzip_types *; gzip_min_length 0; gzip_proxied any; gzip_vary on;",
    )
}

const GZIP: &str = "Accept-Encoding: gzip, deflate, br";

fn is_coded(head: &str) -> bool {
    field(head, "Content-Encoding") == Some("gzip")
}

#[test]
fn nginx_is_asked_for_plain_content() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let nginx = compressing();
    let page = nginx.serve_letters("page.html", 50, 50_000);
    let url = nginx.url("page.html");
    let (_pair, proxy) = proxy();
    let (direct, coded) = fetch(None, &url, &[GZIP]);
    assert!(is_coded(&direct) && coded != page, "{direct}");
    let (plain, _) = fetch(None, &url, &[]);

    let (head, body) = fetch(Some(proxy), &url, &[GZIP]);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(body == page, "{head}");
    // All that says which representation this is comes from the origin.
    assert_eq!(field(&head, "Content-Encoding"), None);
    assert_eq!(field(&head, "Vary"), Some("Accept-Encoding"));
    let tag = field(&head, "ETag").expect("nginx sends one");
    assert_eq!(field(&plain, "ETag"), Some(tag));
    assert_ne!(field(&direct, "ETag"), Some(tag));

    for forbidding in [
        &["Cache-Control: no-transform", GZIP][..],
        &["Accept-Encoding: gzip, identity;q=0"],
        &["Accept-Encoding: gzip, *;q=0"],
    ] {
        let (head, body) = fetch(Some(proxy), &url, forbidding);
        assert!(is_coded(&head) && body == coded, "{forbidding:?}: {head}");
    }
}

#[test]
fn what_clients_accept_can_be_kept() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let nginx = compressing();
    nginx.serve_letters("page.html", 51, 50_000);
    let url = nginx.url("page.html");
    let (_, coded) = fetch(None, &url, &[GZIP]);
    let excluded = format!("{}:{}", nginx.http.ip(), nginx.http.port());
    for options in [
        ["--accept-encoding", "keep"],
        // Nothing compresses what these carry.
        ["--exclude", &excluded],
    ] {
        let (_pair, proxy) = proxy_with(&options);
        let (head, body) = fetch(Some(proxy), &url, &[GZIP]);
        assert!(is_coded(&head) && body == coded, "{options:?}: {head}");
    }
}

#[test]
fn a_reload_applies_to_the_next_request() {
    let origin = HandMadeOrigin::keeping(|_, _, request| {
        let asked = field(request, "Accept-Encoding").unwrap_or("nothing");
        let length = asked.len();
        Some(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{asked}"
        ))
    });
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("near.toml");
    let write = |value: &str| {
        std::fs::write(&file, format!("accept_encoding = \"{value}\"\n")).expect("a file");
    };
    write("keep");
    let (pair, proxy) = proxy_with(&["--config", &file.display().to_string()]);
    let request = format!(
        "GET http://{}/ HTTP/1.1\r\nAccept-Encoding: br\r\n\r\n",
        origin.address
    );
    let mut client = HandMadeClient::say(proxy, &request);
    assert_eq!(client.answer().1, "br");
    write("identity");
    pair.near.signal("HUP");
    pair.near.wait_for_log(&["reloaded"]);
    client.say_more(&request);
    assert_eq!(client.answer().1, "identity");
    let log = pair.near.log();
    assert!(!log.contains("after a restart"), "{log}");
}

/// An origin with two representations of a page, each with a strong validator, as Apache names them.
fn two_representations() -> HandMadeOrigin {
    HandMadeOrigin::keeping(|_, _, request| {
        let is_coded = field(request, "Accept-Encoding").is_some_and(|it| it.contains("gzip"));
        let (tag, body, coding) = match is_coded {
            true => ("\"x-gzip\"", "GZIPPED", "Content-Encoding: gzip\r\n"),
            false => ("\"x\"", "plain content", ""),
        };
        let fields = format!("{coding}ETag: {tag}\r\nVary: Accept-Encoding\r\n");
        if field(request, "If-None-Match") == Some(tag) {
            return Some(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"));
        }
        let is_part = field(request, "Range") == Some("bytes=3-")
            && field(request, "If-Range").is_none_or(|held| held == tag);
        let (status, body) = match is_part {
            true => ("206 Partial Content", &body[3..]),
            false => ("200 OK", body),
        };
        let length = body.len();
        Some(format!(
            "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        ))
    })
}

/// A client may hold some or all of the compressed representation, from another way to the origin.
#[test]
fn validators_keep_representations_apart() {
    let origin = two_representations();
    let (_pair, proxy) = proxy();
    let mut client = HandMadeClient::say(proxy, "");
    let mut ask = |fields: &str| {
        let url = format!("http://{}/", origin.address);
        client.say_more(&format!(
            "GET {url} HTTP/1.1\r\nAccept-Encoding: gzip\r\n{fields}\r\n"
        ));
        let (head, body) = client.answer();
        assert_eq!(field(&head, "Vary"), Some("Accept-Encoding"));
        let tag = field(&head, "ETag").expect("one each").to_owned();
        (head[9..12].to_owned(), tag, body)
    };
    let plain = |status: &str, body: &str| (status.to_owned(), "\"x\"".to_owned(), body.to_owned());
    assert_eq!(ask(""), plain("200", "plain content"));
    // What it holds is of the plain one.
    assert_eq!(ask("If-None-Match: \"x\"\r\n"), plain("304", ""));
    let range = "Range: bytes=3-\r\n";
    assert_eq!(ask(range), plain("206", "in content"));
    let same = format!("{range}If-Range: \"x\"\r\n");
    assert_eq!(ask(&same), plain("206", "in content"));
    // What it holds is of the compressed one: it gets all of the plain one.
    let whole = plain("200", "plain content");
    assert_eq!(ask("If-None-Match: \"x-gzip\"\r\n"), whole);
    assert_eq!(ask(&format!("{range}If-Range: \"x-gzip\"\r\n")), whole);
    // With no-transform it stays with that.
    let coded = |status: &str, body: &str| {
        let tag = "\"x-gzip\"".to_owned();
        (status.to_owned(), tag, body.to_owned())
    };
    let asking = format!("Cache-Control: no-transform\r\n{range}If-Range: \"x-gzip\"\r\n");
    assert_eq!(ask(&asking), coded("206", "PPED"));
}

#[test]
fn a_download_of_nginx_resumes() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let nginx = compressing();
    let page = nginx.serve_letters("page.html", 52, 50_000);
    let url = nginx.url("page.html");
    let (_pair, proxy) = proxy();
    let tag = |accepted: &str| {
        let (head, _) = fetch(None, &url, &[accepted]);
        field(&head, "ETag").expect("nginx sends one").to_owned()
    };
    let resume = |held: Option<String>| {
        let held = held.map(|tag| format!("If-Range: {tag}"));
        let range = ["Range: bytes=20000-", GZIP];
        let fields: Vec<&str> = range.into_iter().chain(held.as_deref()).collect();
        let (head, body) = fetch(Some(proxy), &url, &fields);
        assert!(!is_coded(&head), "{head}");
        (head[9..12].to_owned(), body)
    };
    let rest = ("206".to_owned(), page[20_000..].to_vec());
    assert!(resume(None) == rest);
    assert!(resume(Some(tag("Accept-Encoding: identity"))) == rest);
    assert!(resume(Some(tag(GZIP))) == ("200".to_owned(), page));
}

#[test]
fn what_an_origin_compresses_all_the_same_passes() {
    if !are_installed(&["curl"]) {
        return;
    }
    // Not even gzip: nothing looks into it.
    let coded = b"\x1f\x8b\x08\0\xff\xfe".repeat(1000);
    let origin = serve({
        let coded = coded.clone();
        move |stream| {
            let mut client = HandMadeClient::over(stream);
            let request = client.head();
            assert_eq!(field(&request, "Accept-Encoding"), Some("identity"));
            let mut stream = client.into_stream();
            let length = coded.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n"
            )?;
            stream.write_all(&coded)
        }
    });
    let (_pair, proxy) = proxy();
    let (head, body) = fetch(Some(proxy), &format!("http://{origin}/"), &[GZIP]);
    assert!(is_coded(&head) && body == coded, "{head}");
}

/// What it is for.
#[test]
fn the_next_version_of_a_page_costs_what_changed() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    const BYTES: usize = 400_000;
    let nginx = compressing();
    let url = nginx.url("page.html");
    let costs = ["identity", "keep"].map(|asked| {
        let (pair, proxy) = proxy_with(&["--accept-encoding", asked]);
        let mut before = 0;
        for version in 1..=2 {
            let change = letters(version, 500);
            let page = [change, letters(53, BYTES)].concat();
            nginx.serve("page.html", &page);
            before = pair.near.link_bytes();
            let (head, body) = fetch(Some(proxy), &url, &[GZIP]);
            assert_eq!(is_coded(&head), asked == "keep");
            assert!(is_coded(&head) || body == page);
        }
        eventually("the second one is counted", || {
            let cost = pair.near.link_bytes() - before;
            (cost > 0).then_some(cost)
        })
    });
    let [identity, keep] = costs;
    assert!(identity < 20_000 && keep > 150_000, "{costs:?}");
}
