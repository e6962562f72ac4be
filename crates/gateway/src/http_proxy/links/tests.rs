use std::sync::Arc;

use proptest::prelude::*;

use crate::http_proxy::{
    AcceptEncoding, Addressing, Answer, Body, Exchange, Progress, Purpose, Service, parse_head,
};

const SITE: &str = "https://a.example,b.example";

const PIP: &str = "User-Agent: pip/25.0\r\n";
const NPM: &str = "User-Agent: npm/10.9 node/v22 linux x64\r\n";
const YARN: &str = "User-Agent: yarn/1.22 npm/? node/v22\r\n";
const CARGO: &str = "User-Agent: cargo/1.89.0 (abc)\r\n";
const LFS: &str = "Accept: application/vnd.git-lfs+json\r\nContent-Length: 0\r\n";

const PAGE: &str = "text/html; charset=utf-8";
const PYTHON_JSON: &str = "application/vnd.pypi.simple.v1+json";
const NPM_JSON: &str = "application/vnd.npm.install-v1+json";
const LFS_JSON: &str = "application/vnd.git-lfs+json";

fn exchange(site: &str, line: &str, fields: &str) -> Exchange {
    let service: Service = site.parse().expect("a site");
    let head = format!("{line} HTTP/1.1\r\nHost: near:5000\r\n{fields}\r\n");
    let addressing = Addressing::Service(Arc::new(service));
    let request = parse_head(head.as_bytes(), &addressing, |_| AcceptEncoding::Keep);
    match request.expect("well-formed").expect("whole").0.purpose {
        Purpose::Exchange(exchange) => *exchange,
        Purpose::Tunnel => panic!("a tunnel"),
    }
}

/// The head and the content that a client gets of an answer which comes in pieces of this length.
fn answered_in(exchange: &Exchange, answer: &[u8], piece: usize) -> (String, Vec<u8>) {
    let mut state = Answer::new(exchange.terms).served_from(exchange.served.clone());
    let mut got = Vec::new();
    for piece in answer.chunks(piece) {
        let mut piece = piece.to_vec();
        state.pass(&mut piece, true);
        got.append(&mut piece);
    }
    if state.progress() != Progress::Complete {
        state.finish(&mut got);
    }
    assert_eq!(state.progress(), Progress::Complete);
    let end = crate::http_proxy::end_of_head(&got, 0).expect("a head");
    let mut body = got.split_off(end);
    let head = String::from_utf8(got).expect("text");
    if head.contains("Transfer-Encoding: chunked") {
        let mut framed = Body::CHUNKED;
        let taken = framed.take_content(&mut body);
        assert!(framed.has_ended(), "{taken}");
    }
    (head, body)
}

fn answer(media_type: &str, fields: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// What a client gets of a body.
fn changed(site: &str, line: &str, fields: &str, media_type: &str, body: &str) -> String {
    let exchange = exchange(site, line, fields);
    let (_, changed) = answered_in(&exchange, answer(media_type, "", body).as_bytes(), 1 << 20);
    String::from_utf8(changed).expect("text")
}

#[test]
fn links_of_each_index_lead_to_the_listener_and_all_else_stays() {
    for (line, fields, media_type, body, expected) in [
        (
            "GET /simple/x/",
            PIP,
            PAGE,
            "<a HREF = 'https://b.example/p/x.whl#sha256=ab' data-href=\"https://c.example/\">https://b.example/</a>\
             <a href=\"../y\"><a href=\"/z\"><a href=\"//b.example:443/w\"><a href=\"http://b.example/\">",
            "<a HREF = '/_refrain/b.example/p/x.whl#sha256=ab' data-href=\"https://c.example/\">https://b.example/</a>\
             <a href=\"../y\"><a href=\"/z\"><a href=\"/_refrain/b.example/w\"><a href=\"http://b.example/\">",
        ),
        (
            "GET /simple/x/",
            PIP,
            PAGE,
            // A base, and URLs that clients could read otherwise.
            "<base href=\"https://a.example/simple/x/\"><a href=\"https://b.example/../x\">\
             <a href=\"https://b.example/%2E./x\"><a href=\"https://b.example/\\x\">\
             <a href=\"https://a.example/&#47;c.example\"><a href=\"https://b.example/x?a&amp;b\">",
            "<base href=\"http://near:5000/simple/x/\"><a href=\"https://b.example/../x\">\
             <a href=\"https://b.example/%2E./x\"><a href=\"https://b.example/\\x\">\
             <a href=\"https://a.example/&#47;c.example\"><a href=\"/_refrain/b.example/x?a&amp;b\">",
        ),
        (
            "GET /root/pypi/+simple/x/",
            PIP,
            PYTHON_JSON,
            r#"{"files":[{"url": "https:\/\/b.example\/x", "hashes":{}, "name":"https://b.example/x"}]}"#,
            r#"{"files":[{"url": "/_refrain/b.example/x", "hashes":{}, "name":"https://b.example/x"}]}"#,
        ),
        (
            "GET /_refrain/b.example/simple/x/",
            PIP,
            PAGE,
            r#"<a href="/x"><a href="x"><a href="https://a.example/y">"#,
            r#"<a href="/_refrain/b.example/x"><a href="x"><a href="/y">"#,
        ),
        (
            "GET /@s%2fx",
            NPM,
            NPM_JSON,
            r#"{"dist":{"tarball":"https://a.example/x/-/x-1.tgz"},"url":"https://a.example/"}"#,
            r#"{"dist":{"tarball":"http://near:5000/x/-/x-1.tgz"},"url":"https://a.example/"}"#,
        ),
        (
            "GET /x",
            "Accept: application/vnd.npm.install-v1+json; q=1.0, */*\r\n",
            "application/json",
            r#"{"tarball" : "https://b.example/x.tgz"} {"text":"\"tarball\":\"https://b.example/\""}"#,
            r#"{"tarball" : "http://near:5000/_refrain/b.example/x.tgz"} {"text":"\"tarball\":\"https://b.example/\""}"#,
        ),
        (
            "GET /index/config.json",
            CARGO,
            "application/octet-stream",
            r#"{"dl":"https://b.example/{crate}","api":"https://b.example"} {"api":"https://a.example"}"#,
            r#"{"dl":"http://near:5000/_refrain/b.example/{crate}","api":"https://b.example"} {"api":"http://near:5000/"}"#,
        ),
        (
            "POST /g/r.git/info/lfs/objects/batch",
            LFS,
            LFS_JSON,
            r#"{"href":"https://a.example/o"}{"href":"https://b.example/o"}{"href":"https://b.example/o?sig=1\u0026x"}"#,
            r#"{"href":"http://near:5000/o"}{"href":"https://b.example/o"}{"href":"http://near:5000/_refrain/b.example/o?sig=1\u0026x"}"#,
        ),
    ] {
        let got = changed(SITE, line, fields, media_type, body);
        assert_eq!(got, expected, "{line}");
    }
}

#[test]
fn what_may_be_signed_named_by_a_digest_or_read_by_a_client_that_maps_it_stays() {
    let body = r#"{"tarball":"https://a.example/x"} <a href="https://a.example/x">"#;
    let digest = "ab".repeat(32);
    for (line, fields, media_type, more) in [
        ("GET /x", PIP, "application/json", ""),
        ("GET /page", PIP, PAGE, ""),
        ("POST /simple/", "Content-Length: 0\r\n", PAGE, ""),
        (
            &format!("GET /v2/x/blobs/sha256:{digest}"),
            NPM,
            "application/json",
            "",
        ),
        (
            "GET /x",
            NPM,
            "application/vnd.oci.image.manifest.v1+json",
            "",
        ),
        (
            "GET /x",
            NPM,
            "application/json",
            "Docker-Content-Digest: sha256:00\r\n",
        ),
        (
            "GET /x",
            NPM,
            NPM_JSON,
            "Cache-Control: public, no-transform\r\n",
        ),
        ("GET /x", NPM, NPM_JSON, "Content-Encoding: gzip\r\n"),
        ("GET /config.json", PIP, "application/json", ""),
    ] {
        let exchange = exchange(SITE, line, fields);
        let answer = answer(media_type, &format!("{more}ETag: \"x\"\r\n"), body);
        let (head, got) = answered_in(&exchange, answer.as_bytes(), 1 << 20);
        assert_eq!(String::from_utf8_lossy(&got), body, "{line} {more}");
        assert!(head.contains("ETag: \"x\"\r\n"), "{head}");
        assert!(head.contains("Content-Length: "), "{head}");
    }
    let public = r#"{"tarball":"https://registry.npmjs.org/x"}"#;
    let site = "https://registry.npmjs.org";
    assert_eq!(changed(site, "GET /x", NPM, NPM_JSON, public), public);
    let of_yarn = changed(site, "GET /x", YARN, NPM_JSON, public);
    assert_eq!(of_yarn, r#"{"tarball":"http://near:5000/x"}"#);
    // In TLS, the listener has the site's name.
    let own = Service::by_its_own_name("https://a.example".parse().expect("a site"));
    let addressing = Addressing::Service(Arc::new(own.expect("a site")));
    let head = format!("GET /x HTTP/1.1\r\nHost: a.example\r\n{NPM}\r\n");
    let request = parse_head(head.as_bytes(), &addressing, |_| AcceptEncoding::Keep);
    let Purpose::Exchange(exchange) = request.expect("sound").expect("whole").0.purpose else {
        panic!("a tunnel");
    };
    let (_, got) = answered_in(&exchange, answer(NPM_JSON, "", body).as_bytes(), 1 << 20);
    assert_eq!(String::from_utf8_lossy(&got), body);
}

#[test]
fn an_index_is_asked_for_as_a_whole_and_in_plain_form() {
    let parts = "Range: bytes=5-\r\nIf-Range: \"x\"\r\nAccept-Encoding: gzip\r\n";
    let head = |line: &str| {
        let exchange = exchange(SITE, line, parts);
        String::from_utf8(exchange.head.bytes).expect("text")
    };
    let index = head("GET /simple/x/");
    for part in ["Range", "gzip"] {
        assert!(!index.contains(part), "{index}");
    }
    assert!(index.contains("Accept-Encoding: identity\r\n"), "{index}");
    let file = head("GET /files/x");
    for part in ["\r\nRange: bytes=5-\r\n", "If-Range: \"x\"", "gzip"] {
        assert!(file.contains(part), "{file}");
    }
}

#[test]
fn a_changed_body_has_other_validators_which_the_origin_gets_back_as_they_were() {
    let page = |tag: &str| {
        let fields = format!(
            "ETag: {tag}\r\nDigest: sha-256=x\r\nContent-MD5: x\r\nAccept-Ranges: bytes\r\nVary: Accept\r\n"
        );
        answer(PAGE, &fields, "<a href='https://b.example/'>")
    };
    for tag in ["\"x\"", "W/\"x\"", "\"\"", "\"a;sdeadbeef\""] {
        let asked = exchange(SITE, "GET /simple/x/", "");
        let (head, _) = answered_in(&asked, page(tag).as_bytes(), 1 << 20);
        for gone in ["Digest", "Content-MD5", "Accept-Ranges", "Content-Length"] {
            assert!(!head.contains(gone), "{head}");
        }
        assert!(head.contains("Vary: Accept\r\n") && head.contains("Vary: Host\r\n"));
        let marked = head.lines().find_map(|line| line.strip_prefix("ETag: "));
        let marked = marked.expect("a validator").to_owned();
        assert!(marked.starts_with("W/\"") && marked != tag, "{marked}");

        // Another one is of a body with other links, and the date may be.
        let date = "If-Modified-Since: Sun, 29 Nov 2026 00:00:00 GMT";
        let fields = format!("If-None-Match: \"y\", {marked}\r\n{date}\r\n");
        let again = exchange(SITE, "GET /simple/x/", &fields);
        let sent = String::from_utf8(again.head.bytes.clone()).expect("text");
        let expected = format!("If-None-Match: {tag}\r\n");
        assert!(
            sent.contains(&expected) && !sent.contains("Modified"),
            "{sent}"
        );
        let unchanged = format!("HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\n\r\n");
        let (head, _) = answered_in(&again, unchanged.as_bytes(), 1 << 20);
        assert!(head.contains(&format!("ETag: {marked}\r\n")), "{head}");

        // With other hosts, the body is another one.
        let other = exchange("https://a.example", "GET /simple/x/", &fields);
        let sent = String::from_utf8(other.head.bytes).expect("text");
        assert!(!sent.contains("If-None-Match"), "{sent}");
    }
    // What is no index is asked for as it was.
    let fields = "If-None-Match: \"a,b\" ,  W/\"x\"\r\n";
    let asked = exchange(SITE, "GET /file", fields);
    let sent = String::from_utf8(asked.head.bytes).expect("text");
    assert!(sent.contains(fields), "{sent}");
}

#[test]
fn the_answer_to_head_has_the_fields_of_a_changed_body() {
    let asked = exchange(SITE, "HEAD /simple/x/", "");
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {PAGE}\r\nETag: \"x\"\r\nContent-Length: 9\r\n\r\n"
    );
    let (head, body) = answered_in(&asked, answer.as_bytes(), 1 << 20);
    assert!(body.is_empty());
    assert!(
        !head.contains("Content-Length") && !head.contains("chunked"),
        "{head}"
    );
    assert!(head.contains("ETag: W/\"x;s"), "{head}");
}

#[test]
fn bodies_of_each_framing_are_changed() {
    let body = r#"<a href="https://b.example/x">"#;
    let expected = r#"<a href="/_refrain/b.example/x">"#;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {PAGE}\r\n");
    let (first, second) = body.split_at(14);
    let chunks = format!(
        "{head}Trailer: Digest\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:x};e\r\n{second}\r\n0\r\nDigest: x\r\n\r\n",
        first.len(),
        second.len()
    );
    for answer in [answer(PAGE, "", body), chunks, format!("{head}\r\n{body}")] {
        for minor in [0, 1] {
            let mut asked = exchange(SITE, "GET /simple/x/", "");
            asked.terms.client_minor = minor;
            let (head, got) = answered_in(&asked, answer.as_bytes(), 3);
            assert_eq!(String::from_utf8_lossy(&got), expected, "{answer}");
            assert_eq!(
                head.matches("chunked").count(),
                usize::from(minor),
                "{head}"
            );
            assert!(!head.contains("Trailer"), "{head}");
        }
    }
    let empty = answer(PAGE, "", "");
    let asked = exchange(SITE, "GET /simple/x/", "");
    let (head, _) = answered_in(&asked, empty.as_bytes(), 1 << 20);
    assert!(head.contains("Content-Length: 0"), "{head}");
}

#[test]
fn a_body_that_breaks_off_is_seen_to() {
    let asked = exchange(SITE, "GET /simple/x/", "");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {PAGE}\r\nContent-Length: 99\r\n\r\nx");
    let mut state = Answer::new(asked.terms).served_from(asked.served);
    state.pass(&mut head.into_bytes(), true);
    state.finish(&mut Vec::new());
    assert_eq!(state.progress(), Progress::Truncated { is_visible: true });
}

#[test]
fn little_is_held_of_what_may_be_a_link() {
    let long = format!("<a href=\"{}", "x".repeat(1 << 20));
    let asked = exchange(SITE, "GET /simple/x/", "");
    let mut state = Answer::new(asked.terms).served_from(asked.served.clone());
    let mut passed = answer(PAGE, "", &long).into_bytes();
    let came = passed.len();
    passed.pop();
    state.pass(&mut passed, true);
    assert!(
        passed.len() + (8 << 10) > came,
        "{} of {came}",
        passed.len()
    );
    for spaces in [64, 65, 1000] {
        let body = format!("<a href{}='https://b.example/'>", " ".repeat(spaces));
        let got = changed(SITE, "GET /simple/x/", "", PAGE, &body);
        assert_eq!(got != body, spaces == 64, "{spaces}");
    }
}

#[test]
fn a_host_that_is_none_gets_into_no_body() {
    let service: Service = SITE.parse().expect("a site");
    let addressing = Addressing::Service(Arc::new(service));
    let body = r#"{"tarball":"https://a.example/x"}"#;
    for host in ["", "x\"y", "x/y", "u@x", "x y", "x:0", "<x>", "x\\"] {
        let head = format!("GET /x HTTP/1.1\r\nHost: {host}\r\n{NPM}\r\n");
        let request = parse_head(head.as_bytes(), &addressing, |_| AcceptEncoding::Keep);
        let Purpose::Exchange(asked) = request.expect("sound").expect("whole").0.purpose else {
            panic!("a tunnel");
        };
        let (_, got) = answered_in(&asked, answer(NPM_JSON, "", body).as_bytes(), 1 << 20);
        assert_eq!(String::from_utf8_lossy(&got), body, "{host}");
    }
}

#[test]
fn links_in_fields_lead_to_the_listener() {
    let asked = exchange(SITE, "GET /x", "");
    let fields = "Link: <https://a.example/x?page=2>; rel=\"next\", </y>; rel=prev, <https://c.example/>\r\n";
    let (head, _) = answered_in(&asked, answer("text/plain", fields, "").as_bytes(), 1 << 20);
    let expected =
        "Link: <http://near:5000/x?page=2>; rel=\"next\", </y>; rel=prev, <https://c.example/>\r\n";
    assert!(head.contains(expected), "{head}");
}

fn pieces_of_pages() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<a href=\"https://b.example/x\">".to_owned()),
        Just("\"tarball\":\"https://a.example/x\"".to_owned()),
        Just("href".to_owned()),
        Just("\"tarball\"".to_owned()),
        Just("=".to_owned()),
        Just(":".to_owned()),
        Just("\"".to_owned()),
        Just("\\".to_owned()),
        "[ -~]{0,6}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn pieces_make_no_difference(body in pieces_of_pages(), piece in 1..40_usize, is_npm: bool) {
        let (line, fields, media_type) = match is_npm {
            true => ("GET /x", NPM, NPM_JSON),
            false => ("GET /simple/x/", PIP, PAGE),
        };
        let asked = exchange(SITE, line, fields);
        let answer = answer(media_type, "", &body);
        let whole = answered_in(&asked, answer.as_bytes(), 1 << 20);
        prop_assert_eq!(answered_in(&asked, answer.as_bytes(), piece), whole);
    }

    #[test]
    fn without_a_host_of_the_service_nothing_changes(body in pieces_of_pages()) {
        let site = "https://d.example,e.example";
        prop_assert_eq!(changed(site, "GET /simple/x/", "", PAGE, &body), body.clone());
        prop_assert_eq!(changed(site, "GET /x", NPM, NPM_JSON, &body), body);
    }
}
