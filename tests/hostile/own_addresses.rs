//! A near end asks its far end for the far end's own listeners, in every spelling there is.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::common::{
    PATIENCE,
    addresses::{forward, free_address, has_ipv6},
    http, origin,
    site::{Pair, Site},
};

/// Ways to write an address of this machine. Some resolve nowhere on some systems.
const SPELLINGS: [&str; 26] = [
    "127.0.0.1",
    "127.0.0.2",
    "127.255.255.254",
    "127.1",
    "127.0.1",
    "0",
    "0.0.0.0",
    "0.0.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "017700000001",
    "0177.0.0.1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "ip6-localhost",
    "::1",
    "::",
    "0:0:0:0:0:0:0:1",
    "0000:0000:0000:0000:0000:0000:0000:0001",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:0.0.0.0",
    "::ffff:0:0",
    "::127.0.0.1",
];

/// A connection by name through a SOCKS5 proxy, and the code of its reply.
fn socks_connection(proxy: SocketAddr, host: &str, port: u16) -> (TcpStream, u8) {
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut request = vec![5, 1, 0, 5, 1, 0, 3, host.len() as u8];
    request.extend(host.as_bytes());
    request.extend(port.to_be_bytes());
    stream.write_all(&request).expect("a connection");
    let mut reply = [0; 6];
    stream.read_exact(&mut reply).expect("a reply");
    (stream, reply[3])
}

/// The reply code, and what comes after it.
fn socks_page(proxy: SocketAddr, host: &str, port: u16) -> (u8, String) {
    let (mut stream, code) = socks_connection(proxy, host, port);
    if code == 0 {
        let request = b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(request);
    }
    let mut page = Vec::new();
    let _ = stream.read_to_end(&mut page);
    (code, String::from_utf8_lossy(&page).into_owned())
}

#[test]
fn no_spelling_of_them_leads_to_the_far_ends_listeners() {
    let socks = free_address();
    let (listen, option) = forward(origin::start());
    let far_options = ["--forward", &option];
    let pair = Pair::start(&far_options, &["--socks5", &socks.to_string()]);
    for own in [pair.far.admin, pair.site.far_listen, listen] {
        for host in SPELLINGS {
            let (code, page) = socks_page(socks, host, own.port());
            assert_ne!(code, 0, "{host} leads to {own}: {page}");
            assert!(!page.contains(&pair.site.near_key), "{page}");
        }
    }
    let (_, code) = socks_connection(socks, "127.0.0.1", pair.far.admin.port());
    assert_eq!(code, 2, "not allowed");
    pair.far.wait_for_log(&[
        "refused a connection for the peer",
        "an address of the gateway itself",
    ]);
    // Another service on loopback is what the default is for.
    let other = origin::start();
    assert_eq!(socks_connection(socks, "localhost", other.port()).1, 0);
}

#[test]
fn listeners_on_all_addresses_are_found_too() {
    let mut site = Site::new();
    let port = site.far_listen.port();
    let wildcard = if has_ipv6() { "[::]" } else { "0.0.0.0" };
    site.far_listen = format!("{wildcard}:{port}").parse().expect("an address");
    let far = site.far(&["--allow", "*:*"]);
    let socks = free_address();
    let dialled = SocketAddr::from(([127, 0, 0, 1], port));
    let near = site.near(dialled, &["--socks5", &socks.to_string()]);
    near.wait_until_up();
    for host in SPELLINGS {
        assert_ne!(socks_connection(socks, host, port).1, 0, "{host}");
    }
    drop(far);
}

#[test]
fn only_a_rule_that_names_one_exactly_allows_it() {
    for (exact, expected) in [(false, 2), (true, 0)] {
        let site = Site::new();
        let socks = free_address();
        let listen = site.far_listen.to_string();
        let mut options = vec!["--allow", "127.0.0.0/8:*"];
        if exact {
            options.extend(["--allow", &listen]);
        }
        let _far = site.far(&options);
        let near = site.near(site.far_listen, &["--socks5", &socks.to_string()]);
        near.wait_until_up();
        let (code, _) = socks_page(socks, "127.0.0.1", site.far_listen.port());
        assert_eq!(code, expected, "exact: {exact}");
    }
}

#[test]
fn a_near_end_lets_its_peer_to_none_of_its_own_listeners() {
    let site = Site::new();
    let [socks, http, into_admin, into_socks] = [(); 4].map(|()| free_address());
    let near_admin = free_address();
    let far = site.far(&[
        "--forward",
        &format!("{into_socks}={socks}"),
        "--forward",
        &format!("{into_admin}={near_admin}"),
    ]);
    let near = site.near(
        site.far_listen,
        &[
            "--socks5",
            &socks.to_string(),
            "--http-proxy",
            &http.to_string(),
            "--allow",
            "127.0.0.0/8:*",
        ],
    );
    near.wait_until_up();
    assert!(!origin::answers(into_socks));
    near.wait_for_log(&[
        "refused a connection for the peer",
        &socks.to_string(),
        "an address of the gateway itself",
    ]);
    assert!(http::get(far.admin, "/healthz", None).is_ok());
}
