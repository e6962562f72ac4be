//! Rules with `name` for connections whose first bytes have no name: by the DNS answers that clients got.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    process::Command,
    thread,
};

use crate::{
    common::{
        eventually,
        programs::{find, install_script},
    },
    doctor::doctor,
    world::{
        ANSWER_BYTES, BEHIND, HANGS_AFTER, ORIGIN, ORIGIN_6, Outcome, SERVICE, SERVICE_6, SITE,
        SITE_6, World, connect, keeper::on, ok, within,
    },
};

const LOCAL: &str = "transparent = \"15001\"
    intercept = [
        \"port=8080-8099 name=direct.example action=direct\",
        \"port=8080-8099 name=*.refused.example action=reject\",
        \"port=8080-8099\",
    ]\n";
const FORWARDED: &str =
    "in=lan port=8080-8099 name=refused.example action=reject\", \"in=lan port=8080-8099";

/// A second client behind the router.
const OTHER: &str = "10.88.0.3";
/// The router, as its clients see it.
const ROUTER: &str = "10.88.0.1";

/// Whether the firewall can copy packets here.
fn can_copy(test: &str) -> bool {
    let copies = "add rule inet t c udp sport 53 ct direction reply log group 1";
    let chain = "add chain inet t c { type filter hook input priority 150; }";
    let script = format!("add table inet t; {chain}; {copies}");
    let checked = Command::new("nft").args(["--check", &script]).output();
    let can = checked.is_ok_and(|checked| checked.status.success());
    if !can {
        println!("skipped: {test}: nft or Linux lacks `log group`");
    }
    can
}

fn name(name: &str) -> Vec<u8> {
    let labels = name.split('.');
    let labels = labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

fn query(asked: &str) -> Vec<u8> {
    let header = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&header[..], &name(asked), &[0, 1, 0, 1]].concat()
}

/// The answer to a query: the service's addresses, whatever the name is.
fn answer(query: &[u8]) -> Vec<u8> {
    let mut answer = query.to_vec();
    answer[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 2]);
    for address in [SERVICE, SERVICE_6] {
        let (kind, octets) = match address.parse().expect("an address") {
            IpAddr::V4(address) => (1, address.octets().to_vec()),
            IpAddr::V6(address) => (28, address.octets().to_vec()),
        };
        answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0]);
        answer.push(octets.len() as u8);
        answer.extend(octets);
    }
    answer
}

/// Answers queries in this namespace, at port 53 of this address.
fn resolve_at(namespace: &str, address: &str) -> UdpSocket {
    let socket = within(namespace, || UdpSocket::bind((address, 53))).expect("a port");
    let own = socket.try_clone().expect("a handle");
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&answer(&buffer[..length]), client);
        }
    });
    own
}

/// Asks a resolver for a name, from this address.
#[track_caller]
fn resolve(namespace: &str, from: &str, resolver: &str, asked: &str) {
    let answered = within(namespace, || {
        let socket = UdpSocket::bind((from, 0)).expect("an own address");
        socket.set_read_timeout(Some(HANGS_AFTER)).expect("a limit");
        socket.send_to(&query(asked), (resolver, 53))?;
        socket.recv(&mut [0; 512])
    });
    answered.expect("an answer");
}

/// The address that the origin sees of a client that names its server.
fn seen_with(world: &World, host: &str) -> String {
    let mut stream = within(&world.site, || TcpStream::connect(ORIGIN)).expect("it is up");
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("it is up");
    let mut seen = [0; ANSWER_BYTES];
    stream.read_exact(&mut seen).expect("an answer");
    String::from_utf8_lossy(&seen).trim().to_owned()
}

#[test]
fn connections_without_a_name_are_decided_by_the_answers_of_dns() {
    if !can_copy("connections_without_a_name_are_decided_by_the_answers_of_dns") {
        return;
    }
    let Some(world) = World::with(LOCAL) else {
        return;
    };
    let mut world = world.restarted_with("net_admin");
    let resolver = resolve_at(&world.service, SERVICE);
    world.intercept();
    world.wait_for(Outcome::Carried);
    // Nobody asked for this one.
    let client = within(&world.site, || UdpSocket::bind((SITE, 0))).expect("a socket");
    client.set_read_timeout(Some(HANGS_AFTER)).expect("a limit");
    let to: SocketAddr = client.local_addr().expect("an address");
    resolver
        .send_to(&answer(&query("a.refused.example")), to)
        .expect("a route");
    client.recv(&mut [0; 512]).expect("it came");
    assert_eq!(world.connect(), Outcome::Carried);

    // The next connection already.
    resolve(&world.site, SITE, SERVICE, "Direct.Example");
    assert_eq!(world.connect(), Outcome::Direct);
    let own_6 = within(&world.site, || connect(SITE_6, ORIGIN_6));
    assert_eq!(own_6, Outcome::Direct);
    // The first bytes say more.
    assert_eq!(seen_with(&world, "other.example"), SERVICE);
    assert_eq!(seen_with(&world, "direct.example"), SITE);
    // The first rule that matches counts, whichever answer came last.
    resolve(&world.site, SITE, SERVICE, "a.refused.example");
    assert_eq!(world.connect(), Outcome::Direct);
    doctor(&world).expect("ok", "capability", &["CAP_NET_ADMIN"]);

    // Another near end takes the group, and knows no names yet.
    let mut near = world.near.take().expect("it runs");
    near.kill().and_then(|()| near.wait()).expect("it ran");
    world.start_near();
    world.wait_for(Outcome::Carried);
    resolve(&world.site, SITE, SERVICE, "direct.example");
    assert_eq!(world.connect(), Outcome::Direct);
}

#[test]
fn an_answer_decides_only_for_the_client_that_got_it() {
    if !can_copy("an_answer_decides_only_for_the_client_that_got_it") {
        return;
    }
    let Some(world) = World::router_with(FORWARDED) else {
        return;
    };
    let world = world.restarted_with("net_admin");
    let (site, behind) = (&world.site, &world.behind);
    let [own, own_6] = BEHIND;
    let add = ["-n", behind, "address", "add", "10.88.0.3/16", "dev", "lan"];
    ok(Command::new("ip").args(add));
    resolve_at(&world.service, SERVICE);
    resolve_at(&world.service, SERVICE_6);
    world.intercept();
    let from = |own, to| within(behind, || connect(own, to));
    eventually("a connection that is carried", || {
        (from(own, ORIGIN) == Outcome::Carried).then_some(())
    });
    resolve(behind, own, SERVICE, "refused.example");
    assert_eq!(from(own, ORIGIN), Outcome::Reset);
    assert_eq!(from(OTHER, ORIGIN), Outcome::Carried);
    // The near end's own machine is another client.
    resolve(site, SITE, SERVICE, "refused.example");
    assert_eq!(from(OTHER, ORIGIN), Outcome::Carried);
    assert_eq!(from(own_6, ORIGIN_6), Outcome::Carried);
    resolve(behind, own_6, SERVICE_6, "refused.example");
    assert_eq!(from(own_6, ORIGIN_6), Outcome::Reset);
    // A resolver on the router, and one that sees only the router's address.
    resolve_at(site, ROUTER);
    resolve(behind, OTHER, ROUTER, "refused.example");
    assert_eq!(from(OTHER, ORIGIN), Outcome::Reset);
    let masquerade = "table ip theirs {\nchain out {\ntype nat hook postrouting priority 100\n\
                      oifname wan udp dport 53 masquerade\n}\n}";
    within(site, || ok(Command::new("nft").arg(masquerade)));
    let last = "10.88.0.4";
    let add = ["-n", behind, "address", "add", "10.88.0.4/16", "dev", "lan"];
    ok(Command::new("ip").args(add));
    assert_eq!(from(last, ORIGIN), Outcome::Carried);
    resolve(behind, last, SERVICE, "refused.example");
    assert_eq!(from(last, ORIGIN), Outcome::Reset);
}

#[test]
fn without_the_capability_names_are_those_of_first_bytes_and_the_log_says_so() {
    let Some(world) = World::with(LOCAL) else {
        return;
    };
    resolve_at(&world.service, SERVICE);
    world.intercept();
    world.wait_for(Outcome::Carried);
    resolve(&world.site, SITE, SERVICE, "direct.example");
    assert_eq!(world.connect(), Outcome::Carried);
    assert_eq!(seen_with(&world, "direct.example"), SITE);
    let log = std::fs::read_to_string(world.path("near.log")).expect("a log");
    let lines = log
        .lines()
        .filter(|line| line.contains("from DNS answers too, grant CAP_NET_ADMIN"));
    assert_eq!(lines.count(), 1, "{log}");
    doctor(&world).expect(
        "note",
        "capability",
        &["lacks CAP_NET_ADMIN", "systemctl edit refrain-near"],
    );
}

#[test]
fn where_the_firewall_cannot_copy_packets_the_rules_work_and_a_warning_says_so() {
    let Some(world) = World::with(LOCAL) else {
        return;
    };
    // As nft fails on a kernel without the module.
    let folder = world.path("bin");
    std::fs::create_dir(&folder).expect("a new directory");
    let lacking = format!(
        "#!/bin/sh\nscript=$(cat)\ncase $script in *'log group'*) echo 'No such file' >&2; exit 1 ;; esac\n\
         printf '%s' \"$script\" | exec {} \"$@\"\n",
        find("nft").expect("its presence was tested").display()
    );
    let nft = format!("{folder}/nft");
    install_script(&lacking, nft.as_ref());
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let config = world.path("near.toml");
    let mut command = world.keeping(&world.site);
    let error = world.keep_by(
        &world.site,
        command.args(on(&config, &[])).env("PATH", path),
    );
    for part in ["not from DNS answers", "No such file", "CONFIG_NFT_LOG"] {
        assert!(error.contains(part), "{error}");
    }
    world.wait_for(Outcome::Carried);
    assert_eq!(seen_with(&world, "direct.example"), SITE);
    assert!(!world.ruleset().contains("log group"));
}
