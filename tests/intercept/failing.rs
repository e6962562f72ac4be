//! Gateways that die, hang, drain or are removed.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command},
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    common::{command::keygen, eventually, read},
    world::{
        ORIGIN, ORIGIN_6, Outcome, SITE, SITE_6, USER, World, ask, connect, ok, outcome, within,
    },
};

pub(crate) fn signal(child: &Option<Child>, signal: Signal) {
    let child = child.as_ref().expect("it runs");
    kill_process(Pid::from_raw(child.id() as i32).expect("a process"), signal).expect("it runs");
}

/// The shares of outcomes after something died: first some may be lost, then all go direct.
#[track_caller]
fn all_direct_after(world: &World, within: Duration) {
    sleep(within);
    let outcomes = world.meanwhile(|| {});
    let count = outcomes.len();
    let others = outcomes.into_iter().enumerate();
    let others: Vec<_> = others
        .filter(|(_, outcome)| *outcome != Outcome::Direct)
        .collect();
    assert!(others.is_empty(), "{others:?} of {count}");
}

#[test]
fn connections_are_carried_while_the_gateway_works_and_direct_otherwise() {
    let Some(mut world) = World::new() else {
        return;
    };
    let before = world.ruleset();
    assert_eq!(world.connect(), Outcome::Direct);
    world.intercept();
    world.wait_for(Outcome::Carried);
    // Others are left alone.
    let other = within(&world.service, || TcpListener::bind("10.77.0.2:9000")).expect("a port");
    let left_alone = within(&world.site, || TcpStream::connect("10.77.0.2:9000"));
    let (_, from) = other.accept().expect("a client");
    assert_eq!(
        (left_alone.is_ok(), from.ip().to_string().as_str()),
        (true, SITE)
    );
    let shown = world.refrain_ok(&["intercept", "show"]);
    assert!(
        shown.contains("gate open") && shown.contains("port=8080-8099"),
        "{shown}"
    );

    // A far end that has gone takes the link along, and that closes the gate.
    signal(&world.far, Signal::KILL);
    world.far.take().expect("it runs").wait().expect("it ends");
    world.wait_until_closed();
    all_direct_after(&world, Duration::ZERO);
    world.start_far();
    world.wait_for(Outcome::Carried);

    world.refrain_ok(&["bypass", "on"]);
    all_direct_after(&world, Duration::from_millis(600));
    world.refrain_ok(&["bypass", "off"]);
    world.wait_for(Outcome::Carried);

    signal(&world.near, Signal::STOP);
    all_direct_after(&world, Duration::from_millis(600));
    // The watchdog has killed it by then, or will.
    world.near.take().expect("it runs").wait().expect("it ends");
    world.start_near();
    world.wait_for(Outcome::Carried);

    signal(&world.near, Signal::KILL);
    world.near.take().expect("it runs").wait().expect("it ends");
    all_direct_after(&world, Duration::from_millis(600));
    world.start_near();
    world.wait_for(Outcome::Carried);

    world.refrain_ok(&["intercept", "off"]);
    assert_eq!(world.connect(), Outcome::Direct);
    assert_eq!(world.ruleset(), before);
}

#[test]
fn removal_costs_no_connection() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.intercept();
    world.wait_for(Outcome::Carried);
    let is_served = |outcome: &Outcome| matches!(outcome, Outcome::Carried | Outcome::Direct);
    let outcomes = world.meanwhile(|| {
        sleep(Duration::from_millis(300));
        world.refrain_ok(&["intercept", "off"]);
    });
    assert!(outcomes.contains(&Outcome::Carried) && outcomes.contains(&Outcome::Direct));
    let lost: Vec<_> = outcomes
        .iter()
        .filter(|outcome| !is_served(outcome))
        .collect();
    assert!(lost.is_empty(), "{lost:?} of {}", outcomes.len());

    world.intercept();
    world.wait_for(Outcome::Carried);
    let outcomes = world.meanwhile(|| {
        sleep(Duration::from_millis(300));
        signal(&world.near, Signal::TERM);
    });
    let lost: Vec<_> = outcomes
        .iter()
        .filter(|outcome| !is_served(outcome))
        .collect();
    assert!(lost.is_empty(), "{lost:?} of {}", outcomes.len());
    let ended = world.near.take().expect("it ran").wait().expect("it ends");
    assert!(ended.success());
    assert_eq!(world.connect(), Outcome::Direct);
}

#[test]
fn an_open_connection_is_reset_when_the_gateway_dies_or_hangs() {
    for signal_of_end in [Signal::KILL, Signal::STOP] {
        let Some(mut world) = World::new() else {
            return;
        };
        let mut open = world.open();
        signal(&world.near, signal_of_end);
        let began = Instant::now();
        let end = read(&mut open, &mut [0]).expect_err("no end");
        assert_eq!(outcome(end.kind()), Outcome::Reset, "{:?}", began.elapsed());
        world.near.take().expect("it ran").wait().expect("it ends");
    }
}

#[test]
fn open_connections_outlive_sigterm_for_the_drain_time_out() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut open = world.open();
    signal(&world.near, Signal::TERM);
    // Longer than a gateway may hang.
    sleep(Duration::from_secs(4));
    assert_eq!(ask(&mut open, SITE), Outcome::Carried);
    assert_eq!(world.connect(), Outcome::Direct);
    drop(open);
    let ended = world.near.take().expect("it ran").wait().expect("it ends");
    assert!(ended.success(), "{ended}");
}

#[test]
fn connections_go_direct_while_the_far_end_drains() {
    let Some(world) = World::new() else {
        return;
    };
    let mut open = world.open();
    signal(&world.far, Signal::TERM);
    world.wait_until_closed();
    all_direct_after(&world, Duration::ZERO);
    assert_eq!(ask(&mut open, SITE), Outcome::Carried);
}

/// The number of files that a process has.
pub(crate) fn files_of(process: u32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{process}/fd"));
    files.expect("its descriptors").count()
}

/// Sets a gateway's limit. As its user: in a container, root may not.
pub(crate) fn limit_files(gateway: u32, count: usize) {
    ok(Command::new("setpriv")
        .args(["--reuid", USER, "--regid", USER, "--clear-groups"])
        .args(["prlimit", "--pid", &gateway.to_string()])
        .arg(format!("--nofile={count}:")));
}

#[test]
fn without_descriptors_no_connection_hangs_and_later_ones_go_direct() {
    let ends: [fn(&World) -> &Option<Child>; 2] = [|world| &world.near, |world| &world.far];
    for end in ends {
        let Some(world) = World::new() else {
            return;
        };
        let mut open = world.open();
        let gateway = end(&world).as_ref().expect("it runs").id();
        let used = files_of(gateway);
        limit_files(gateway, used);
        // Those that are still free below.
        let idle = || (0..used).map(|_| TcpStream::connect(ORIGIN));
        let idle: Vec<_> = within(&world.site, || idle().collect());
        eventually("connections that go direct", || {
            let outcome = world.connect();
            assert_ne!(outcome, Outcome::Hung);
            (outcome == Outcome::Direct).then_some(())
        });
        drop(idle);
        assert_eq!(ask(&mut open, SITE), Outcome::Carried);
        limit_files(gateway, 1024);
        world.wait_for(Outcome::Carried);
    }
}

#[test]
fn connections_that_no_link_takes_go_direct() {
    let Some(mut world) = World::new() else {
        return;
    };
    // Another far end, which is down, has the one address of the origin.
    let other = keygen(Path::new(&world.path("other.key")));
    let file = world.path("near.toml");
    let mut options = String::new();
    for line in std::fs::read_to_string(&file).expect("a file").lines() {
        options += &match line.split_once(" = ") {
            Some(("peer", here)) => {
                let here = here.trim_matches('"');
                format!("peer = [\"here={here}\", \"other=10.77.0.2:7999\"]\n")
            }
            Some(("peer_key", key)) => {
                let key = key.trim_matches('"');
                format!("peer_key = [\"here={key}\", \"other={other}\"]\n")
            }
            _ => format!("{line}\n"),
        };
    }
    options += &format!("route = [\"{ORIGIN}@other\"]\n");
    std::fs::write(&file, options).expect("a file");
    signal(&world.near, Signal::KILL);
    world.near.take().expect("it runs").wait().expect("it ends");
    world.start_near();
    world.intercept();
    let through = |origin| within(&world.site, || connect(SITE_6, origin));
    eventually("a carried connection", || {
        (through(ORIGIN_6) == Outcome::Carried).then_some(())
    });
    for _ in 0..5 {
        assert_eq!(world.connect(), Outcome::Direct);
    }
    assert_eq!(through(ORIGIN_6), Outcome::Carried);
}

#[test]
fn a_firewall_that_drops_loopback_costs_no_open_connection() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut open = world.open();
    let dropping = "table inet filter { chain input { type filter hook input priority 0; \
                    iif lo tcp dport 15001 drop; }; }";
    within(&world.site, || ok(Command::new("nft").arg(dropping)));
    // The connection comes by loopback itself: only what the near end does is looked at here.
    sleep(Duration::from_secs(5));
    let near = world.near.as_mut().expect("it runs");
    assert!(near.try_wait().expect("a child").is_none(), "it was killed");
    all_direct_after(&world, Duration::ZERO);
    within(&world.site, || {
        ok(Command::new("nft").args(["delete", "table", "inet", "filter"]));
    });
    world.wait_for(Outcome::Carried);
    assert_eq!(ask(&mut open, SITE), Outcome::Carried);
}

#[test]
fn a_flood_of_connections_is_not_taken_for_a_gateway_that_hangs() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.intercept();
    world.wait_for(Outcome::Carried);
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                within(&world.site, || {
                    while !has_ended.load(Ordering::Relaxed) {
                        let _ = TcpStream::connect("127.0.0.1:15001");
                    }
                });
            });
        }
        sleep(Duration::from_secs(5));
        has_ended.store(true, Ordering::Relaxed);
    });
    let near = world.near.as_mut().expect("it runs");
    assert!(near.try_wait().expect("a child").is_none(), "it was killed");
    world.wait_for(Outcome::Carried);
}

/// A client that only reads, of a server that sends a byte each 10 ms.
fn reader(world: &World) -> TcpStream {
    let server = within(&world.service, || TcpListener::bind("10.77.0.2:8085")).expect("a port");
    let reader = within(&world.site, || TcpStream::connect("10.77.0.2:8085")).expect("a server");
    thread::spawn(move || {
        let (mut stream, _) = server.accept()?;
        loop {
            stream.write_all(b"x")?;
            sleep(Duration::from_millis(10));
        }
        #[expect(unreachable_code, reason = "it has the type of the thread's result")]
        Ok::<_, std::io::Error>(())
    });
    let limit = Some(Duration::from_secs(5));
    reader.set_read_timeout(limit).expect("a socket");
    reader
}

/// Reads for this long, or until a reset. Any other end of the stream is a fault.
#[track_caller]
pub(crate) fn read_until_reset(reader: &mut TcpStream, limit: Duration, label: &str) {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        match read(&mut *reader, &mut [0; 100]) {
            Ok(0) => panic!("{label}: an end, as if all bytes had come"),
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{label}");
                break;
            }
        }
    }
}

#[test]
fn a_client_that_only_reads_learns_that_the_rules_are_gone() {
    for is_flushed in [true, false] {
        let Some(world) = World::new() else { return };
        world.intercept();
        world.wait_for(Outcome::Carried);
        let mut reader = reader(&world);
        reader.read_exact(&mut [0; 10]).expect("a stream");
        match is_flushed {
            true => within(&world.site, || {
                ok(Command::new("nft").args(["flush", "ruleset"]));
            }),
            false => drop(world.refrain_ok(&["intercept", "off"])),
        }
        // For longer than the rules are gone.
        let label = if is_flushed { "flush" } else { "off" };
        read_until_reset(&mut reader, Duration::from_secs(3), label);
    }
}
