//! `refrain status` and `refrain check` find the gateways on this machine by themselves.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Output,
};

use crate::common::{
    addresses::free_address,
    command::{command, keygen},
    eventually,
    gateway::Gateway,
    http,
    site::{Pair, Site},
};

/// Runs `refrain` as somebody does whose gateways are those of the site.
fn at(site: &Site, arguments: &[&str]) -> Output {
    let mut command = command(arguments);
    let runtime = site.path("near.key").parent().expect("a folder").to_owned();
    command.env("XDG_RUNTIME_DIR", runtime);
    command.output().expect("the program runs")
}

#[track_caller]
fn succeeds(site: &Site, arguments: &[&str]) -> String {
    let done = at(site, arguments);
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {error}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[track_caller]
fn fails(site: &Site, arguments: &[&str], code: i32) -> String {
    let done = at(site, arguments);
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(code), "{arguments:?}: {error}");
    error
}

/// The error in the JSON that is printed.
fn reported(site: &Site, arguments: &[&str]) -> String {
    let json = at(site, arguments).stdout;
    let report: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    report["error"].as_str().expect("an error").to_owned()
}

fn sockets(site: &Site) -> Vec<PathBuf> {
    let files = fs::read_dir(site.path("refrain")).expect("the gateways' folder");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files
}

fn socket(site: &Site, role: &str, gateway: &Gateway) -> PathBuf {
    let name = format!("refrain/{role}-{}.sock", gateway.process());
    site.path(&name)
}

fn mode(path: &Path) -> u32 {
    let metadata = fs::symlink_metadata(path).expect("it exists");
    metadata.permissions().mode() & 0o777
}

#[test]
fn status_and_check_find_the_only_gateway_and_its_socket_goes_with_it() {
    let site = Site::new();
    let far = site.far(&[]);
    assert_eq!(mode(&site.path("refrain")), 0o700);
    assert_eq!(mode(&socket(&site, "far", &far)), 0o600);
    assert!(succeeds(&site, &["status"]).contains("\nfar end, up "));
    let json = succeeds(&site, &["status", "--json"]);
    assert!(json.contains(&site.near_key), "{json}");
    let error = fails(&site, &["check"], 1);
    assert!(error.contains("is a far end"), "{error}");
    assert!(error.contains(&reported(&site, &["check", "--json"])));
    drop(far);
    let mut near = site.near(free_address(), &["--socks5", "127.0.0.1:0"]);
    let near_socket = socket(&site, "near", &near);
    assert_eq!(sockets(&site), [near_socket], "the killed one's is removed");
    assert!(succeeds(&site, &["status"]).contains("\nnear end, up "));
    let error = fails(&site, &["check"], 1);
    assert!(error.contains("is down: cannot connect"), "{error}");
    near.signal("TERM");
    assert_eq!(near.wait_for_exit().code(), Some(0));
    assert!(sockets(&site).is_empty(), "{:?}", sockets(&site));
}

#[test]
fn of_several_gateways_one_is_chosen_and_a_check_is_of_the_near_end() {
    let mut pair = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    let site = &pair.site;
    let near = socket(site, "near", &pair.near).display().to_string();
    let far = socket(site, "far", &pair.far).display().to_string();
    let error = fails(site, &["status"], 2);
    for part in [&format!("--admin {near} "), &format!("--admin {far} ")] {
        assert!(error.contains(part.as_str()), "{part} is not in: {error}");
    }
    assert!(succeeds(site, &["status", "--admin", &far]).contains("\nfar end, up "));

    eventually("a round trip is measured", || {
        pair.near.peer().round_trip_ms
    });
    let shown = succeeds(site, &["check"]);
    let address = site.far_listen.to_string();
    for part in [&address, "is up", "round trip", "ms"] {
        assert!(shown.contains(part), "{part} is not in: {shown}");
    }
    let json = succeeds(site, &["check", "--json"]);
    let peer: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(peer["address"], address);
    assert!(
        peer["up"] == true && peer["round_trip_ms"].is_f64(),
        "{peer}"
    );
    assert!(fails(site, &["check", "--admin", &far], 1).contains("is a far end"));
    assert!(fails(site, &["check", "--rate", "1Mbit"], 2).contains("--peer"));

    // What a killed gateway left is no gateway.
    pair.far.kill();
    assert_eq!(sockets(site).len(), 2);
    assert!(succeeds(site, &["status"]).contains("\nnear end, up "));
    assert!(fails(site, &["status", "--admin", &far], 1).contains("no gateway answers"));
}

#[test]
fn a_gateway_that_does_not_answer_is_named_next_to_another_one() {
    let pair = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    let site = &pair.site;
    let admin = pair.far.admin.to_string();
    // A near end would be killed by its watchdog.
    pair.far.signal("STOP");
    let done = at(site, &["status"]);
    let of_address = at(site, &["status", "--admin", &admin]);
    pair.far.signal("CONT");
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{error}");
    let far = socket(site, "far", &pair.far).display().to_string();
    assert_eq!(of_address.status.code(), Some(1));
    for (place, said) in [(far, done.stderr), (admin, of_address.stderr)] {
        let error = String::from_utf8_lossy(&said);
        let named = format!(": connected to {place}, but no answer within ");
        assert!(error.contains(&named), "{error}");
        assert!(error.contains("is stopped or hangs"), "{error}");
    }
}

#[test]
fn a_local_socket_needs_no_token_and_the_admin_listener_does() {
    let site = Site::new();
    let token = site.write("token", "correct-horse-battery");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("its owner may");
    let far = site.far(&["--admin-token-file", &token]);
    let (code, _) = http::get(far.admin, "/status", None).expect("an answer");
    assert_eq!(code, 401);
    assert!(succeeds(&site, &["status"]).contains("\nfar end, up "));
}

#[test]
fn a_check_asks_an_admin_listener_with_its_token() {
    let site = Site::new();
    let token = site.write("token", "correct-horse-battery");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("its owner may");
    let options = ["--socks5", "127.0.0.1:0", "--admin-token-file", &token];
    let near = site.near(free_address(), &options);
    let admin = near.admin.to_string();
    let check = ["check", "--admin", &admin];
    assert!(fails(&site, &check, 1).contains("needs its admin token"));
    let other = site.write("other", "a file\nof several lines\n");
    let with_other = [&check[..], &["--admin-token-file", &other]].concat();
    assert!(fails(&site, &with_other, 1).contains("has no admin token"));
    let with_token = [&check[..], &["--admin-token-file", &token]].concat();
    let error = fails(&site, &with_token, 1);
    assert!(error.contains("is down: cannot connect"), "{error}");
}

#[test]
fn a_gateway_runs_without_a_local_socket() {
    let site = Site::new();
    // Where another user could put a socket of his own.
    fs::create_dir(site.path("refrain")).expect("a folder");
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(site.path("refrain"), open).expect("its owner may");
    let far = site.far(&[]);
    assert!(sockets(&site).is_empty());
    assert!(succeeds(&site, &["status", "--admin", &far.admin.to_string()]).contains("far"));
    assert!(!far.log().contains("WARN"), "{}", far.log());
}

#[test]
fn a_check_waits_for_its_far_end_and_for_nothing_that_answers() {
    let site = Site::new();
    let check = site.check();
    let mut check: Vec<_> = check.iter().map(String::as_str).collect();
    check.extend(["--wait", "30"]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| succeeds(&site, &check));
        let _far = site.far(&[]);
        let shown = waiting.join().expect("no panic");
        assert!(shown.contains("works"), "{shown}");
    });
    // Another gateway answers: to wait for it changes nothing.
    let other = keygen(&site.path("other.key"));
    let _other = site.far(&["--peer-key", &other]);
    let error = fails(&site, &check, 1);
    assert!(error.contains("refused this end's key"), "{error}");
    check.push("--json");
    assert!(error.contains(&reported(&site, &check)));
}
