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
        certificate::certificate,
        gateway::Gateway,
        http::{self, HandMadeClient},
        origin,
        programs::are_installed,
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
    /// Sites at a plain address and by their own name, and a database.
    sites: [SocketAddr; 3],
    /// Their certificate.
    _folder: tempfile::TempDir,
    origin: SocketAddr,
}

impl Besieged {
    /// None where openssl is missing.
    fn start() -> Option<Besieged> {
        if !are_installed(&["openssl"]) {
            return None;
        }
        let (origin, folder) = (origin::start(), certificate());
        let site = Site::new();
        let far = site.far_with_files(FILES, &[]);
        let (listen, option) = forward(origin);
        let [socks, http, plain, tls, database] = [(); 5].map(|()| free_address());
        let services = [
            format!("{plain}=http://{origin}"),
            format!("https://{tls}=https://localhost"),
            format!("postgres://{database}=postgres://localhost"),
        ];
        let [certificate, key] =
            ["tls.crt", "tls.key"].map(|name| folder.path().join(name).display().to_string());
        let own = ["--cert", &certificate, "--cert-key", &key];
        let services = services.iter().flat_map(|service| ["--service", service]);
        let services: Vec<&str> = services.chain(own).collect();
        let near = site.near_with_files(
            site.far_listen,
            FILES,
            &[
                &[
                    "--forward",
                    &option,
                    "--socks5",
                    &socks.to_string(),
                    "--http-proxy",
                    &http.to_string(),
                ],
                &services[..],
            ]
            .concat(),
        );
        near.wait_until_up();
        Some(Besieged {
            near,
            far,
            site,
            forward: listen,
            socks,
            http,
            sites: [plain, tls, database],
            _folder: folder,
            origin,
        })
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
    let Some(siege) = Besieged::start() else {
        return;
    };
    let _visitors = half_requests(siege.socks, &[5, 1], VISITORS);
    siege.assert_unharmed("socks5");
}

#[test]
fn of_http_clients() {
    let Some(siege) = Besieged::start() else {
        return;
    };
    let _visitors = half_requests(siege.http, b"GET http://a/ HTTP/1.1\r\n", VISITORS);
    siege.assert_unharmed("http_proxy");
}

#[test]
fn of_clients_of_sites_and_databases() {
    let Some(siege) = Besieged::start() else {
        return;
    };
    let hello = [22, 3, 1, 2, 0, 1];
    let halves = [
        &b"GET / HTTP/1.1\r\nHost: a\r\n"[..],
        &hello,
        &[0, 0, 0, 8, 4],
    ];
    let visitors: Vec<_> = siege
        .sites
        .iter()
        .zip(halves)
        .map(|(site, half)| half_requests(*site, half, VISITORS))
        .collect();
    siege.assert_unharmed("services");
    drop(visitors);
}

#[test]
fn of_admin_clients_at_either_end() {
    let Some(siege) = Besieged::start() else {
        return;
    };
    let half = b"GET /status HTTP/1.1\r\n";
    let _near = half_requests(siege.near.admin, half, VISITORS);
    let _far = half_requests(siege.far.admin, half, VISITORS);
    siege.assert_unharmed("admin");
}

#[test]
fn of_lanes() {
    let Some(mut siege) = Besieged::start() else {
        return;
    };
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
    let Some(siege) = Besieged::start() else {
        return;
    };
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
