//! Proxies by the environment: which variable counts, and that none is passed over.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    process::Output,
    sync::{Arc, Mutex},
    thread,
};

use crate::common::command::command;

const VARIABLES: [&str; 6] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
];

/// What listens, refuses all that it is asked for, and keeps that. It ends with the test's process.
struct Recorder {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorder = Self {
            address: listener.local_addr().expect("it is bound"),
            asked: asked.clone(),
        };
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (mut connection, asked) = (connection.expect("a connection"), asked.clone());
                thread::spawn(move || {
                    let mut reader = BufReader::new(connection.try_clone().expect("a handle"));
                    let first = reader
                        .fill_buf()
                        .ok()
                        .and_then(|bytes| bytes.first().copied());
                    match first {
                        // TLS: an alert, so that nothing is tried again.
                        Some(0x16) => {
                            asked.lock().expect("no panic").push("TLS".to_owned());
                            let _ = connection.write_all(b"\x15\x03\x03\x00\x02\x02\x28");
                            let _ = reader.read(&mut [0; 4096]);
                        }
                        Some(_) => {
                            let mut line = String::new();
                            let _ = reader.read_line(&mut line);
                            asked.lock().expect("no panic").push(line);
                            let mut rest = String::new();
                            while rest != "\r\n" {
                                rest.clear();
                                if reader.read_line(&mut rest).is_ok_and(|read| read == 0) {
                                    return;
                                }
                            }
                            let answer = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n";
                            let _ = connection.write_all(answer);
                        }
                        None => {}
                    }
                });
            }
        });
        recorder
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("no panic"))
    }
}

/// Runs `refrain czip list URL` with these variables only.
fn list(url: &str, variables: &[(&str, &str)]) -> Output {
    let mut list = command(&["czip", "list", url, "--timeout", "5s"]);
    for name in VARIABLES
        .iter()
        .chain(&["no_proxy", "NO_PROXY", "REQUEST_METHOD"])
    {
        list.env_remove(name);
    }
    list.envs(variables.iter().copied())
        .output()
        .expect("the program runs")
}

#[test]
fn each_scheme_goes_through_its_own_proxy() {
    let (origin, proxy) = (Recorder::start(), Recorder::start());
    let address = format!("http://{}", proxy.address);
    for variable in VARIABLES {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{}/x", origin.address);
            let output = list(&url, &[(variable, &address)]);
            let error = String::from_utf8_lossy(&output.stderr);
            if error.contains("no trusted certificates") {
                println!("skipped: there are no certificates for https");
                continue;
            }
            let is_its_own = match variable {
                // Who runs a CGI script lets its clients set this one.
                "HTTP_PROXY" => false,
                "http_proxy" => scheme == "http",
                "https_proxy" | "HTTPS_PROXY" => scheme == "https",
                _ => true,
            };
            let (through, direct) = (proxy.asked(), origin.asked());
            let (used, unused) = match is_its_own {
                true => (&through, &direct),
                false => (&direct, &through),
            };
            assert!(unused.is_empty(), "{variable} {scheme}: {unused:?}");
            let [used] = &used[..] else {
                panic!("{variable} {scheme}: {used:?} {error}");
            };
            let expected = match (is_its_own, scheme) {
                (true, "http") => format!("GET {url} HTTP/1.1\r\n"),
                (true, _) => format!("CONNECT {} HTTP/1.1\r\n", origin.address),
                (false, "http") => "GET /x HTTP/1.1\r\n".to_owned(),
                (false, _) => "TLS".to_owned(),
            };
            assert_eq!(*used, expected, "{variable} {scheme}");
            assert_eq!(output.status.code(), Some(1));
        }
    }
}

#[test]
fn a_proxy_that_is_not_understood_ends_it_with_2_and_nothing_is_asked_for_directly() {
    let origin = Recorder::start();
    let url = format!("http://{}/x", origin.address);
    for value in [
        "socks://127.0.0.1:9",
        "htp://127.0.0.1:9",
        "http://",
        "127.0.0.1:p",
        "http://me:secret@a:b",
    ] {
        for variable in ["http_proxy", "all_proxy", "ALL_PROXY"] {
            let output = list(&url, &[(variable, value)]);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{variable}={value}: {error}");
            assert!(
                error.contains(variable) && !error.contains("secret"),
                "{error}"
            );
        }
    }
    let get = |more: &[&str]| {
        let mut get = command(&["czip", "get", &url, "-o", "/nonexistent/out"]);
        let get = get.args(more).env("http_proxy", "socks://a:1");
        get.output().expect("the program runs")
    };
    // The folder is missing, and would be reported if anything came of it.
    let _ = get(&[]);
    assert_eq!(origin.asked(), [""; 0]);
    // What is excepted, or of another scheme, needs none.
    for variables in [
        &[("http_proxy", "socks://a:1"), ("no_proxy", "127.0.0.1")][..],
        &[("http_proxy", "socks://a:1"), ("NO_PROXY", "127.0.0.0/8")],
        &[("https_proxy", "socks://a:1")],
    ] {
        list(&url, variables);
        assert_eq!(origin.asked().len(), 1, "{variables:?}");
    }
}

#[test]
fn a_proxy_that_is_not_there_is_named_and_not_gone_past() {
    let origin = Recorder::start();
    let url = format!("http://{}/x", origin.address);
    // Nobody listens there.
    for proxy in [
        "http://127.0.0.1:9",
        "https://127.0.0.1:9",
        "socks4://127.0.0.1:9",
        "socks5h://127.0.0.1:9",
    ] {
        let output = list(&url, &[("http_proxy", proxy)]);
        let error = String::from_utf8_lossy(&output.stderr);
        let without_certificates = error.contains("no trusted certificates");
        assert_eq!(output.status.code(), Some(1), "{proxy}: {error}");
        assert!(error.contains(proxy) || without_certificates, "{error}");
        assert!(origin.asked().is_empty(), "{proxy}");
    }
}
