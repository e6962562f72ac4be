//! One source with many silent connections keeps no lane of another source out.

use std::{
    net::{Ipv4Addr, SocketAddr},
    thread::sleep,
    time::Duration,
};

use socket2::{Domain, Socket, Type};

use crate::{
    assert_serves,
    common::{addresses::forward, origin, site::Site},
};

/// Silent connections that come and come again, faster than a handshake is made.
fn flood(from: Ipv4Addr, to: SocketAddr, count: usize) -> Vec<Socket> {
    let open = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let source = SocketAddr::from((from, 0));
        socket.bind(&source.into()).expect("an address of loopback");
        socket.connect(&to.into()).expect("the far end listens");
        socket
    };
    (0..count).map(|_| open()).collect()
}

#[test]
fn a_flood_of_one_address_keeps_no_other_out() {
    let target = origin::start();
    let mut site = Site::new();
    // Of a listener on all addresses each loopback address is a source of its own.
    let port = site.far_listen.port();
    let listen = format!("0.0.0.0:{port}");
    site.far_listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let far = site.far(&[]);
    let (address, option) = forward(target);
    let dialled = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut near = site.near(dialled, &["--forward", &option]);
    near.wait_until_up();
    near.kill();
    let hostile = Ipv4Addr::new(127, 0, 0, 2);
    let _silent = flood(hostile, dialled, 1500);
    far.wait_for_log(&[
        "too many connections without a request",
        &listen,
        "127.0.0.2",
    ]);
    let flooding = std::thread::spawn(move || {
        for _ in 0..20 {
            drop(flood(hostile, dialled, 100));
            sleep(Duration::from_millis(50));
        }
    });
    near.restart();
    near.wait_until_up();
    assert_serves(address);
    flooding.join().expect("no panic");
}
