//! Files that are elsewhere.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use refrain_http_ranges::{Remote, RemoteError, RemoteOptions};

use crate::{
    assert_holds, fetched, options,
    server::{File, Reply, Server},
};

fn redirect(status: u16, to: &str) -> Reply {
    Reply::new(status, "elsewhere").with("Location", to)
}

#[test]
fn a_redirect_is_followed_once_and_remembered() {
    for status in [301, 302, 303, 307, 308] {
        let file = File::new(5_000);
        let served = file.clone();
        let server = Server::start(move |request| match &*request.path {
            "/file" => redirect(status, "/a/b"),
            "/a/b" => redirect(status, "c?d=e"),
            "/a/c?d=e" => served.reply(request),
            other => panic!("{other}"),
        });
        let remote = Remote::open(&server.url(), options()).unwrap();
        assert_holds(&fetched(&remote, &[100..200]).unwrap(), &[100..200], &file);
        let paths: Vec<String> = server.requests().into_iter().map(|r| r.path).collect();
        assert_eq!(paths, ["/file", "/a/b", "/a/c?d=e", "/a/c?d=e"]);
        assert!(remote.url().ends_with("/a/c?d=e"));
        assert_eq!(remote.counters().requests, 4);
    }
}

#[test]
fn secrets_stay_with_the_server_that_they_are_for() {
    let file = File::new(5_000);
    let other = Server::start(move |request| file.reply(request));
    let to = other.url();
    let server = Server::start(move |_| redirect(302, &to));
    let options = RemoteOptions {
        headers: vec![("X-Key".to_owned(), "secret".to_owned())],
        bearer: Some("token".to_owned()),
        user_agent: "tester".to_owned(),
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    fetched(&remote, &[100..200]).unwrap();
    let first = &server.requests()[0];
    assert_eq!(first.header("x-key"), Some("secret"));
    assert_eq!(first.header("authorization"), Some("Bearer token"));
    assert_eq!(first.header("user-agent"), Some("tester"));
    for request in other.requests() {
        assert_eq!(request.header("x-key"), None);
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.header("user-agent"), Some("tester"));
    }
    assert_eq!(other.requests().len(), 2);
}

#[test]
fn a_redirect_that_has_expired_is_asked_for_anew() {
    let file = File::new(5_000);
    let served = file.clone();
    let signatures = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |request| match &*request.path {
        "/file" => redirect(302, &format!("/signed/{}", signatures.fetch_add(1, SeqCst))),
        // The first is good for one request.
        "/signed/0" if request.number > 1 => Reply::new(403, "expired"),
        _ => served.reply(request),
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    assert_holds(&fetched(&remote, &[100..200]).unwrap(), &[100..200], &file);
    assert_eq!(remote.counters().retries, 1);
    assert!(remote.url().ends_with("/signed/1"));
}

#[test]
fn a_redirect_that_leads_nowhere_is_an_error() {
    let cases = [
        (redirect(302, "/file"), "too many redirects (limit 10)"),
        (redirect(302, "gopher://example.org/"), "gopher"),
        (Reply::new(302, ""), "it has no Location"),
    ];
    for (reply, text) in cases {
        let server = Server::start(move |_| reply.clone());
        let error = Remote::open(&server.url(), options()).unwrap_err();
        assert!(matches!(error, RemoteError::Redirect { .. }), "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(server.requests().len() <= 11);
    }
}

#[test]
fn a_header_that_cannot_be_sent_is_named_and_its_value_is_not() {
    for (name, value) in [("X Key", "secret"), ("X-Key", "secret\nX-Other: x")] {
        let options = RemoteOptions {
            headers: vec![(name.to_owned(), value.to_owned())],
            ..options()
        };
        let error = Remote::open("http://127.0.0.1:1/", options).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
