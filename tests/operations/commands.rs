//! `refrain keygen` and `refrain check`.

use std::{net::TcpListener, os::unix::fs::PermissionsExt, thread};

use crate::common::{
    command::{command, refrain, refrain_fails},
    site::Site,
};

#[test]
fn keygen_writes_a_private_file_once() {
    let site = Site::new();
    let path = site.path("near.key");
    let mode = std::fs::metadata(&path)
        .expect("it exists")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let public = site.path("near.key.pub");
    let mode = std::fs::metadata(&public)
        .expect("it exists")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o644);
    let text = std::fs::read_to_string(&public).expect("all may read it");
    assert_eq!(text.trim(), site.near_key);
    let other = site.write("other.key.pub", "somebody's");
    let (code, error) = refrain_fails(&["keygen", &site.path("other.key").display().to_string()]);
    assert_eq!(code, 1);
    assert!(
        error.contains(&other) && error.contains("already exists"),
        "{error}"
    );
    assert!(!site.path("other.key").exists(), "nothing was made");
    let before = std::fs::read(&path).expect("its owner may read it");
    let (code, error) = refrain_fails(&["keygen", &path.display().to_string()]);
    assert_eq!(code, 1);
    assert!(error.contains("already exists"), "{error}");
    assert_eq!(std::fs::read(&path).expect("still there"), before);
    let shown = refrain(&["keygen", "--show", &path.display().to_string()]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout).trim(), site.near_key);
    let (code, error) = refrain_fails(&["keygen", "--show", &public.display().to_string()]);
    assert!(
        code == 1 && error.contains("is the public key already"),
        "{error}"
    );
}

#[test]
fn keygen_writes_no_private_key_to_standard_output() {
    let site = Site::new();
    let folder = site.path("near.key").parent().expect("a folder").to_owned();
    for arguments in [&["keygen", "-"][..], &["keygen", "--show", "-"]] {
        let run = command(arguments).current_dir(&folder).output();
        let run = run.expect("the program runs");
        let error = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{error}");
        assert!(error.contains("must be a file"), "{error}");
        assert!(run.stdout.is_empty() && !site.path("-").exists());
    }
}

#[test]
fn check_says_whether_the_pair_works_and_how_fast_the_way_is() {
    let site = Site::new();
    let _far = site.far(&[]);
    let command = site.check();
    let human = thread::spawn({
        let command = command.clone();
        move || refrain(&command.each_ref().map(String::as_str))
    });
    // The two disturb each other's measurement, which is not what is tested.
    let json = refrain(&[&command.each_ref().map(String::as_str)[..], &["--json"]].concat());
    assert!(
        json.status.success(),
        "{}",
        String::from_utf8_lossy(&json.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    for rate in ["receive_mbit_per_s", "send_mbit_per_s"] {
        assert!(
            report[rate].as_f64().is_some_and(|rate| rate > 0.0),
            "{report}"
        );
    }
    let times: Vec<f64> =
        serde_json::from_value(report["round_trips_ms"].clone()).expect("round trips");
    let smoothed = report["round_trip_ms"].as_f64().expect("a round trip");
    assert!(times.is_sorted() && times[0] <= smoothed, "{report}");
    assert!(
        times.last().is_some_and(|&last| smoothed <= last),
        "{report}"
    );
    let human = human.join().expect("no panic");
    let text = String::from_utf8_lossy(&human.stdout);
    for part in ["works", "round trip", "throughput", "bit/s"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_check_without_a_far_end_says_how_long_it_waited() {
    let site = Site::new();
    let check = site.check();
    let check = check.each_ref().map(String::as_str);
    let (code, error) = refrain_fails(&[&check[..], &["--wait", "0.3"]].concat());
    assert_eq!(code, 1, "{error}");
    let address = site.far_listen.to_string();
    for part in [
        &address,
        "is refrain far running",
        "; still failing after 300ms",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    assert!(!error.contains("os error"), "{error}");
}

#[test]
fn a_check_of_a_port_that_hangs_up_asks_whether_it_is_the_far_ends() {
    let site = Site::new();
    let other = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = other.local_addr().expect("an address");
    thread::spawn(move || other.incoming().flatten().for_each(drop));
    let check = site.check_of(address, "near.key", &site.far_key);
    let (code, error) = refrain_fails(&check.each_ref().map(String::as_str));
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("is this the --listen port"), "{error}");
}

#[test]
fn a_near_end_that_requires_its_peer_ends_without_it_and_with_a_code_of_its_own() {
    let site = Site::new();
    let (peer, key) = (site.far_listen.to_string(), site.path("near.key"));
    let key = key.display().to_string();
    let near = ["near", "--peer", &peer, "--key", &key, "--peer-key"];
    let near = [&near[..], &[&site.far_key, "--socks5", "127.0.0.1:0"]].concat();
    for options in [
        &["--require-peer=0.3"][..],
        &["--require-peer", "--connect-timeout", "300ms"],
    ] {
        let (code, error) = refrain_fails(&[&near, options].concat());
        assert_eq!(code, 3, "{error}");
        let last = error.lines().last().unwrap_or_default();
        assert!(last.contains("no link to the peer within 300ms"), "{error}");
        assert!(last.contains("cannot connect"), "{error}");
    }

    // With its peer it runs on, after it has gone too.
    let mut far = site.far(&[]);
    let options = ["--socks5", "127.0.0.1:0", "--require-peer=30"];
    let mut near = site.near(site.far_listen, &options);
    near.wait_until_up();
    far.kill();
    near.wait_for_log(&["the link is down"]);
    far.restart();
    near.wait_until_up();
    near.signal("TERM");
    assert_eq!(near.wait_for_exit().code(), Some(0));
}
