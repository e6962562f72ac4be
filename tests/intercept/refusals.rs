//! Rules with `refusal=exact`: the near end answers clients as the targets answer it.
//!
//! Where nft lacks `queue`, iptables takes the place of these lines of the table.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

use rustix::process::Signal;
use socket2::{Domain, SockRef, Socket, Type};

use crate::{
    common::{eventually, programs::are_installed},
    doctor::doctor,
    failing::signal,
    world::{
        BEHIND, ORIGIN, ORIGIN_6, Outcome, SERVICE, SITE, SITE_6, World, ask, connect, keeper::on,
        ok, outcome, within,
    },
};

/// Nothing listens there.
const CLOSED: &str = "10.77.0.2:8098";
const CLOSED_6: &str = "[fd77::2]:8098";

const LOCAL: &str = "transparent = \"15001\"\n\
    intercept = [\"port=8095 action=direct\", \"dst=10.77.0.0/16,fd77::/64 port=8080-8099 refusal=exact\"]\n";
const FORWARDED: &str = "in=lan port=8080-8099 refusal=exact";

/// Longer than a watchdog and repeated packets take.
const LATEST: Duration = Duration::from_secs(30);

/// How packets are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Nft,
    Iptables,
}

impl Way {
    /// A way that works here.
    fn any() -> Option<Way> {
        let mut ways = [Way::Nft, Way::Iptables].into_iter();
        let way = ways.find(|way| way.works());
        if way.is_none() {
            println!("skipped: neither nft nor iptables can hold packets");
        }
        way
    }

    fn works(self) -> bool {
        match self {
            Way::Nft => {
                let queue = "add rule inet t c tcp dport 1 queue flags bypass to 1";
                let chain = "add chain inet t c { type filter hook output priority 0; }";
                let script = format!("add table inet t; {chain}; {queue}");
                let checked = Command::new("nft").args(["--check", &script]).output();
                checked.is_ok_and(|checked| checked.status.success())
            }
            Way::Iptables => are_installed(&["iptables-legacy", "ip6tables-legacy"]),
        }
    }

    /// Loads the rules.
    fn intercept(self, world: &World) {
        if self == Way::Nft {
            return world.intercept();
        }
        let script = world.refrain_ok(&on(&world.path("near.toml"), &["--dry-run"]));
        let mut queues = Vec::new();
        let lines = script.lines().map(|line| {
            let Some((matches, rest)) = line.split_once("queue flags bypass to ") else {
                return format!("{line}\n");
            };
            let (queue, comment) = rest.split_once(' ').expect("a comment");
            queues.push(queue.to_owned());
            format!("{matches}meta mark set {queue} {comment}\n")
        });
        let script: String = lines.collect();
        assert!(!queues.is_empty(), "{script}");
        std::fs::write(world.path("table.nft"), script).expect("a file");
        within(&world.site, || {
            ok(Command::new("nft").arg("-f").arg(world.path("table.nft")));
            for program in ["iptables-legacy", "ip6tables-legacy"] {
                // The mark stays, also of packets that are redirected to loopback.
                let chains = [["OUTPUT", "-o"], ["PREROUTING", "-i"]].into_iter();
                for ([chain, interface], queue) in
                    chains.flat_map(|chain| queues.iter().map(move |queue| (chain, queue)))
                {
                    ok(Command::new(program)
                        .args(["-t", "mangle", "-A", chain, "!", interface, "lo"])
                        .args(["-m", "mark", "--mark", queue])
                        .args(["-j", "NFQUEUE", "--queue-num", queue, "--queue-bypass"])
                        .env("XTABLES_LOCKFILE", world.path("xtables.lock")));
                }
            }
        });
    }
}

fn local(lines: &str) -> Option<(World, Way)> {
    let way = Way::any()?;
    Some((World::with(lines)?.restarted_with("net_admin"), way))
}

fn router(rules: &str) -> Option<(World, Way)> {
    let way = Way::any()?;
    Some((World::router_with(rules)?.restarted_with("net_admin"), way))
}

/// Intercepts, and waits until a connection from behind the router is carried.
fn intercept_router(world: &World, way: Way) {
    way.intercept(world);
    eventually("a connection that is carried", || {
        let found = within(&world.behind, || connect(BEHIND[0], ORIGIN));
        (found == Outcome::Carried).then_some(())
    });
}

/// The near end's status.
fn status(world: &World) -> serde_json::Value {
    let near = world.near.as_ref().expect("it runs").id();
    let admin = world.path(&format!("refrain/near-{near}.sock"));
    let status = world.refrain_ok(&["status", "--json", "--admin", &admin]);
    serde_json::from_str(&status).expect("JSON")
}

fn open_flows(world: &World) -> usize {
    status(world)["flows"].as_array().expect("flows").len()
}

/// Connects from there, however long it takes.
fn connect_slowly(from: &str, to: &str) -> Outcome {
    let own = SocketAddr::new(from.parse().expect("an address"), 0);
    let to: SocketAddr = to.parse().expect("an address");
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).expect("a socket");
    socket.bind(&own.into()).expect("an own address");
    match socket.connect_timeout(&to.into(), LATEST) {
        Ok(()) => ask(&mut socket.into(), from),
        Err(error) => outcome(error.kind()),
    }
}

/// Has the machine at `namespace` drop such packets.
fn drop_packets(namespace: &str, matches: &str) {
    let script = format!(
        "table inet lost {{\n chain lost {{\n type filter hook input priority 0\n {matches} drop\n }}\n }}\n"
    );
    within(namespace, || ok(Command::new("nft").arg(script)));
}

fn refused_targets_are_refused(way: Way, world: &World) {
    way.intercept(world);
    world.wait_for(Outcome::Carried);
    let own = |from, to| within(&world.site, || connect(from, to));
    assert_eq!(own(SITE_6, ORIGIN_6), Outcome::Carried);
    assert_eq!(own(SITE, CLOSED), Outcome::Refused);
    assert_eq!(own(SITE_6, CLOSED_6), Outcome::Refused);
    // A program takes the next address.
    let addresses = [CLOSED, ORIGIN].map(|address| address.parse::<SocketAddr>().expect("valid"));
    let stream = within(&world.site, || TcpStream::connect(&addresses[..]));
    assert_eq!(
        ask(&mut stream.expect("the second"), SITE),
        Outcome::Carried
    );
    // So does curl, if the first address of a name refuses.
    if are_installed(&["curl"]) {
        assert_eq!(curl_of_two_addresses(world), "the second");
    }
    // The first rule that matches counts.
    let before = flows_opened(world);
    assert_eq!(own(SITE, "10.77.0.2:8095"), Outcome::Refused);
    assert_eq!(flows_opened(world), before);
    // Bytes are equal, also of a server that speaks first and ends first.
    let echo = within(&world.service, || TcpListener::bind((SERVICE, 8090))).expect("a port");
    thread::spawn(move || {
        for mut client in echo.incoming().flatten() {
            let mut sent = Vec::new();
            let _ = client.write_all(b"220 ready\n");
            let _ = client.read_to_end(&mut sent);
            let _ = client.write_all(&sent);
        }
    });
    let mut stream = within(&world.site, || TcpStream::connect((SERVICE, 8090))).expect("it is up");
    let mut greeting = [0; 10];
    stream.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting, b"220 ready\n");
    let sent: Vec<u8> = (0..3_000_000_u32)
        .map(|index| (index.wrapping_mul(index) >> 7) as u8)
        .collect();
    stream.write_all(&sent).expect("it is up");
    stream.shutdown(Shutdown::Write).expect("it is up");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("all bytes");
    assert!(received == sent);
    // The connection took the flow over that was opened for it.
    assert_eq!(flows_opened(world), before + 1);
}

/// What curl fetches from a name whose first address refuses.
fn curl_of_two_addresses(world: &World) -> String {
    let second = ["address", "add", "10.77.0.3/16", "dev", "wan"];
    ok(Command::new("ip").args(["-n", &world.service]).args(second));
    let server = within(&world.service, || TcpListener::bind("10.77.0.3:8098")).expect("a port");
    thread::spawn(move || {
        let (mut client, _) = server.accept().expect("a client");
        let mut request = [0; 4096];
        let _ = client.read(&mut request);
        let _ = client.write_all(b"HTTP/1.0 200 OK\r\n\r\nthe second");
    });
    let fetched = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{}", world.site))
        .args(["curl", "--silent", "--show-error", "--max-time", "20"])
        .args(["--resolve", "db.example:8098:10.77.0.2,10.77.0.3"])
        .arg("http://db.example:8098/")
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&fetched.stderr);
    assert!(fetched.status.success(), "{error}");
    String::from_utf8_lossy(&fetched.stdout).into_owned()
}

#[test]
fn held_syn_by_nft() {
    if !Way::Nft.works() {
        println!("skipped: held_syn_by_nft: nft or Linux lacks `queue`");
        return;
    }
    let Some((world, way)) = local(LOCAL) else {
        return;
    };
    refused_targets_are_refused(way, &world);
}

#[test]
fn held_syn_by_iptables() {
    if !Way::Iptables.works() {
        return;
    }
    let Some((world, _)) = local(LOCAL) else {
        return;
    };
    refused_targets_are_refused(Way::Iptables, &world);
}

#[test]
fn a_kernel_that_cannot_hold_packets_is_an_error_with_the_rule() {
    let Some(world) = World::with(LOCAL) else {
        return;
    };
    if Way::Nft.works() {
        println!("skipped: this kernel can hold packets");
        return;
    }
    let output = world.refrain(&on(&world.path("near.toml"), &[]));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    for part in ["port=8080-8099", "CONFIG_NFT_QUEUE", "remove refusal=exact"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!world.ruleset().contains("refrain"));
}

#[test]
fn clients_behind_a_router_are_refused_too() {
    let Some((world, way)) = router(&format!(
        "in=lan port=8097 client_address=proxy_v2 refusal=exact\", \"{FORWARDED}"
    )) else {
        return;
    };
    intercept_router(&world, way);
    let [own, own_6] = BEHIND;
    let found = |from, to| within(&world.behind, || connect(from, to));
    assert_eq!(found(own_6, ORIGIN_6), Outcome::Carried);
    assert_eq!(found(own, CLOSED), Outcome::Refused);
    assert_eq!(found(own_6, CLOSED_6), Outcome::Refused);
    // How a connection is handled is known before it is accepted.
    let server = within(&world.service, || TcpListener::bind((SERVICE, 8097))).expect("a port");
    let header = || {
        let client = within(&world.behind, || TcpStream::connect((SERVICE, 8097))).ok()?;
        client.shutdown(Shutdown::Write).expect("it is up");
        let mut sent = Vec::new();
        server.accept().ok()?.0.read_to_end(&mut sent).ok()?;
        let port = client.local_addr().expect("an address").port();
        // It is direct while that gate is closed.
        (!sent.is_empty()).then_some((sent, port))
    };
    let (sent, port) = eventually("a connection with a header", header);
    assert_eq!(sent[..12], *b"\r\n\r\n\0\r\nQUIT\n");
    assert_eq!(sent[24..26], port.to_be_bytes());
    // A process that another test is just starting may still have a copy of the socket, and so keep it open.
    let ended = SockRef::from(&server).shutdown(Shutdown::Both);
    ended.expect("a socket that listens");
    assert_eq!(found(own, "10.77.0.2:8097"), Outcome::Refused);
    // Those that may not use the near end open no flow.
    let outsider = "10.90.0.2";
    for (namespace, arguments) in [
        (
            &world.behind,
            ["address", "add", "10.90.0.2/32", "dev", "lan"],
        ),
        (&world.site, ["route", "add", "10.90.0.2/32", "dev", "lan"]),
    ] {
        ok(Command::new("ip").args(["-n", namespace]).args(arguments));
    }
    let before = flows_opened(&world);
    assert_eq!(found(outsider, ORIGIN), Outcome::Reset);
    assert_eq!(flows_opened(&world), before);
}

#[test]
fn an_unclaimed_flow_ends_and_a_repeated_packet_opens_no_other() {
    let Some((world, way)) = router(FORWARDED) else {
        return;
    };
    intercept_router(&world, way);
    eventually("the end of that flow", || {
        (open_flows(&world) == 0).then_some(())
    });
    let before = flows_opened(&world);
    // The client never sees that it was accepted, and repeats itself.
    drop_packets(&world.behind, "tcp flags & (syn | ack) == (syn | ack)");
    let behind = &world.behind;
    thread::scope(|scope| {
        let client = scope.spawn(|| within(behind, || connect_slowly(BEHIND[0], ORIGIN)));
        eventually("a flow", || (open_flows(&world) == 1).then_some(()));
        eventually("its end", || (open_flows(&world) == 0).then_some(()));
        assert!(!client.is_finished());
        assert_eq!(flows_opened(&world), before + 1);
        within(behind, || {
            ok(Command::new("nft").args(["delete", "table", "inet", "lost"]))
        });
        // Its flow is gone: another one is opened for it.
        assert_eq!(client.join().expect("no panic"), Outcome::Carried);
    });
}

#[test]
fn a_silent_target_is_refused_after_the_time_out_and_asked_once() {
    let Some((mut world, way)) = router(FORWARDED) else {
        return;
    };
    world.change_far("connect_timeout = \"3s\"\n");
    intercept_router(&world, way);
    drop_packets(&world.service, "tcp dport 8096");
    let before = flows_opened(&world);
    // The client repeats its packet several times.
    let found = within(&world.behind, || {
        connect_slowly(BEHIND[0], "10.77.0.2:8096")
    });
    assert_eq!(found, Outcome::Refused);
    assert_eq!(flows_opened(&world), before + 1);
}

#[test]
fn connections_that_are_held_by_a_gateway_that_stops_go_direct() {
    for ends in [Signal::STOP, Signal::KILL] {
        let (Some((mut site, way)), Some((mut router, _))) = (local(LOCAL), router(FORWARDED))
        else {
            return;
        };
        way.intercept(&site);
        site.wait_for(Outcome::Carried);
        intercept_router(&router, way);
        for world in [&mut site, &mut router] {
            signal(&world.near, ends);
        }
        for world in [&site, &router]
            .into_iter()
            .filter(|_| ends == Signal::STOP)
        {
            let near = world.near.as_ref().expect("it runs").id();
            // Its threads may still be running when the signal was sent.
            eventually("a process that is stopped", || {
                let threads = std::fs::read_dir(format!("/proc/{near}/task")).ok()?;
                let mut states = threads.flatten().map(|thread| {
                    std::fs::read_to_string(thread.path().join("status")).unwrap_or_default()
                });
                states
                    .all(|state| state.contains("State:\tT"))
                    .then_some(())
            });
        }
        let (own, forwarded) = thread::scope(|scope| {
            let own = scope.spawn(|| within(&site.site, || connect_slowly(SITE, ORIGIN)));
            let forwarded = within(&router.behind, || connect_slowly(BEHIND[0], ORIGIN));
            (own.join().expect("no panic"), forwarded)
        });
        match ends {
            // They are held until the gate is closed, and then sent again.
            Signal::STOP => assert_eq!([own, forwarded], [Outcome::Direct; 2]),
            _ => assert!(![own, forwarded].contains(&Outcome::Hung)),
        }
        for world in [&mut site, &mut router] {
            world.near.take().expect("it ran").wait().expect("it ends");
        }
        site.wait_for(Outcome::Direct);
        let outcomes = site.meanwhile(|| {});
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Direct));
        site.start_near();
        site.wait_for(Outcome::Carried);
        assert_eq!(
            within(&site.site, || connect(SITE, CLOSED)),
            Outcome::Refused
        );
    }
}

#[test]
fn refusals_of_the_far_end_are_exact_or_direct_as_the_rule_says() {
    let lines = "transparent = \"15001\"
         intercept = [
             \"port=8080 refusal=exact on_refusal=direct\",
             \"port=8081-8099 refusal=exact\",
         ]\n";
    let Some((world, way)) = local(lines) else {
        return;
    };
    way.intercept(&world);
    world.wait_for(Outcome::Carried);
    let _server = within(&world.service, || TcpListener::bind((SERVICE, 8081))).expect("a port");
    let far = world.path("far.toml");
    let options = std::fs::read_to_string(&far).expect("a file");
    std::fs::write(&far, options.replace("*:*", "10.77.0.2:8099")).expect("a file");
    signal(&world.far, Signal::HUP);
    eventually("the reload", || {
        let log = std::fs::read_to_string(world.path("far.log")).expect("a log");
        log.contains("reloaded").then_some(())
    });
    for _ in 0..2 {
        assert_eq!(world.connect(), Outcome::Direct);
        let refused = within(&world.site, || TcpStream::connect((SERVICE, 8081)));
        assert_eq!(
            refused.expect_err("refused").kind(),
            ErrorKind::ConnectionRefused
        );
    }
    let log = std::fs::read_to_string(world.path("near.log")).expect("a log");
    assert!(log.contains("does not allow this target"), "{log}");
}

#[test]
fn without_the_capability_connections_are_carried_and_a_warning_says_so() {
    let Some(way) = Way::any() else { return };
    let Some(world) = World::with(LOCAL) else {
        return;
    };
    way.intercept(&world);
    world.wait_for(Outcome::Carried);
    assert_eq!(
        within(&world.site, || connect(SITE, CLOSED)),
        Outcome::Reset
    );
    let log = std::fs::read_to_string(world.path("near.log")).expect("a log");
    assert!(log.contains("grant CAP_NET_ADMIN"), "{log}");
    doctor(&world).expect("problem", "capability", &["refusal=exact has no effect"]);
}

/// The flows that the near end opened so far.
fn flows_opened(world: &World) -> u64 {
    fn sum(value: &serde_json::Value) -> u64 {
        match value {
            serde_json::Value::Object(entries) => entries
                .iter()
                .map(|(key, value)| match key.as_str() {
                    "flows_opened" => value.as_u64().expect("a number"),
                    _ => sum(value),
                })
                .sum(),
            serde_json::Value::Array(all) => all.iter().map(sum).sum(),
            _ => 0,
        }
    }
    sum(&status(world)["peers"])
}
