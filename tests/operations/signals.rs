//! SIGTERM drains and SIGHUP reloads.

use std::{
    io::{ErrorKind, Read},
    net::Shutdown,
};

use refrain_relay::{LinkConfig, Rate};

use crate::{
    cable::Cable,
    common::{
        addresses::{forward, free_address},
        command::keygen,
        content, digest, eventually,
        http::HandMadeClient,
        origin::{self, Download},
        site::{Pair, Site},
    },
    is_refused,
};

#[test]
fn sigterm_at_the_near_end_lets_open_flows_finish() {
    let (listen, option) = forward(origin::start());
    let mut pair = Pair::start(&[], &["--forward", &option]);
    let download = Download::begin(listen);
    pair.near.signal("TERM");
    eventually("new connections are refused", || {
        is_refused(listen).then_some(())
    });
    download.finish();
    assert_eq!(pair.near.wait_for_exit().code(), Some(0));
}

#[test]
fn sigterm_at_the_far_end_lets_open_flows_finish() {
    let (listen, option) = forward(origin::start());
    let mut pair = Pair::start(&[], &["--forward", &option]);
    let download = Download::begin(listen);
    pair.far.signal("TERM");
    eventually("new connections are refused", || {
        is_refused(listen).then_some(())
    });
    download.finish();
    assert_eq!(pair.far.wait_for_exit().code(), Some(0));
}

#[test]
fn a_drain_delivers_what_is_still_on_its_way() {
    const BYTES: usize = 300_000;
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let slow = LinkConfig {
        rate: Some(Rate::mbit(4)),
        ..LinkConfig::default()
    };
    let cable = Cable::to(site.far_listen, slow);
    let mut far = site.far(&[]);
    let near = site.near(cable.relay.address(), &["--forward", &option]);
    near.wait_until_up();
    // The client's end comes first, so that the origin's is the flow's last word.
    let mut stream = origin::ask(listen, &format!("send 8 {BYTES}")).expect("a listener");
    stream.shutdown(Shutdown::Write).expect("a connection");
    let mut received = vec![0; 1];
    stream.read_exact(&mut received).expect("the first byte");
    far.signal("TERM");
    stream.read_to_end(&mut received).expect("no reset");
    assert_eq!(digest(&received), digest(&content::letters(8, BYTES)));
    assert_eq!(far.wait_for_exit().code(), Some(0));
}

#[test]
fn a_second_sigterm_stops_at_once() {
    let (listen, option) = forward(origin::start());
    let mut pair = Pair::start(&[], &["--forward", &option]);
    let mut held = origin::ask(listen, "hold").expect("a listener");
    eventually("the flow is open", || {
        (pair.near.peer().flows_open == 1).then_some(())
    });
    pair.near.signal("TERM");
    pair.near.wait_for_log(&["draining"]);
    pair.near.signal("TERM");
    assert_eq!(pair.near.wait_for_exit().code(), Some(0));
    let mut end = Vec::new();
    // An end or a reset, but no hanging.
    let ended = held.read_to_end(&mut end);
    assert!(!ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
}

#[test]
fn sighup_adds_a_peer_without_dropping_a_flow() {
    let target = origin::start();
    let (listen, option) = forward(target);
    let (second_listen, second_option) = forward(target);
    let site = Site::new();
    let second_key = keygen(&site.path("second.key"));
    let peers = site.write("peers", &format!("{} first\n", site.near_key));
    let far = site.far(&["--peer-key", &peers]);
    let near = site.near(site.far_listen, &["--forward", &option]);
    near.wait_until_up();
    let second = site.near_with_key(
        "second.key",
        site.far_listen,
        &["--forward", &second_option],
    );
    second.wait_for_log(&["refused this end's key"]);

    let download = Download::begin(listen);
    site.write(
        "peers",
        &format!("{} first\n{second_key} second\n", site.near_key),
    );
    far.signal("HUP");
    far.wait_for_log(&["no --config", "reloaded only"]);
    eventually("the second near end works", || {
        origin::answers(second_listen).then_some(())
    });
    download.finish();
}

#[test]
fn sighup_cuts_off_a_removed_peer_and_no_other() {
    let target = origin::start();
    let (listen, option) = forward(target);
    let (second_listen, second_option) = forward(target);
    let proxy = free_address();
    let site = Site::new();
    let second_key = keygen(&site.path("second.key"));
    let both = format!("{} first\n{second_key} second\n", site.near_key);
    let peers = site.write("peers", &both);
    let far = site.far(&["--peer-key", &peers]);
    let near = site.near(site.far_listen, &["--forward", &option]);
    let proxy_option = proxy.to_string();
    let second = site.near_with_key(
        "second.key",
        site.far_listen,
        &["--forward", &second_option, "--http-proxy", &proxy_option],
    );
    near.wait_until_up();
    second.wait_until_up();

    let download = Download::begin(listen);
    let mut held = origin::ask(second_listen, "hold").expect("a listener");
    eventually("the flow is open", || {
        (second.peer().flows_open == 1).then_some(())
    });
    site.write("peers", &format!("{} first\n", site.near_key));
    far.signal("HUP");
    far.wait_for_log(&["second", "its key was removed"]);
    let ended = held.read_to_end(&mut Vec::new());
    assert!(ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    // At once, not at the next ping.
    second.wait_for_log(&["a connection to the far end", "the peer ended the link"]);
    second.wait_for_log(&["refused this end's key"]);
    assert!(!origin::answers(second_listen));
    let get = format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n");
    let is_down = "the link to the far end is down";
    eventually("a refusal has the reason", || {
        let (head, body) = HandMadeClient::say(proxy, &get).answer();
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        body.contains(is_down).then_some(())
    });
    second.wait_for_log(&["refused a connection to", &proxy_option, is_down]);
    let log = far.log();
    assert!(!log.contains("a connection from second"), "{log}");
    download.finish();
    assert_eq!(near.peer().counters.lanes_lost, 0);
}

#[test]
fn sighup_adds_a_rule_and_a_broken_file_changes_nothing() {
    let target = origin::start();
    let (listen, option) = forward(target);
    let site = Site::new();
    let config = |allowed: &str| {
        format!(
            "peer_key = [\"{}\"]\nallow = [\"{allowed}\"]\n",
            site.near_key
        )
    };
    let file = site.write("far.toml", &config("127.0.0.1:1"));
    let far = site.far(&["--config", &file]);
    let near = site.near(site.far_listen, &["--forward", &option]);
    near.wait_until_up();
    assert!(!origin::answers(listen), "the target is not allowed yet");

    site.write("far.toml", &config(&target.to_string()));
    far.signal("HUP");
    eventually("the target is allowed", || {
        origin::answers(listen).then_some(())
    });

    let download = Download::begin(listen);
    site.write("far.toml", "allow = [\"127.0.0.1:1\"]\nalow = []\n");
    far.signal("HUP");
    far.wait_for_log(&["kept the old configuration", "far.toml:2", "alow", "allow"]);
    assert!(origin::answers(listen), "the old rules still hold");
    download.finish();
    assert_eq!(near.peer().counters.lanes_lost, 0);
}
