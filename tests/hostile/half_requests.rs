//! More half requests than a gateway has file descriptors, at each kind of listener.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use crate::{
    common::{
        PATIENCE,
        addresses::{forward, free_address},
        gateway::Gateway,
        http::{self, HandMadeClient},
        origin,
        site::Site,
    },
    half_requests,
};

const VISITORS: usize = 1100;
const FILES: u32 = 256;

/// New connections are served within a second while the visitors stay: the middle one of five, so
/// that a busy machine does not decide.
#[track_caller]
fn assert_prompt(name: &str, serves: impl Fn() -> bool) {
    let mut times: Vec<_> = (0..5)
        .map(|_| {
            let began = Instant::now();
            assert!(serves(), "{name}: a new connection is not served");
            began.elapsed()
        })
        .collect();
    times.sort();
    assert!(
        times[2] < Duration::from_secs(1),
        "{name}: they took {times:?}"
    );
}

/// A near end with each kind of listener, few file descriptors, and an origin behind its far end.
struct Besieged {
    near: Gateway,
    far: Gateway,
    site: Site,
    forward: SocketAddr,
    socks: SocketAddr,
    http: SocketAddr,
    origin: SocketAddr,
}

impl Besieged {
    fn start() -> Besieged {
        let origin = origin::start();
        let site = Site::new();
        let far = site.far_with_files(FILES, &[]);
        let (listen, option) = forward(origin);
        let [socks, http] = [(); 2].map(|()| free_address());
        let near = site.near_with_files(
            site.far_listen,
            FILES,
            &[
                "--forward",
                &option,
                "--socks5",
                &socks.to_string(),
                "--http-proxy",
                &http.to_string(),
            ],
        );
        near.wait_until_up();
        Besieged {
            near,
            far,
            site,
            forward: listen,
            socks,
            http,
            origin,
        }
    }

    /// All ways in still work, and nothing has grown that does not shrink.
    fn assert_unharmed(&self, listener: &str) {
        assert_prompt(listener, || origin::answers(self.forward));
        assert_prompt(listener, || answers_socks(self.socks, self.origin));
        assert_prompt(listener, || answers_http(self.http, self.origin));
        for gateway in [&self.near, &self.far] {
            assert_prompt(listener, || {
                http::get(gateway.admin, "/healthz", None).is_ok()
            });
        }
        let log = self.near.log() + &self.far.log();
        assert!(!log.contains("Too many open files"), "{listener}: {log}");
        let lines = log
            .matches("too many connections without a request")
            .count();
        assert!(lines <= 4, "{listener}: {lines} lines: {log}");
    }
}

fn answers_socks(proxy: SocketAddr, origin: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut request = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(origin.port().to_be_bytes());
    stream.write_all(&request).expect("a connection");
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).is_ok() && reply == [5, 0, 5, 0]
}

fn answers_http(proxy: SocketAddr, origin: SocketAddr) -> bool {
    let request = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n");
    let head = HandMadeClient::say(proxy, &request).head();
    head.starts_with("HTTP/1.1 200 ")
}

#[test]
fn of_socks_clients() {
    let siege = Besieged::start();
    let _visitors = half_requests(siege.socks, &[5, 1], VISITORS);
    siege.assert_unharmed("socks5");
}

#[test]
fn of_http_clients() {
    let siege = Besieged::start();
    let _visitors = half_requests(siege.http, b"GET http://a/ HTTP/1.1\r\n", VISITORS);
    siege.assert_unharmed("http_proxy");
}

#[test]
fn of_admin_clients_at_either_end() {
    let siege = Besieged::start();
    let half = b"GET /status HTTP/1.1\r\n";
    let _near = half_requests(siege.near.admin, half, VISITORS);
    let _far = half_requests(siege.far.admin, half, VISITORS);
    siege.assert_unharmed("admin");
}

#[test]
fn of_lanes() {
    let mut siege = Besieged::start();
    // The first bytes of a ClientHello.
    let _visitors = half_requests(siege.site.far_listen, &[22, 3, 1, 2, 0, 1], VISITORS);
    siege.assert_unharmed("lanes");
    siege.near.kill();
    siege.near.restart();
    siege.near.wait_until_up();
    siege.assert_unharmed("lanes, after a restart");
}

/// Forwards have no requests: each connection is a flow, and there are as many as there are file
/// descriptors for flows. What is one too many is refused, and the rest goes on.
#[test]
fn of_forwards() {
    let siege = Besieged::start();
    let visitors = half_requests(siege.forward, b"hold\n", VISITORS);
    siege
        .near
        .wait_for_log(&["refused a forwarded connection", "limit"]);
    for gateway in [&siege.near, &siege.far] {
        assert_prompt("forward", || {
            http::get(gateway.admin, "/healthz", None).is_ok()
        });
    }
    drop(visitors);
    crate::assert_serves(siege.forward);
    let log = siege.near.log() + &siege.far.log();
    assert!(!log.contains("Too many open files"), "{log}");
}
