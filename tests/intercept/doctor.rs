//! `refrain doctor` about interception.

use std::{net::UdpSocket, process::Command};

use rustix::process::Signal;

use crate::{
    common::{doctor::Findings, eventually},
    failing::signal,
    world::{Outcome, World, ok, on, within},
};

pub(crate) fn doctor(world: &World) -> Findings {
    let config = world.path("near.toml");
    Findings::of(&world.refrain(&["doctor", "--json", "--config", &config]))
}

/// Waits until nothing is wrong.
#[track_caller]
fn is_healthy(world: &World) -> Findings {
    eventually("a report without problems", || {
        let found = doctor(world);
        found.problems().is_empty().then_some(found)
    })
}

#[test]
fn rules_that_work_have_no_problem_and_a_closed_gate_has_its_cause() {
    let Some(mut world) = World::new() else {
        return;
    };
    let found = doctor(&world);
    found.expect(
        "problem",
        "rules",
        &["none are loaded", "refrain intercept on"],
    );
    world.open();
    let found = is_healthy(&world);
    found.expect("ok", "rules", &["rule 1: ", "port=8080-8099"]);
    found.expect("ok", "gate", &["open"]);
    found.expect("ok", "listener", &["user 64999 has port 15001"]);

    world.refrain_ok(&["bypass", "on"]);
    world.wait_for(Outcome::Direct);
    let found = is_healthy(&world);
    found.expect("note", "gate", &["closed", "refrain bypass off"]);
    world.refrain_ok(&["bypass", "off"]);
    world.wait_for(Outcome::Carried);

    // Rules for another user: the near end's connections would come back to it.
    let config = world.path("near.toml");
    world.refrain_ok(&["intercept", "on", "--config", &config, "--user", "64001"]);
    let found = doctor(&world);
    found.expect("problem", "gate", &["closed", "as user 64001"]);
    found.expect(
        "problem",
        "listener",
        &["intercepted again", "--user 64999"],
    );
    world.intercept();
    world.wait_for(Outcome::Carried);

    signal(&world.far, Signal::KILL);
    world.far.take().expect("it runs").wait().expect("it ends");
    world.wait_until_closed();
    let found = doctor(&world);
    found.expect("problem", "gate", &["the near end has no link", "peers"]);
    found.expect("problem", "link", &["down"]);
    found.expect("problem", "peer", &["connection refused"]);

    signal(&world.near, Signal::KILL);
    world.near.take().expect("it runs").wait().expect("it ends");
    let found = doctor(&world);
    found.expect("problem", "gate", &["no near end", "gateways"]);
    found.expect("problem", "listener", &["nothing listens at port 15001"]);
}

#[test]
fn rules_that_differ_from_the_file_and_those_of_others_are_found() {
    let Some(world) = World::new() else {
        return;
    };
    let config = world.path("near.toml");
    world.refrain_ok(&on(&config, &["--rule", "port=9999"]));
    let found = is_healthy(&world);
    found.expect("note", "rules", &["not in the file: port=9999"]);
    let text = std::fs::read_to_string(&config).expect("its file");
    let changed = text.replace("8080-8099", "8080-8098");
    std::fs::write(&config, changed).expect("its file");
    let found = doctor(&world);
    found.expect(
        "problem",
        "rules",
        &["not loaded: port=8080-8098", "load the rules again"],
    );

    let theirs = "table ip nat {\nchain OUTPUT {\ntype nat hook output priority -100\ntcp dport 80 redirect to :8080\n}\n}";
    within(&world.site, || ok(Command::new("nft").arg(theirs)));
    doctor(&world).expect("note", "other rules", &["table ip nat", "OUTPUT"]);

    within(&world.site, || {
        let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
        socket.send_to(b"?", "10.77.0.2:443").expect("a route");
    });
    match std::path::Path::new("/proc/net/nf_conntrack").exists() {
        true => doctor(&world).expect("note", "QUIC", &["1 open QUIC connection "]),
        false => doctor(&world).expect("skipped", "QUIC", &["nf_conntrack"]),
    }
}

#[test]
fn what_a_router_lacks_is_found() {
    let Some(world) = World::router() else {
        return;
    };
    world.intercept();
    let found = is_healthy(&world);
    found.expect("ok", "forwarding", &["forwards IPv4"]);
    let set = |setting: &str, value: &str| {
        let file = format!("/proc/sys/net/ipv4/{setting}");
        within(&world.site, || {
            std::fs::write(file, value).expect("root may")
        });
    };
    set("ip_forward", "0");
    set("conf/lan/rp_filter", "1");
    let found = doctor(&world);
    found.expect(
        "problem",
        "forwarding",
        &["forwards no IPv4", "ip_forward=1"],
    );
    found.expect("note", "path back", &["on lan", "rp_filter to 2"]);
}
