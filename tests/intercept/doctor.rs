//! `refrain doctor` about interception.

use std::process::{Child, Command};

use rustix::process::Signal;

use crate::{
    common::{doctor::Findings, eventually},
    failing::signal,
    rules::ControlGroup,
    world::{BEHIND, ORIGIN, Outcome, World, connect, ok, within},
};

pub(crate) fn doctor(world: &World) -> Findings {
    doctor_of(world, &world.path("near.toml"))
}

/// About the gateway with this file.
fn doctor_of(world: &World, config: &str) -> Findings {
    Findings::of(&world.refrain(&["doctor", "--json", "--config", config]))
}

/// About the far end, on its machine.
pub(crate) fn doctor_of_far_end(world: &World) -> Findings {
    doctor_at_service(world, &["--config", &world.path("far.toml")])
}

fn doctor_at_service(world: &World, arguments: &[&str]) -> Findings {
    let output = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{}", world.service))
        .arg(env!("CARGO_BIN_EXE_refrain"))
        .args(["doctor", "--json"])
        .args(arguments)
        .env("XDG_RUNTIME_DIR", world.folder())
        .output();
    Findings::of(&output.expect("it runs"))
}

/// Changes the file of the near end.
fn change(world: &World, old: &str, new: &str) {
    let config = world.path("near.toml");
    let text = std::fs::read_to_string(&config).expect("its file");
    assert!(text.contains(old), "{text}");
    std::fs::write(&config, text.replace(old, new)).expect("its file");
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
    let for_another = ["intercept", "on", "--config", &config, "--user", "64001"];
    world.keep(&world.site, &for_another);
    let found = doctor(&world);
    found.expect("problem", "gate", &["closed", "as user 64001"]);
    found.expect(
        "problem",
        "listener",
        &[
            "intercepted again",
            "refrain intercept off, then refrain intercept on",
            "--user 64999",
        ],
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
    world.intercept_with(&["--rule", "port=9999"]);
    let found = is_healthy(&world);
    found.expect("note", "rules", &["not in the file: port=9999"]);
    change(&world, "8080-8099", "8080-8098");
    let found = doctor(&world);
    found.expect(
        "problem",
        "rules",
        &["not loaded: port=8080-8098", "load the rules again"],
    );

    let theirs = "table ip nat {\nchain OUTPUT {\ntype nat hook output priority -100\ntcp dport 80 redirect to :8080\n}\n}";
    within(&world.site, || ok(Command::new("nft").arg(theirs)));
    doctor(&world).expect("note", "other rules", &["table ip nat", "OUTPUT"]);
}

#[test]
fn a_far_end_whose_connections_would_come_back_to_it_is_found() {
    let Some(world) = World::new() else {
        return;
    };
    world.intercept();
    world.wait_for(Outcome::Carried);
    let text = std::fs::read_to_string(world.path("far.toml")).expect("its file");
    let text = text.replace("10.77.0.2", "127.0.0.1");
    std::fs::write(world.path("other.toml"), text).expect("its file");
    let far = Ended(world.gateway_with("other", &world.site, "far"));
    eventually("a far end on the near end's machine", || {
        // Both ends of the pair have their sockets in the same folder.
        (doctor(&world).count("running") == 3).then_some(())
    });
    // As the near end's user, it may run there.
    assert!(!doctor(&world).has("far end", ""));
    let load = |config: &str| {
        let words = ["intercept", "on", "--user", "64001", "--config", config];
        let mut command = world.command(&words);
        let command = command.env("XDG_RUNTIME_DIR", world.folder());
        world.keep_by(&world.site, command)
    };
    let config = world.path("near.toml");
    let said = load(&config);
    let process = format!("process {}", far.0.id());
    let parts = [&process, "come back to it", "CAP_NET_RAW"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    doctor(&world).expect("problem", "far end", &parts);
    // Rules that are about other programs only.
    change(&world, "port=8080-8099", "port=8080-8099 uid=64002");
    assert!(!load(&config).contains("come back to it"));
    assert!(!doctor(&world).has("far end", ""));
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn rules_of_another_near_end_are_told_from_those_of_a_foreign_program() {
    let Some(world) = World::new() else {
        return;
    };
    world.open();
    is_healthy(&world);
    let other = world.path("other.toml");
    let text = std::fs::read_to_string(world.path("near.toml")).expect("its file");
    let text = text.replace("15001", "15201");
    std::fs::write(&other, text).expect("a file");
    let found = doctor_of(&world, &other);
    let process = world.near.as_ref().expect("it runs").id().to_string();
    found.expect(
        "problem",
        "listener",
        &[
            "another near end",
            "port 15001",
            &process,
            "port 15201",
            "load the rules",
        ],
    );
}

#[test]
fn a_change_of_names_needs_no_other_rules() {
    let rules = "in=lan port=8080 name=a.example action=direct\", \"in=lan port=8080";
    let Some(world) = World::router_with(rules) else {
        return;
    };
    world.intercept();
    is_healthy(&world);
    change(&world, "name=a.example", "name=b.example,*.c.example");
    let found = is_healthy(&world);
    assert!(!found.has("rules", "not in the file"));
    change(&world, "port=8080", "port=8081");
    doctor(&world).expect(
        "problem",
        "rules",
        &["not loaded: port=8081 in=lan name=b.example"],
    );
}

#[test]
fn connections_that_are_reset_do_not_go_direct() {
    let rules = "intercept = [\"dst=10.77.0.0/16 port=8080 on_failure=reset\"]\n";
    let Some(mut world) = World::with(&format!("transparent = \"15001\"\n{rules}")) else {
        return;
    };
    world.intercept();
    world.wait_for(Outcome::Carried);
    is_healthy(&world);
    world.refrain_ok(&["bypass", "on"]);
    world.wait_until_closed();
    assert_eq!(world.connect(), Outcome::Carried);
    let still = ["closed", "connections still go through the near end"];
    doctor(&world).expect("note", "gate", &still);
    world.refrain_ok(&["bypass", "off"]);

    signal(&world.near, Signal::KILL);
    world.near.take().expect("it runs").wait().expect("it ends");
    world.wait_until_closed();
    assert_eq!(world.connect(), Outcome::Refused);
    let found = doctor(&world);
    found.expect(
        "problem",
        "gate",
        &["no near end", "connections are refused"],
    );
    assert!(!found.has("gate", "go direct"));
}

#[test]
fn what_a_far_end_lacks_for_clients_addresses_is_found() {
    let Some(world) = World::of_own_addresses("in=lan port=8080 client_address=keep") else {
        return;
    };
    let refused = ["are refused", "refrain intercept on --far"];
    eventually("a far end that was found", || {
        let found = doctor_of_far_end(&world);
        found.expect("problem", "answers", &refused);
        found.has("running", "far end").then_some(())
    });
    // Without its file, it may be another far end.
    let found = doctor_at_service(&world, &[]);
    found.expect("note", "answers", &["CAP_NET_RAW", "if its file has"]);
    world.intercept_far();
    assert!(!doctor_at_service(&world, &[]).has("answers", "CAP_NET_RAW"));
    let found = doctor_of_far_end(&world);
    assert_eq!(found.problems(), [""; 0]);
    found.expect("ok", "answers", &["come to this machine"]);
    assert!(!found.has("gate", "closed"));

    for arguments in ["-4 rule del pref 2030", "-6 route flush table 2030"] {
        // It would soon bring them back.
        world.signal_keeper(&world.service, Signal::STOP);
        within(&world.service, || {
            ok(Command::new("ip").args(arguments.split(' ')))
        });
        let found = doctor_of_far_end(&world);
        world.signal_keeper(&world.service, Signal::CONT);
        found.expect(
            "problem",
            "answers",
            &[&arguments[..2], "2030", refused[0], refused[1]],
        );
        assert_eq!(found.problems().len(), 1, "{arguments}");
        world.intercept_far();
        assert_eq!(doctor_of_far_end(&world).problems(), [""; 0]);
    }
    world.signal_keeper(&world.service, Signal::KILL);
    doctor_of_far_end(&world).expect("problem", "answers", &["has ended", refused[1]]);
    within(&world.service, || {
        ok(Command::new("nft").args(["flush", "ruleset"]))
    });
    doctor_of_far_end(&world).expect("problem", "answers", &refused);
}

#[test]
fn control_groups_that_do_not_exist_and_a_process_that_was_killed_are_found() {
    let rules = "intercept = [\"port=8080\", \"port=8080 cgroup=refrain-test-never\"]\n";
    let Some(world) = World::with(&format!("transparent = \"15001\"\n{rules}")) else {
        return;
    };
    // Without control groups of version 2, the file's rule is a problem.
    if doctor(&world).has("control group", "mount control groups") {
        println!("skipped: no control groups of version 2");
        return;
    }
    world.intercept();
    is_healthy(&world).expect(
        "note",
        "control group",
        &["refrain-test-never", "start its service"],
    );
    world.signal_keeper(&world.site, Signal::KILL);
    let found = doctor(&world);
    found.expect("problem", "rules", &["has ended", "refrain intercept on"]);
    assert!(!found.has("rules", "refrain intercept off"));
}

#[test]
fn a_control_group_that_is_gone_is_noted_once() {
    let Some(group) = ControlGroup::new("gone") else {
        return;
    };
    let rules = format!(
        "intercept = [\"port=8080 cgroup={}\", \"port=8080\"]\n",
        group.name
    );
    let Some(world) = World::with(&format!("transparent = \"15001\"\n{rules}")) else {
        return;
    };
    world.intercept();
    assert_eq!(is_healthy(&world).count("control group"), 0);
    std::fs::remove_dir(&group.folder).expect("it is empty");
    let found = doctor(&world);
    found.expect("note", "control group", &[&group.name, "does not exist"]);
    assert_eq!(found.count("control group"), 1);
    // Without the file, only the loaded rule has its name.
    let found = Findings::of(&world.refrain(&["doctor", "--json"]));
    found.expect("note", "control group", &[&group.name, "is gone"]);
    assert_eq!(found.count("control group"), 1);
}

#[test]
fn an_input_filter_that_drops_redirected_connections_is_noted() {
    let Some(world) = World::router_with("in=lan,lan9 port=8080-8099") else {
        return;
    };
    world.intercept();
    let found = is_healthy(&world);
    found.expect("note", "interface", &["lan9"]);
    assert!(!found.has("interface", "\"lan\""));
    assert!(!found.has("input filter", ""));
    let load = |script: &str| within(&world.site, || ok(Command::new("nft").arg(script)));
    let chain = "type filter hook input priority 0; policy drop; ct state established,related accept; iifname lo accept";
    load(&format!(
        "table inet theirs {{ chain input {{ {chain}; iifname wan accept; }}; }}"
    ));
    let carried = || within(&world.behind, || connect(BEHIND[0], ORIGIN));
    eventually("a connection that hangs", || {
        (carried() == Outcome::Hung).then_some(())
    });
    doctor(&world).expect(
        "note",
        "input filter",
        &["inet theirs", "(15001)", "from lan"],
    );
    load("insert rule inet theirs input iifname { lan, lan9 } tcp dport { 15001 } accept");
    eventually("a connection that is carried", || {
        (carried() == Outcome::Carried).then_some(())
    });
    assert!(!doctor(&world).has("input filter", ""));
}

#[test]
fn what_a_router_lacks_is_found() {
    let Some(world) = World::router() else {
        return;
    };
    world.intercept();
    let found = is_healthy(&world);
    found.expect("ok", "forwarding", &["forwards IPv4"]);
    assert_eq!(found.count("clients"), 0);
    change(&world, "\"10.88.0.0/15\", ", "");
    let found = doctor(&world);
    found.expect("note", "clients", &["10.88.0.0/16", "come in by lan"]);
    assert_eq!(found.count("clients"), 1);
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
