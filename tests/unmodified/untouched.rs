//! Traffic that is not for the link: ICMP, UDP, and connections to the client's own machine.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
};

use crate::{
    common::{PATIENCE, eventually, programs::are_installed},
    place::{self, Place},
};

#[test]
fn intercepted() {
    passes_by(place::intercepted);
}

#[test]
fn forwarded() {
    passes_by(place::forwarded);
}

/// All other traffic is refused in there.
#[test]
fn inside_run() {
    let Some(place) = place::inside_run() else {
        return;
    };
    place.inside(|| {
        for own in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            connect_to(own);
        }
    });
    assert_eq!((place.flows(), place.connections()), (0, 0));
}

fn passes_by(way: fn() -> Option<Place>) {
    if !are_installed(&["ping"]) {
        return;
    }
    let Some(place) = way() else { return };
    for host in place.hosts() {
        place.run("ping", &["-c", "2", "-i", "0.1", &host.address.to_string()]);
    }
    for (host, own) in place.hosts().into_iter().zip(place.own) {
        let own: IpAddr = own.parse().expect("an address");
        let server = place
            .at_origin(|| UdpSocket::bind(host.at(80)))
            .expect("a port");
        server.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let client = place
            .inside(|| UdpSocket::bind(SocketAddr::new(own, 0)))
            .expect("a port");
        client.set_read_timeout(Some(PATIENCE)).expect("a limit");
        client.connect(host.at(80)).expect("a route");
        client.send(b"there").expect("a route");
        let mut bytes = [0; 8];
        let (length, from) = server.recv_from(&mut bytes).expect("a datagram");
        assert_eq!((&bytes[..length], from.ip()), (&b"there"[..], own));
        server.send_to(b"back", from).expect("a route");
        let length = client.recv(&mut bytes).expect("a datagram");
        assert_eq!(&bytes[..length], b"back");
        place.inside(|| connect_to(own));
    }
    place.inside(|| {
        for own in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            connect_to(own);
        }
    });
    assert_eq!((place.flows(), place.connections()), (0, 0));
    let shown = place.world.refrain_ok(&["intercept", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["rules"][0]["connections"], 0, "{shown}");
    // Connections to the same hosts are for the link.
    for host in place.hosts() {
        place.connected(host.at(8080), drop);
    }
    eventually("flows of connections", || {
        (place.flows() == 2).then_some(())
    });
}

/// Connects to this machine's own address, from there.
fn connect_to(own: IpAddr) {
    let listener = TcpListener::bind((own, 0)).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let server = thread::spawn(move || {
        let (mut client, from) = listener.accept().expect("a client");
        client.write_all(b"here").expect("a connection");
        from.ip()
    });
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut received = String::new();
    stream.read_to_string(&mut received).expect("an end");
    assert_eq!(received, "here");
    assert_eq!(server.join().expect("no panic"), own);
}
