//! Which connections the rules are about, and what loads and removes them.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
};

use crate::world::{HANGS_AFTER, USER, World, ok, within};

#[test]
fn rules_and_tables_of_others_are_left_alone() {
    let Some(world) = World::new() else { return };
    let theirs = "add table inet refrain { comment \"theirs\"; }";
    within(&world.site, || ok(Command::new("nft").arg(theirs)));
    let before = world.ruleset();
    let config = world.path("near.toml");
    for arguments in [
        &["intercept", "on", "--config", &config, "--user", USER][..],
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
    let printed = world.refrain_ok(&[
        "intercept",
        "on",
        "--config",
        &config,
        "--user",
        USER,
        "--dry-run",
    ]);
    assert!(printed.starts_with("table inet refrain {"), "{printed}");
}

#[test]
fn rules_reject_and_reload_without_harm_to_others() {
    let Some(world) = World::new() else {
        return;
    };
    let config = world.path("near.toml");
    let on = ["intercept", "on", "--config", &config, "--user", USER];
    let reject = [
        &on[..],
        &["--rule", "dst=10.77.0.0/16 port=9000 action=reject"],
    ]
    .concat();
    world.refrain_ok(&reject);
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
    // What cannot be loaded replaces nothing.
    let loaded = world.refrain_ok(&["intercept", "show", "--json"]);
    let wrong = [&on[..], &["--rule", "uid=no-such-user"]].concat();
    let output = world.refrain(&wrong);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("uid=no-such-user"), "{error}");
    let handles = |json: &str| json.matches("\"handle\"").count();
    let still = world.refrain_ok(&["intercept", "show", "--json"]);
    assert_eq!(handles(&still), handles(&loaded));
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
