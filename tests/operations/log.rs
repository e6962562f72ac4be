//! What the log says, how often, and that nothing waits for it.

use std::{
    fs::{self, File},
    io::{Seek, Write},
    net::TcpStream,
    os::{
        fd::OwnedFd,
        unix::{fs::MetadataExt, net::UnixStream},
    },
    process::Stdio,
};

use crate::common::{
    addresses::{forward, free_address},
    command::{command, keygen, refrain},
    eventually,
    gateway::Gateway,
    origin,
    site::{Pair, Site},
};

/// A standard error as a service manager gives it, full and with a reader that never reads.
fn stuck_stderr() -> (UnixStream, Stdio) {
    let (reader, mut writer) = UnixStream::pair().expect("a pair of sockets");
    writer.set_nonblocking(true).expect("a socket");
    for piece_bytes in [4096, 1] {
        while writer.write(&vec![b'.'; piece_bytes]).is_ok() {}
    }
    writer.set_nonblocking(false).expect("a socket");
    (reader, Stdio::from(OwnedFd::from(writer)))
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let (_reader, stderr) = stuck_stderr();
    // It serves /healthz, or this waits in vain.
    let mut far = site.far_with_stderr(stderr, &["--log", "debug"]);
    let near = site.near(site.far_listen, &["--forward", &option]);
    near.wait_until_up();
    assert!(origin::answers(listen));
    far.signal("TERM");
    assert_eq!(far.wait_for_exit().code(), Some(0));
}

#[test]
fn the_log_is_json_where_that_is_wanted() {
    let site = Site::new();
    let far = site.far(&["--json-log", "--log", "debug"]);
    let (_, option) = forward(origin::start());
    let near = site.near(site.far_listen, &["--forward", &option, "--json-log"]);
    near.wait_until_up();
    near.wait_for_log(&["the link is up"]);
    for mut gateway in [near, far] {
        gateway.signal("TERM");
        assert_eq!(gateway.wait_for_exit().code(), Some(0));
        for line in gateway.log().lines() {
            let targets = line.matches("\"target\":").count();
            assert_eq!(targets, 1, "names are there once: {line}");
            let line: serde_json::Value = serde_json::from_str(line).expect("an object a line");
            assert!(
                line["timestamp"].is_string() && line["level"].is_string(),
                "{line}"
            );
        }
    }
}

#[test]
fn lines_for_the_journal_have_a_priority_and_no_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let file = File::create(&log).expect("a log");
    let metadata = file.metadata().expect("a file");
    let (own, other) = (metadata.ino(), metadata.ino() + 1);
    let key = folder.path().join("key");
    keygen(&key);
    let public = keygen(&folder.path().join("peer"));
    for (inode, is_journal) in [(own, true), (other, false)] {
        let key = key.display().to_string();
        let listen = free_address().to_string();
        let options = [
            "far",
            "--key",
            &key,
            "--peer-key",
            &public,
            "--listen",
            &listen,
        ];
        let mut far = command(&options)
            .env("JOURNAL_STREAM", format!("{}:{inode}", metadata.dev()))
            .stderr(file.try_clone().expect("a handle"))
            .spawn()
            .expect("it runs");
        let text = eventually("a line of the log", || {
            let text = fs::read_to_string(&log).expect("a log");
            text.contains("listening").then_some(text)
        });
        far.kill().and_then(|()| far.wait()).expect("it runs");
        let begins = text.starts_with("<6> INFO refrain far");
        assert_eq!(begins, is_journal, "{text}");
        file.set_len(0).expect("a file");
        (&file).rewind().expect("a file");
    }
}

#[test]
fn a_crowd_of_strangers_costs_few_lines_of_the_log() {
    let site = Site::new();
    let far = site.far(&[]);
    for _ in 0..300 {
        let mut stranger = TcpStream::connect(site.far_listen).expect("it listens");
        stranger
            .write_all(b"GET / HTTP/1.1\r\n\r\n")
            .expect("a connection");
    }
    let counted = "more like it";
    far.wait_for_log(&["WARN", "127.0.0.1", counted]);
    let lines = far.log().matches("WARN").count();
    assert!(lines < 30, "{lines} lines for 300 strangers");
}

#[test]
fn both_logs_say_once_when_a_link_comes_and_when_it_goes() {
    let mut pair = Pair::start(&[], &["--socks5", &free_address().to_string()]);
    pair.near.wait_for_lanes(2);
    for (gateway, peer) in [
        (&pair.far, &pair.site.near_label()),
        (&pair.near, &pair.site.far_listen.to_string()),
    ] {
        gateway.wait_for_log(&["INFO", "the link is up", peer]);
        assert_eq!(gateway.log().matches("the link is up").count(), 1);
    }
    pair.near.kill();
    let down = "the link is down: the connection closed";
    pair.far
        .wait_for_log(&["INFO", down, &pair.site.near_label()]);
    assert_eq!(pair.far.log().matches(down).count(), 1);
}

#[test]
fn logs_and_tables_have_names_and_short_keys_and_json_has_whole_keys() {
    let site = Site::new();
    let other = keygen(&site.path("other.key"));
    let office = format!("office={}", site.near_key);
    let far = site.far(&["--peer-key", &office, "--peer-key", &other]);
    let hq = site.write("hq.keys", &format!("hq {}\n", site.far_key));
    let near = site.near(
        site.far_listen,
        &["--socks5", "127.0.0.1:0", "--peer-key", &hq],
    );
    near.wait_until_up();
    for (role, gateway, name, key) in [
        ("far", &far, "office", &site.near_key),
        ("near", &near, "hq", &site.far_key),
    ] {
        gateway.wait_for_log(&["INFO", "the link is up", &format!("peer={name}")]);
        let json = refrain(&["status", "--json", "--admin", &gateway.admin.to_string()]);
        let json = String::from_utf8_lossy(&json.stdout);
        let shown = refrain(&["status", "--admin", &gateway.admin.to_string()]);
        let shown = String::from_utf8_lossy(&shown.stdout);
        assert!(json.contains(key.as_str()), "{json}");
        assert!(shown.contains(name), "{shown}");
        for text in [&gateway.log(), &*shown] {
            assert!(
                !text.contains(key.as_str()) && !text.contains(&other),
                "{text}"
            );
        }
        if role == "far" {
            let short = format!("key:{} ", &other[..12]);
            assert!(shown.contains(&short), "{short} is not in\n{shown}");
        }
    }
    site.write("hq.keys", &format!("main {}\n", site.far_key));
    near.signal("HUP");
    eventually("it has another name", || {
        (near.peer().name.as_deref() == Some("main")).then_some(())
    });
}

/// A far end that is stopped says so. That it is gone then is news, and that it cannot be reached is none.
#[test]
fn a_far_end_that_stops_is_one_line_in_the_near_ends_log() {
    let mut pair = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    pair.near.wait_for_lanes(4);
    let before = pair.near.log().len();
    let news = |near: &Gateway| {
        let lines = near.log()[before..].to_owned();
        let is_news = |line: &&str| !line.contains("DEBUG") && !line.is_empty();
        lines
            .lines()
            .filter(is_news)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    pair.far.signal("TERM");
    assert_eq!(pair.far.wait_for_exit().code(), Some(0));
    eventually("the near end dials in vain", || {
        let error = pair.near.peer().last_error?;
        error.contains("cannot connect").then_some(())
    });
    let lines = news(&pair.near);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let expected = "the link is down: the far end has shut down";
    assert!(
        lines[0].contains("WARN") && lines[0].contains(expected),
        "{lines:?}"
    );

    pair.far.restart();
    pair.near.wait_until_up();
    let back = news(&pair.near);
    assert_eq!(back.len(), 2, "{back:?}");
    assert!(back[1].contains("the link is up"), "{back:?}");

    // One that comes back with another key is news, as is one that is killed.
    pair.far.signal("TERM");
    assert_eq!(pair.far.wait_for_exit().code(), Some(0));
    let key = pair.site.path("far.key");
    let own = std::fs::read(&key).expect("a key");
    let other = pair.site.path("other.key");
    keygen(&other);
    std::fs::copy(&other, &key).expect("a key");
    pair.far.restart();
    pair.near.wait_for_log(&["WARN", "not in --peer-key"]);
    pair.far.kill();
    std::fs::write(&key, own).expect("a key");
    pair.far.restart();
    pair.near.wait_for_lanes(4);
    let before = news(&pair.near).len();
    pair.far.kill();
    eventually("the near end dials in vain", || {
        let error = pair.near.peer().last_error?;
        error.contains("cannot connect").then_some(())
    });
    pair.far.restart();
    pair.near.wait_until_up();
    let lines = &news(&pair.near)[before..];
    let expected = ["the link is down: ", "the link is up"];
    let as_expected = lines
        .iter()
        .zip(expected)
        .all(|(line, part)| line.contains(part));
    assert!(as_expected && lines.len() == expected.len(), "{lines:?}");
}

#[test]
fn a_near_end_that_stops_is_one_line_in_the_far_ends_log() {
    let mut pair = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    pair.near.wait_for_lanes(4);
    eventually("the far end has all lanes", || {
        (pair.far.peer().lanes == 4).then_some(())
    });
    let before = pair.far.log().len();
    pair.near.signal("TERM");
    assert_eq!(pair.near.wait_for_exit().code(), Some(0));
    pair.far.wait_for_log(&["the link is down"]);
    let log = pair.far.log();
    let lines: Vec<_> = log[before..].lines().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn the_log_is_complete_when_the_program_ends() {
    let mut pair = Pair::start(&[], &["--socks5", &free_address().to_string()]);
    pair.far.signal("TERM");
    assert_eq!(pair.far.wait_for_exit().code(), Some(0));
    let log = pair.far.log();
    assert!(log.contains("draining"), "{log}");
    assert!(log.lines().any(|line| line.ends_with(" stopped")), "{log}");

    // A taken address of the admin page is the first thing that fails behind some lines.
    let taken = pair.near.admin.to_string();
    let key = pair.site.path("far.key").display().to_string();
    let mut far = command(&["far", "--key", &key, "--peer-key", &pair.site.near_key]);
    let options = ["--listen", "127.0.0.1:0", "--admin", &taken];
    let ended = far.args(options).output().expect("the program runs");
    let error = String::from_utf8_lossy(&ended.stderr);
    let lines: Vec<_> = error.lines().collect();
    assert!(lines[0].contains("refrain far "), "{error}");
    assert!(error.contains("targets that peers can reach"), "{error}");
    assert!(
        lines.last().is_some_and(|line| line.starts_with("error: ")),
        "{error}"
    );
}

/// Somebody tries the way: no link comes, and none goes. What a check sends is no traffic.
#[test]
fn a_check_is_logged_as_a_check_and_not_counted() {
    let site = Site::new();
    let far = site.far(&[]);
    let check = site.check();
    let checked = refrain(&check.each_ref().map(String::as_str));
    assert!(checked.status.success());
    far.wait_for_log(&["INFO", "`refrain check`", &site.near_label()]);
    let status = far.status();
    assert_eq!(status.peers.len(), 1, "{:?}", status.peers);
    let total = status.total;
    assert_eq!(total.sent.link_bytes + total.received.link_bytes, 0);
    eventually("the far end has forgotten it", || {
        (far.status().peers[0].down_s.is_none() && !far.peer().up).then_some(())
    });
    let log = far.log();
    assert!(!log.contains("the link is"), "{log}");
    assert!(!log.contains("WARN"), "{log}");
}
