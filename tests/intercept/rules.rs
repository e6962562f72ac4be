//! Which connections the rules are about, and what loads and removes them.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    common::eventually,
    doctor::doctor,
    failing::signal,
    world::{
        BEHIND, HANGS_AFTER, ORIGIN, ORIGIN_6, Outcome, SITE, SITE_6, World, ask, connect,
        connect_from, keeper::on, ok, within,
    },
};

#[test]
fn rules_and_tables_of_others_are_left_alone() {
    let Some(world) = World::new() else { return };
    let theirs = "add table inet refrain { comment \"theirs\"; }";
    within(&world.site, || ok(Command::new("nft").arg(theirs)));
    let before = world.ruleset();
    let config = world.path("near.toml");
    for arguments in [
        &on(&config, &[])[..],
        &["intercept", "off"],
        &["intercept", "show"],
    ] {
        let output = world.refrain(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("this command did not make"), "{error}");
    }
    assert_eq!(world.ruleset(), before);
    // Without root, nothing is tried.
    let printed = world.refrain_ok(&on(&config, &["--dry-run"]));
    assert!(printed.starts_with("table inet refrain {"), "{printed}");
}

#[test]
fn rules_reject_and_reload_without_harm_to_others() {
    let Some(world) = World::new() else {
        return;
    };
    let config = world.path("near.toml");
    world.intercept_with(&["--rule", "dst=10.77.0.0/16 port=9000 action=reject"]);
    let service = within(&world.service, || TcpListener::bind("10.77.0.2:9000")).expect("a port");
    let refused = within(&world.site, || TcpStream::connect("10.77.0.2:9000"));
    assert_eq!(
        refused.expect_err("refused").kind(),
        ErrorKind::ConnectionRefused
    );
    drop(service);
    // A server here still answers clients of that network.
    let server = within(&world.site, || TcpListener::bind("10.77.0.1:9000")).expect("a port");
    let client = within(&world.service, || {
        let server: SocketAddr = "10.77.0.1:9000".parse().expect("an address");
        TcpStream::connect_timeout(&server, HANGS_AFTER)
    });
    client.expect("a connection from outside");
    drop(server);
    // There is one process that keeps rules, and what cannot be loaded replaces nothing.
    let rules = || {
        let json = world.refrain_ok(&["intercept", "show", "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let rules = shown["rules"].as_array().expect("rules").iter();
        rules
            .map(|rule| rule["rule"].as_str().expect("a text").to_owned())
            .collect::<Vec<_>>()
    };
    let loaded = rules();
    assert_eq!(
        loaded,
        [
            "port=9000 dst=10.77.0.0/16 action=reject",
            "port=8080-8099 dst=10.77.0.0/16,fd77::/64 action=optimize"
        ]
    );
    for (rule, reason) in [
        ("uid=no-such-user", "no user is named \"no-such-user\""),
        ("gid=no-such-group", "no group is named \"no-such-group\""),
        ("port=1", "keeps the rules"),
    ] {
        let output = world.refrain(&on(&config, &["--rule", rule]));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(reason), "{error}");
        assert_eq!(rules(), loaded);
    }
    // A saved ruleset can be loaded again.
    let saved = world.ruleset();
    std::fs::write(world.path("saved.nft"), saved).expect("a file");
    within(&world.site, || {
        ok(Command::new("nft")
            .args(["--check", "-f"])
            .arg(world.path("saved.nft")));
    });
    world.refrain_ok(&["intercept", "off"]);
}

#[test]
fn quic_is_rejected_while_connections_are_carried() {
    let Some(world) = World::with(
        "transparent = \"15001\"
         intercept = [
             \"dst=10.77.0.3 action=direct\",
             \"dst=10.77.0.2 port=443 name=*.bank.example action=direct\",
             \"dst=10.77.0.0/16 port=443,8080 quic=reject\",
         ]\n",
    ) else {
        return;
    };
    let other = [
        "-n",
        &world.service,
        "address",
        "add",
        "10.77.0.3/16",
        "dev",
        "wan",
    ];
    ok(Command::new("ip").args(other));
    for address in ["10.77.0.2:443", "10.77.0.2:444", "10.77.0.3:443"] {
        let server = within(&world.service, || UdpSocket::bind(address)).expect("a port");
        std::thread::spawn(move || {
            let mut bytes = [0; 8];
            while let Ok((length, client)) = server.recv_from(&mut bytes) {
                let _ = server.send_to(&bytes[..length], client);
            }
        });
    }
    let answers = |server: &str| {
        let socket = within(&world.site, || UdpSocket::bind("10.77.0.1:0")).expect("a port");
        socket.set_read_timeout(Some(HANGS_AFTER)).expect("a limit");
        socket.connect(server).expect("a route");
        let answer = socket.send(b"hello").and_then(|_| socket.recv(&mut [0; 8]));
        answer.map_err(|error| error.kind())
    };
    assert_eq!(answers("10.77.0.2:443"), Ok(5));
    world.intercept();
    world.wait_for(Outcome::Carried);
    // The sender of a packet that its own kernel rejects gets one of two errors.
    let rejected = answers("10.77.0.2:443").expect_err("rejected");
    assert!(
        matches!(
            rejected,
            ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied
        ),
        "{rejected:?}"
    );
    assert_eq!(answers("10.77.0.2:444"), Ok(5));
    doctor(&world).expect("ok", "QUIC", &["no data"]);
    assert_eq!(answers("10.77.0.3:443"), Ok(5));
    // The headers of IPv4 and UDP, and 5 bytes.
    doctor(&world).expect("note", "QUIC", &["33 B were received", "quic=reject"]);
    world.refrain_ok(&["bypass", "on"]);
    eventually("QUIC that passes", || answers("10.77.0.2:443").ok());
}

#[test]
fn connections_of_both_families_are_carried() {
    let Some(world) = World::new() else { return };
    assert_eq!(
        within(&world.site, || connect(SITE_6, ORIGIN_6)),
        Outcome::Direct
    );
    world.intercept();
    world.wait_for(Outcome::Carried);
    assert_eq!(
        within(&world.site, || connect(SITE_6, ORIGIN_6)),
        Outcome::Carried
    );
    world.refrain_ok(&["bypass", "on"]);
    world.wait_for(Outcome::Direct);
    assert_eq!(
        within(&world.site, || connect(SITE_6, ORIGIN_6)),
        Outcome::Direct
    );
}

#[test]
fn connections_of_machines_behind_a_router_are_carried() {
    let Some(mut world) = World::router() else {
        return;
    };
    let [address, address_6] = BEHIND;
    let both = |world: &World| {
        within(&world.behind, || {
            [connect(address, ORIGIN), connect(address_6, ORIGIN_6)]
        })
    };
    assert_eq!(both(&world), [Outcome::Direct; 2]);
    world.intercept();
    eventually("a connection of each family that is carried", || {
        (both(&world) == [Outcome::Carried; 2]).then_some(())
    });
    // Programs of the router itself are none of the rule's.
    assert_eq!(world.connect(), Outcome::Direct);
    // Others may not use the near end, and reach nothing.
    let others = within(&world.service, || {
        let near: SocketAddr = "10.77.0.1:15001".parse().expect("an address");
        let mut stream = TcpStream::connect(near).expect("it listens");
        ask(&mut stream, "")
    });
    assert_eq!(others, Outcome::Reset);
    signal(&world.near, Signal::KILL);
    world.near.take().expect("it ran").wait().expect("it ends");
    eventually("connections that go direct", || {
        (both(&world) == [Outcome::Direct; 2]).then_some(())
    });
}

/// The firewall tracks no connections before the first rule that needs it, and then takes them for new ones.
#[test]
fn connections_that_were_open_before_continue() {
    for (world, own) in [(World::new(), SITE), (World::router(), BEHIND[0])] {
        let Some(world) = world else { return };
        let namespace = match own == SITE {
            true => &world.site,
            false => &world.behind,
        };
        let mut open = within(namespace, || TcpStream::connect(ORIGIN)).expect("it is up");
        world.intercept();
        eventually("a connection that is carried", || {
            let found = within(namespace, || connect(own, ORIGIN));
            (found == Outcome::Carried).then_some(())
        });
        assert_eq!(ask(&mut open, own), Outcome::Direct);
    }
}

/// As after a change of the file and a reload, which does not change where the near end listens.
#[test]
fn connections_of_other_machines_go_direct_if_the_near_end_takes_none() {
    let Some(world) = World::router_with("in=lan port=8080\", \"port=8080") else {
        return;
    };
    let config = world.path("near.toml");
    let text = std::fs::read_to_string(&config).expect("a file");
    let text = text.replace("clients = [", "clients = [\"127.0.0.1\", ");
    let without = text
        .replace("*:15001", "15001")
        .replace("\"in=lan port=8080\", ", "");
    std::fs::write(&config, without).expect("a file");
    let world = world.restarted_with("net_raw");
    eventually("a near end that has read its file", || {
        let log = std::fs::read_to_string(world.path("near.log")).expect("a log");
        log.contains("address=127.0.0.1:15001").then_some(())
    });
    std::fs::write(&config, text).expect("a file");
    world.intercept();
    world.wait_for(Outcome::Carried);
    for _ in 0..20 {
        let found = within(&world.behind, || connect(BEHIND[0], ORIGIN));
        assert_eq!(found, Outcome::Direct);
    }
    let shown = world.refrain_ok(&["intercept", "show"]);
    assert!(
        shown.contains("direct until the near end is restarted"),
        "{shown}"
    );
}

#[test]
fn rules_that_reset_are_never_direct() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.intercept_with(&["--rule", "dst=10.77.0.0/16 port=8080 on_failure=reset"]);
    world.wait_for(Outcome::Carried);
    signal(&world.near, Signal::KILL);
    world.near.take().expect("it ran").wait().expect("it ends");
    let outcomes = world.meanwhile(|| {});
    assert!(!outcomes.is_empty());
    let is_reset = |outcome: &Outcome| matches!(outcome, Outcome::Refused | Outcome::Reset);
    assert!(outcomes.iter().all(is_reset), "{outcomes:?}");
    world.start_near();
    world.wait_for(Outcome::Carried);
}

#[test]
fn rules_tell_connections_apart_by_source_port() {
    let Some(world) = World::new() else { return };
    world.intercept_with(&["--rule", "port=8080 sport=5000-5001,5003 action=direct"]);
    world.wait_for(Outcome::Carried);
    let from = |port| within(&world.site, || connect_from(SITE, port, ORIGIN));
    let outcomes = [4999, 5000, 5001, 5002, 5003].map(from);
    let (direct, carried) = (Outcome::Direct, Outcome::Carried);
    assert_eq!(outcomes, [carried, direct, direct, carried, direct]);
}

#[test]
fn rules_tell_programs_apart_by_user_group_and_control_group() {
    let Some(world) = World::new() else { return };
    let (user, other) = ("64001", "64002");
    let of = |user: &str, group: &str| {
        world.program(&[
            "setpriv",
            "--reuid",
            user,
            "--regid",
            group,
            "--clear-groups",
        ])
    };
    // In front of the file's rule, so that all that is not direct is carried.
    let cases = [
        (
            format!("uid={user} action=direct"),
            (user, other),
            (other, user),
        ),
        (
            format!("gid={user} action=direct"),
            (other, user),
            (user, other),
        ),
    ];
    for (rule, direct, carried) in cases {
        world.intercept_with(&["--rule", &rule]);
        world.wait_for(Outcome::Carried);
        assert_eq!(of(direct.0, direct.1), Outcome::Direct, "{rule}");
        assert_eq!(of(carried.0, carried.1), Outcome::Carried, "{rule}");
    }
    let Some(group) = ControlGroup::new("rules") else {
        return;
    };
    let rule = format!("cgroup={} action=direct", group.name);
    world.intercept_with(&["--rule", &rule]);
    world.wait_for(Outcome::Carried);
    assert_eq!(group.program(&world), Outcome::Direct, "{rule}");
}

/// A control group of the test.
pub(crate) struct ControlGroup {
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
}

impl ControlGroup {
    /// None where there is no version 2 that can be written.
    pub(crate) fn new(name: &str) -> Option<ControlGroup> {
        let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
        let mount = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (_, folder, kind) = (words.next()?, words.next()?, words.next()?);
            (kind == "cgroup2").then(|| folder.to_owned())
        })?;
        let name = format!("refrain-test-{}-{name}", std::process::id());
        let folder = Path::new(&mount).join(&name);
        if let Err(error) = std::fs::create_dir(&folder) {
            println!("skipped: cannot make a control group in {mount}: {error}");
            return None;
        }
        Some(ControlGroup { folder, name })
    }

    /// Another group of the same name, as after a restart of a service.
    fn make_again(&self) {
        // Its last process may still be ending.
        eventually("the group to be empty", || {
            std::fs::remove_dir(&self.folder).ok()
        });
        std::fs::create_dir(&self.folder).expect("it was made before");
    }

    /// A program in the group connects.
    fn program(&self, world: &World) -> Outcome {
        let enter = format!(
            "echo $$ > {}/cgroup.procs && exec \"$@\"",
            self.folder.display()
        );
        world.program(&["sh", "-c", &enter, "sh"])
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[test]
fn of_rules_that_contradict_each_other_the_first_counts_and_the_others_are_named() {
    let Some(world) = World::new() else { return };
    let before = world.ruleset();
    let config = world.path("near.toml");
    let of_file = "port=8080-8099 dst=10.77.0.0/16,fd77::/64 action=optimize";
    for (rules, hidden, outcome) in [
        (
            &["port=8000-8100 action=direct"][..],
            (of_file, "port=8000-8100 action=direct"),
            Outcome::Direct,
        ),
        (
            &["port=8080", "dst=10.77.0.2 port=8080 action=direct"],
            (
                "port=8080 dst=10.77.0.2 action=direct",
                "port=8080 action=optimize",
            ),
            Outcome::Carried,
        ),
    ] {
        let mut command = world.keeping(&world.site);
        command.args(on(&config, &[]));
        command.args(rules.iter().flat_map(|rule| ["--rule", rule]));
        let said = world.keep_by(&world.site, &mut command);
        let (hidden, earlier) = hidden;
        for part in [
            format!("\"{hidden}\" never"),
            format!("\"{earlier}\" before"),
        ] {
            assert!(said.contains(&part), "{part} is not in: {said}");
        }
        assert_eq!(said.matches("never matches").count(), 1, "{said}");
        eventually("an open gate", || {
            let shown = world.refrain_ok(&["intercept", "show"]);
            shown.starts_with("gate open").then_some(())
        });
        assert_eq!(world.connect(), outcome, "{rules:?}");
    }
    world.refrain_ok(&["intercept", "off"]);
    assert_eq!(world.ruleset(), before);
}

#[test]
fn rules_that_are_kept_follow_control_groups_and_come_back() {
    let Some(world) = World::new() else { return };
    let before = world.ruleset();
    let config = world.path("near.toml");
    let group = ControlGroup::new("kept");
    let rule = group
        .as_ref()
        .map(|group| format!("cgroup={} action=direct", group.name));
    let mut command = world.keeping(&world.site);
    command.args(on(&config, &[]));
    if let (Some(group), Some(rule)) = (&group, &rule) {
        std::fs::remove_dir(&group.folder).expect("it is empty");
        command.args(["--rule", rule]);
    }
    let said = world.keep_by(&world.site, &mut command);
    assert_eq!(said.contains("does not exist"), group.is_some(), "{said}");
    world.wait_for(Outcome::Carried);
    if let Some(group) = &group {
        std::fs::create_dir(&group.folder).expect("it was made before");
        for _ in 0..2 {
            eventually("a rule that follows the group", || {
                (group.program(&world) == Outcome::Direct).then_some(())
            });
            world.wait_for(Outcome::Carried);
            group.make_again();
        }
    }
    for flush in [
        &["flush", "ruleset"][..],
        &["flush", "table", "inet", "refrain"],
    ] {
        within(&world.site, || ok(Command::new("nft").args(flush)));
        world.wait_for(Outcome::Carried);
    }
    // SIGHUP reads the file again.
    let text = std::fs::read_to_string(&config).expect("a file");
    let wrong = text.replace("port=8080-8099", "port=none");
    let other = text.replace("port=8080-8099", "port=8090");
    for (text, outcome) in [(wrong, Outcome::Carried), (other, Outcome::Direct)] {
        std::fs::write(&config, text).expect("a file");
        world.signal_keeper(&world.site, Signal::HUP);
        std::thread::sleep(std::time::Duration::from_secs(1));
        assert_eq!(world.connect(), outcome);
    }
    world.end_keeping(&world.site);
    assert_eq!(world.ruleset(), before);
}

#[test]
fn one_process_keeps_the_rules_and_off_ends_it() {
    let Some(world) = World::new() else { return };
    let before = world.ruleset();
    let config = world.path("near.toml");
    let start = || {
        let mut command = world.command(&on(&config, &[]));
        command.stderr(Stdio::piped()).spawn().expect("it runs")
    };
    let mut all = vec![start(), start(), start()];
    let mut others = Vec::new();
    eventually("one that is left", || {
        let has_ended = |child: &mut Child| child.try_wait().expect("a child").is_some();
        others.extend(all.extract_if(.., |child| has_ended(child)));
        (others.len() == 2).then_some(())
    });
    let kept = all.pop().expect("one of three");
    assert_eq!(world.ruleset().matches("update @alive").count(), 2);
    for other in others {
        let output = other.wait_with_output().expect("it ended");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        let keeps = format!("process {} keeps the rules", kept.id());
        assert!(error.contains(&keeps), "{error}");
    }
    world.refrain_ok(&["intercept", "off"]);
    let output = kept.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(world.ruleset(), before);

    // One that was killed leaves its rules, for `off` and for the next one.
    for _ in 0..2 {
        world.intercept();
        world.signal_keeper(&world.site, Signal::KILL);
        assert_ne!(world.ruleset(), before);
    }
    world.wait_for(Outcome::Carried);
    world.refrain_ok(&["intercept", "off"]);
    assert_eq!(world.ruleset(), before);
}
