//! Far ends that connect from the addresses of clients.
//!
//! ```text
//! machine behind 10.88.0.2 ── site, near end 10.77.0.1 ── 10.77.0.2 service, far end ── 10.99.0.2 origin
//! ```

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    common::{
        eventually,
        origin_machine::{ORIGIN, ORIGIN_6, Origin, SERVICE_THERE},
    },
    doctor::doctor_of_far_end,
    failing::{files_of, limit_files, read_until_reset, signal},
    world::{BEHIND, HANGS_AFTER, Outcome, World, ask, ok, within},
};

/// The rules for packets and for routes at the service.
fn state(world: &World) -> String {
    let list = |program: &str, arguments: &[&str]| {
        let output = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", world.service))
            .arg(program)
            .args(arguments)
            .output()
            .expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    [
        list("nft", &["list", "ruleset"]),
        list("ip", &["rule", "list"]),
        list("ip", &["-6", "rule", "list"]),
        list("ip", &["route", "show", "table", "2030"]),
        list("ip", &["-6", "route", "show", "table", "2030"]),
    ]
    .concat()
}

/// The connections that the rules of the site matched.
pub(crate) fn intercepted(world: &World) -> u64 {
    let shown = world.refrain_ok(&["intercept", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let rules = shown["rules"].as_array().expect("rules").iter();
    rules
        .map(|rule| rule["connections"].as_u64().expect("a number"))
        .sum()
}

/// `refrain intercept` at the service, as root.
fn at_service(world: &World, arguments: &[&str]) -> String {
    let output = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{}", world.service))
        .arg(env!("CARGO_BIN_EXE_refrain"))
        .arg("intercept")
        .args(arguments)
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn servers_see_the_addresses_of_clients() {
    let Some(mut world) = World::of_own_addresses("in=lan port=8080 client_address=keep") else {
        return;
    };
    let _origin = Origin::start(&world);
    let before = state(&world);
    world.intercept_far();
    // Twice is once, after the first process was killed.
    let loaded = state(&world);
    world.signal_keeper(&world.service, Signal::KILL);
    world.intercept_far();
    assert_eq!(state(&world), loaded);
    assert!(at_service(&world, &["show"]).contains("answers to clients' addresses"));
    world.intercept();
    let clients = [(BEHIND[0], ORIGIN), (BEHIND[1], ORIGIN_6)];
    let seen = |world: &World| {
        clients.map(|(own, origin)| {
            let mut stream = within(&world.behind, || TcpStream::connect((origin, 8080)))
                .expect("the origin is up");
            ask(&mut stream, own)
        })
    };
    eventually("connections that are intercepted", || {
        assert_eq!(
            seen(&world),
            [Outcome::Direct; 2],
            "from the client's address"
        );
        (intercepted(&world) >= 2).then_some(())
    });
    // Bytes come back, more than packets or windows hold.
    let (own, origin) = clients[0];
    let count = intercepted(&world);
    let mut stream =
        within(&world.behind, || TcpStream::connect((origin, 8080))).expect("it is up");
    let requests = 50_000;
    thread::scope(|scope| {
        let mut writer = stream.try_clone().expect("a handle");
        scope.spawn(move || {
            writer
                .write_all(&b"who?".repeat(requests))
                .expect("it is up")
        });
        let mut answers = vec![0; requests * 40];
        stream.read_exact(&mut answers).expect("all answers");
        assert!(
            answers
                .chunks(40)
                .all(|seen| String::from_utf8_lossy(seen).trim() == own)
        );
    });
    assert_eq!(intercepted(&world), count + 1);
    // The site has no address in those networks.
    assert_eq!(world.connect(), Outcome::Direct);

    // What goes direct looks the same.
    signal(&world.near, Signal::KILL);
    world.near.take().expect("it ran").wait().expect("it ends");
    eventually("connections that go direct", || {
        let open = clients
            .map(|(_, origin)| within(&world.behind, || TcpStream::connect((origin, 8080))).ok());
        let both = open.into_iter().zip(clients).all(|(stream, (own, _))| {
            stream.is_some_and(|mut stream| ask(&mut stream, own) == Outcome::Direct)
        });
        both.then_some(())
    });
    at_service(&world, &["off"]);
    assert_eq!(state(&world), before);
}

/// A client that only reads hangs otherwise: the origin's answers go past the far end.
#[test]
fn open_connections_are_reset_when_the_far_ends_rules_are_removed() {
    let Some(world) = World::of_own_addresses("in=lan port=8080-8085 client_address=keep") else {
        return;
    };
    let machine = Origin::start(&world);
    let stream_at = |port: u16| {
        let server = within(&machine.0, || TcpListener::bind((ORIGIN, port))).expect("a port");
        thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a client");
            while stream.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
    };
    for (port, is_flushed) in [(8081, false), (8082, true)] {
        world.intercept_far();
        world.intercept();
        eventually("a connection that is carried", || {
            let stream = within(&world.behind, || TcpStream::connect((ORIGIN, 8080)));
            let seen = ask(&mut stream.ok()?, BEHIND[0]);
            (seen == Outcome::Direct && intercepted(&world) > 0).then_some(())
        });
        stream_at(port);
        let mut reader =
            within(&world.behind, || TcpStream::connect((ORIGIN, port))).expect("it is up");
        reader.set_read_timeout(Some(HANGS_AFTER)).expect("a limit");
        reader.read_exact(&mut [0; 10]).expect("a stream");
        match is_flushed {
            true => within(&world.service, || {
                ok(Command::new("nft").args(["flush", "ruleset"]));
            }),
            false => drop(at_service(&world, &["off"])),
        }
        let label = if is_flushed { "flush" } else { "off" };
        read_until_reset(&mut reader, Duration::from_secs(8), label);
    }
}

#[test]
fn without_a_way_for_the_answers_connections_are_refused_at_once() {
    let Some(world) = World::of_own_addresses("in=lan port=8080 client_address=keep") else {
        return;
    };
    let _origin = Origin::start(&world);
    world.intercept();
    let reset = || {
        let stream = within(&world.behind, || TcpStream::connect((ORIGIN, 8080)));
        (intercepted(&world) > 0 && ask(&mut stream.ok()?, "") == Outcome::Reset).then_some(())
    };
    eventually("a connection that is refused", reset);
    // A setting that drops answers, and rules of the other end.
    let far = world.path("far.toml");
    let on = ["intercept", "on", "--far", "--config", far.as_str()];
    let setting = "/proc/sys/net/ipv4/conf/all/src_valid_mark";
    within(&world.service, || {
        std::fs::write(setting, "1").expect("root may")
    });
    for (namespace, reason) in [
        (&world.service, "src_valid_mark to 0"),
        (&world.site, "keeps the rules"),
    ] {
        let output = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{namespace}"))
            .arg(env!("CARGO_BIN_EXE_refrain"))
            .args(on)
            .output()
            .expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && error.contains(reason),
            "{error}"
        );
    }
    assert!(!state(&world).contains("2030"), "{}", state(&world));
}

#[test]
fn answers_that_take_another_way_are_named() {
    let Some(mut world) = World::of_own_addresses("in=lan port=8080 client_address=keep") else {
        return;
    };
    let machine = Origin::start(&world);
    world.change_far("connect_timeout = \"2s\"\n");
    world.intercept_far();
    // As another router would do that these packets do not get past.
    ok(Command::new("ip").args([
        "-n",
        &machine.0,
        "route",
        "add",
        "blackhole",
        "10.88.0.0/15",
    ]));
    world.intercept();
    let origin = SocketAddr::new(ORIGIN.parse().expect("an address"), 8080);
    eventually("a connection that is refused", || {
        // Those that go direct get no answer either.
        let within_a_second = Duration::from_secs(1);
        let stream = within(&world.behind, || {
            TcpStream::connect_timeout(&origin, within_a_second)
        });
        (ask(&mut stream.ok()?, "") == Outcome::Reset).then_some(())
    });
    for end in ["near", "far"] {
        eventually("the reason in the log", || {
            let log = std::fs::read_to_string(world.path(&format!("{end}.log"))).expect("a log");
            log.contains("its answers to the client must pass the machine of")
                .then_some(())
        });
    }
    let parts = ["took another way", "from 10.88.0.2", "client_address=keep"];
    doctor_of_far_end(&world).expect("problem", "answers", &parts);
}

#[test]
fn addresses_that_the_far_end_does_not_take_are_refused() {
    let Some(world) = World::of_own_addresses("in=lan port=8080 client_address=keep") else {
        return;
    };
    let _origin = Origin::start(&world);
    let far = world.path("far.toml");
    world.intercept_far();
    let options = std::fs::read_to_string(&far).expect("a file");
    let options = options.replace("10.88.0.0/15", "10.88.1.0/24");
    std::fs::write(&far, options).expect("a file");
    signal(&world.far, Signal::HUP);
    world.intercept();
    eventually("a connection that is refused", || {
        let stream = within(&world.behind, || TcpStream::connect((ORIGIN, 8080)));
        (ask(&mut stream.ok()?, "") == Outcome::Reset).then_some(())
    });
    eventually("the reason in the log", || {
        let log = std::fs::read_to_string(world.path("near.log")).expect("a log");
        log.contains("client-addresses").then_some(())
    });
}

#[test]
fn connections_that_are_direct_by_name_keep_the_address_too() {
    let Some(world) = World::of_own_addresses(
        "in=lan port=8080 name=bank.example action=direct client_address=keep\", \"in=lan port=8080",
    ) else {
        return;
    };
    let _origin = Origin::start(&world);
    world.intercept();
    let seen = |host: &str| {
        let mut stream = within(&world.behind, || TcpStream::connect((ORIGIN, 8080))).ok()?;
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").ok()?;
        let mut seen = [0; 40];
        stream.read_exact(&mut seen).ok()?;
        Some(String::from_utf8_lossy(&seen).trim().to_owned())
    };
    eventually("a connection that is carried", || {
        (seen("other.example").as_deref() == Some(SERVICE_THERE[0])).then_some(())
    });
    assert_eq!(seen("bank.example").as_deref(), Some(BEHIND[0]));
    let routes = within(&world.site, || {
        Command::new("ip").args(["rule", "list"]).output()
    });
    let routes = String::from_utf8(routes.expect("it runs").stdout).expect("a text");
    assert!(routes.contains("fwmark 0x7ee"), "{routes}");
    world.refrain_ok(&["intercept", "off"]);
    let routes = within(&world.site, || {
        Command::new("ip").args(["rule", "list"]).output()
    });
    let routes = String::from_utf8(routes.expect("it runs").stdout).expect("a text");
    assert!(!routes.contains("fwmark"), "{routes}");
}

#[test]
fn without_descriptors_the_far_end_names_its_limit_and_open_connections_continue() {
    let Some(world) = World::of_own_addresses("in=lan port=8080 client_address=keep") else {
        return;
    };
    let _origin = Origin::start(&world);
    world.intercept_far();
    world.intercept();
    let connect = || within(&world.behind, || TcpStream::connect((ORIGIN, 8080)));
    let mut open = eventually("a connection that is intercepted", || {
        let mut stream = connect().expect("the origin is up");
        assert_eq!(ask(&mut stream, BEHIND[0]), Outcome::Direct);
        (intercepted(&world) > 0).then_some(stream)
    });
    let far = world.far.as_ref().expect("it runs").id();
    let used = files_of(far);
    limit_files(far, used);
    // More than are free below.
    let idle: Vec<_> = (0..used).map(|_| connect()).collect();
    let log = eventually("a refusal", || {
        let _ = connect().map(|mut stream| ask(&mut stream, BEHIND[0]));
        let log = std::fs::read_to_string(world.path("far.log")).expect("a log");
        log.contains("refused a connection").then_some(log)
    });
    assert!(
        !log.contains("cannot connect from this client's address"),
        "{log}"
    );
    // For longer than it takes to look at the routes of open connections.
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(ask(&mut open, BEHIND[0]), Outcome::Direct);
    drop(idle);
}
