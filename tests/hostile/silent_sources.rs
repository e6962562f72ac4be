//! One source with many silent connections keeps no lane of another source out.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::Child,
    thread::sleep,
    time::Duration,
};

use socket2::{Domain, Socket, Type};

use crate::{
    assert_serves,
    common::{
        PATIENCE,
        addresses::{forward, free_address},
        command::command,
        eventually, origin,
        site::Site,
    },
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

#[test]
fn a_server_of_archives_keeps_slow_requests_of_others_through_a_flood() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("page"), "hello").expect("a disk");
    let port = free_address().port();
    let listen = format!("0.0.0.0:{port}");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = command(&[
        "czip",
        "serve",
        ".",
        "--listen",
        &listen,
        "--connections",
        "16",
    ])
    .current_dir(folder.path())
    .spawn()
    .expect("the program starts");
    let _server = KilledOnDrop(server);
    let mut slow = eventually("it listens", || TcpStream::connect(address).ok());
    slow.set_read_timeout(Some(PATIENCE)).expect("a limit");
    slow.write_all(b"GET /page HTTP/1.1\r\n")
        .expect("a connection");
    let _silent = flood(Ipv4Addr::new(127, 0, 0, 2), address, 100);
    // Another one is served beside all that is silent.
    let mut other = TcpStream::connect(address).expect("it listens");
    other.set_read_timeout(Some(PATIENCE)).expect("a limit");
    for (stream, rest) in [
        (
            &mut other,
            "GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        ),
        (&mut slow, "Host: a\r\nConnection: close\r\n\r\n"),
    ] {
        stream.write_all(rest.as_bytes()).expect("a connection");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"),
            "{answer}"
        );
    }
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
