//! `refrain doctor`: a pair that works has no problem, and each thing that is broken is found, with the next step.

use std::{fs, io::ErrorKind, net::TcpListener, os::unix::fs::PermissionsExt};

use crate::common::{
    addresses::free_address,
    command::{command, keygen},
    doctor::Findings,
    site::{Pair, Site},
};

/// The report of somebody whose gateways are those of the site.
fn doctor(site: &Site, arguments: &[&str]) -> Findings {
    let mut command = command(&[&["doctor", "--json"], arguments].concat());
    let runtime = site.path("near.key").parent().expect("a folder").to_owned();
    command.env("XDG_RUNTIME_DIR", runtime);
    Findings::of(&command.output().expect("the program runs"))
}

/// Writes the file of a near end with this peer and its key, and further lines.
fn near_file(site: &Site, peer: &str, peer_key: &str, lines: &str) -> String {
    let key = site.path("near.key").display().to_string();
    let text = format!("key = \"{key}\"\npeer = \"{peer}\"\npeer_key = \"{peer_key}\"\n{lines}");
    site.write("near.toml", &text)
}

#[test]
fn a_pair_that_works_has_no_problem() {
    let pair = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    let site = &pair.site;
    let socks5 = pair.near.status().listeners[0].address;
    let lines = format!("socks5 = \"{socks5}\"\n");
    let far = site.far_listen.to_string();
    let file = near_file(site, &far, &site.far_key, &lines);
    let found = doctor(site, &["--config", &file]);
    assert_eq!(found.problems(), [""; 0]);
    let process = pair.near.process().to_string();
    found.expect("ok", "running", &["near end", &process]);
    found.expect("ok", "running", &["far end"]);
    found.expect("ok", "link", &[&far, "up", "lane"]);
    found.expect("ok", "open files", &["near end"]);
    found.expect("ok", "listener", &[&socks5.to_string(), &process]);
    found.expect("ok", "in use", &["near end"]);
    found.expect("ok", "peer", &[&far, "round trip", "large packets pass"]);
    found.expect("ok", "route", &["127.0.0.1 from 127.0.0.1"]);

    let key = site.path("far.key").display().to_string();
    let text = format!(
        "key = \"{key}\"\npeer_key = \"{}\"\nlisten = \"{far}\"\n",
        site.near_key
    );
    let found = doctor(site, &["--config", &site.write("far.toml", &text)]);
    assert_eq!(found.problems(), [""; 0]);
    let process = pair.far.process().to_string();
    found.expect("ok", "listener", &[&far, &process]);
    assert_eq!(doctor(site, &[]).problems(), [""; 0]);

    // As people read it.
    let mut command = command(&["doctor"]);
    let output = command.env("XDG_RUNTIME_DIR", pair.near.folder()).output();
    let text = String::from_utf8(output.expect("it runs").stdout).expect("text");
    assert!(text.starts_with("0 problems, "), "{text}");
    assert!(text.contains("\ngateways\n  ok       running"), "{text}");
}

#[test]
fn what_is_wrong_with_a_peer_is_found() {
    let pair = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    let site = &pair.site;
    let far = site.far_listen.to_string();
    let other = keygen(&site.path("other.key"));
    let file = near_file(site, &far, &other, "");
    let found = doctor(site, &["--config", &file]);
    assert_eq!(found.problems().len(), 1);
    found.expect(
        "problem",
        "peer",
        &["presented key", &site.far_key, "correct `peer_key`"],
    );
    found.expect("note", "in use", &["other peers"]);

    let nobody = free_address().to_string();
    let file = near_file(site, &nobody, &site.far_key, "");
    let found = doctor(site, &["--config", &file]);
    assert_eq!(found.problems().len(), 1);
    found.expect(
        "problem",
        "peer",
        &[&nobody, "connection refused", "start the far end"],
    );

    // The far end does not know this key.
    let text = fs::read_to_string(near_file(site, &far, &site.far_key, "")).expect("a file");
    let file = site.write("near.toml", &text.replace("near.key", "other.key"));
    let found = doctor(site, &["--config", &file]);
    found.expect(
        "problem",
        "peer",
        &["refused this end's key", &other, "SIGHUP"],
    );

    // One that takes connections, and does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address").to_string();
    let file = near_file(site, &address, &site.far_key, "");
    let found = doctor(site, &["--config", &file]);
    found.expect("problem", "peer", &[&address, "hangs"]);
}

#[test]
fn what_is_wrong_with_a_file_is_found() {
    let site = Site::new();
    let far = site.far_listen.to_string();
    let file = near_file(&site, &far, &site.far_key, "");
    let found = doctor(&site, &["--config", &file]);
    let others = fs::read_dir("/run/refrain").map(|mut files| files.next().is_some());
    match others {
        // A user may not look at the gateways of a service.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            found.expect("skipped", "running", &["no gateway found here"]);
        }
        Ok(true) => println!("skipped: other gateways may run on this machine"),
        _ => found.expect("problem", "running", &["no gateway found here"]),
    }
    found.expect("note", "options", &["no listener for applications"]);

    let key = site.path("near.key");
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&key, open).expect("its owner may");
    let found = doctor(&site, &["--config", &file]);
    found.expect(
        "problem",
        "file",
        &["other users can read this secret", "chmod 600", "--dry-run"],
    );
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&key, private).expect("its owner may");

    let file = near_file(&site, &far, &site.near_key, "");
    let found = doctor(&site, &["--config", &file]);
    found.expect("problem", "file", &["public key of this end's own --key"]);

    let file = near_file(&site, &far, &site.far_key, "socks6 = \"1080\"\n");
    let found = doctor(&site, &["--config", &file]);
    found.expect("problem", "file", &[":4: ", "socks6"]);

    let missing = site.path("missing.toml").display().to_string();
    let found = doctor(&site, &["--config", &missing]);
    found.expect("problem", "file", &["does not exist", &missing]);

    // A port of another program, and an address of another machine.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("its address").to_string();
    let lines = format!(
        "socks5 = \"{address}\"\nhttp_proxy = \"192.0.2.1:3128\"\nclients = [\"192.0.2.0/24\"]\nstore = \"{file}\"\n"
    );
    let file = near_file(&site, &far, &site.far_key, &lines);
    let found = doctor(&site, &["--config", &file]);
    let own = std::process::id().to_string();
    found.expect(
        "problem",
        "listener",
        &[&address, &own, "choose another port"],
    );
    found.expect(
        "problem",
        "listener",
        &["192.0.2.1:3128", "does not have that address"],
    );
    found.expect("problem", "store", &["not a directory"]);
}

#[test]
fn a_gateway_without_a_local_socket_here_is_not_to_be_stopped() {
    let pair = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    let site = &pair.site;
    let socks5 = pair.near.status().listeners[0].address.to_string();
    let lines = format!("socks5 = \"{socks5}\"\n");
    let far = site.far_listen.to_string();
    let file = near_file(site, &far, &site.far_key, &lines);
    let mut command = command(&["doctor", "--json", "--config", &file]);
    let elsewhere = tempfile::tempdir().expect("a folder");
    command.env("XDG_RUNTIME_DIR", elsewhere.path());
    let found = Findings::of(&command.output().expect("it runs"));
    let process = format!("process {}", pair.near.process());
    let running = [process.as_str(), "no local socket", "/run/refrain"];
    found.expect("problem", "running", &running);
    let listener = [socks5.as_str(), &process, "no local socket"];
    found.expect("note", "listener", &listener);
    assert!(!found.has("listener", "stop that process"));
}

#[test]
fn gateways_that_hang_or_have_no_link_are_found() {
    let mut pair = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    let site = &pair.site;
    // A near end would be killed by its watchdog.
    pair.far.signal("STOP");
    let found = doctor(site, &[]);
    let advice = format!("kill -CONT {}", pair.far.process());
    found.expect("problem", "running", &["no answer within", &advice]);
    pair.far.signal("CONT");
    pair.near.wait_until_up();

    pair.near.kill();
    let site = &pair.site;
    let file = near_file(
        site,
        &site.far_listen.to_string(),
        &site.far_key,
        "socks5 = \"1\"\n",
    );
    let found = doctor(site, &["--config", &file]);
    found.expect("problem", "in use", &["no near end runs here", "start it"]);

    let near = site.near(free_address(), &["--socks5", "127.0.0.1:0"]);
    near.wait_for_log(&["cannot connect"]);
    let found = doctor(site, &[]);
    found.expect(
        "problem",
        "link",
        &["down", "connection refused", "--config FILE"],
    );
}
