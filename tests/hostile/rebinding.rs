//! A web page whose name was made to resolve to the admin listener reads nothing there.

use std::net::SocketAddr;

use crate::common::{http::HandMadeClient, site::Site};

/// The answer to a request that is written by hand.
fn ask(admin: SocketAddr, request: &str) -> String {
    HandMadeClient::say(admin, request).rest()
}

#[test]
fn only_names_of_the_gateway_are_answered() {
    let site = Site::new();
    let far = site.far(&["--admin-host", "gw.example.org"]);
    let with_host = |path: &str, host: &str| {
        ask(
            far.admin,
            &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        )
    };
    let port = far.admin.port();
    for host in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        "10.1.2.3".to_owned(),
        format!("gw.example.org:{port}"),
    ] {
        let answer = with_host("/status", &host);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
    for path in [
        "/", "/healthz", "/readyz", "/status", "/metrics", "/nothing",
    ] {
        for host in [
            format!("rebound.example:{port}"),
            "localhost.rebound.example".to_owned(),
        ] {
            let answer = with_host(path, &host);
            assert!(
                answer.starts_with("HTTP/1.1 421 "),
                "{host}{path}: {answer}"
            );
            assert!(answer.contains("--admin-host"), "{answer}");
            assert!(!answer.contains(&site.near_key), "{answer}");
        }
    }
    // The target of the request counts as well.
    let absolute =
        format!("GET http://rebound.example:{port}/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(ask(far.admin, &absolute).starts_with("HTTP/1.1 421 "));
    for hosts in ["", "Host: localhost\r\nHost: rebound.example\r\n"] {
        let answer = ask(far.admin, &format!("GET /status HTTP/1.1\r\n{hosts}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[test]
fn no_answer_may_be_read_by_pages_of_other_origins() {
    let site = Site::new();
    let far = site.far(&[]);
    for method in ["GET", "OPTIONS"] {
        let request = format!(
            "{method} /status HTTP/1.1\r\nHost: localhost\r\nOrigin: http://other.example\r\n\
             Access-Control-Request-Method: GET\r\n\r\n"
        );
        let answer = ask(far.admin, &request).to_ascii_lowercase();
        assert!(!answer.contains("access-control-allow"), "{answer}");
    }
}

#[test]
fn the_first_page_names_the_others() {
    let site = Site::new();
    let far = site.far(&[]);
    let index = ask(far.admin, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for page in ["/healthz", "/readyz", "/status", "/metrics"] {
        assert!(index.contains(page), "{index}");
        let found = ask(
            far.admin,
            &format!("GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        );
        assert!(!found.starts_with("HTTP/1.1 404"), "{found}");
    }
}
