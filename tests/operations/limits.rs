//! What options keep a gateway from.

use std::{
    io::{self, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::{
    common::{
        addresses::{forward, free_address},
        eventually, origin,
        site::Pair,
    },
    is_refused,
};

#[test]
fn a_near_end_without_allow_rules_connects_nowhere_for_its_peer() {
    let target = origin::start();
    let (listen, option) = forward(target);
    let socks = free_address().to_string();
    let pair = Pair::start(&["--forward", &option], &["--socks5", &socks]);
    assert!(is_refused(listen));
    let (listen, target) = (listen.to_string(), target.to_string());
    pair.near.wait_for_log(&[
        "refused a connection for the peer",
        "this end does not allow",
        "--allow",
        &pair.site.far_listen.to_string(),
        &target,
    ]);
    pair.far.wait_for_log(&[
        "refused a forwarded connection",
        "the near end does not allow",
        "--allow",
        &listen,
        &target,
    ]);
}

/// A refusal names the limit, its value and its option, at both ends and to clients.
#[test]
fn a_link_has_as_many_flows_as_flows_max_says_and_a_refusal_says_so() {
    let limit = "at most 2 open connections per link (--flows-max)";
    for (far_options, near_options, of_end) in [
        (&["--flows-max", "2"][..], &[][..], "the far end"),
        (&[], &["--flows-max", "2"], "this end"),
    ] {
        let target = origin::start();
        let (listen, option) = forward(target);
        let proxy = free_address();
        let (proxy_text, forward) = (proxy.to_string(), ["--forward", &option]);
        let own = [&forward[..], &["--http-proxy", &proxy_text], near_options].concat();
        let pair = Pair::start(far_options, &own);
        let held: Vec<_> = (0..2)
            .map(|_| origin::ask(listen, "hold").expect("a listener"))
            .collect();
        eventually("both are open", || {
            (pair.far.peer().flows_open == 2).then_some(())
        });
        // Many at once, with bytes of their own: more than the lane keeps count of for two flows.
        // Some hear of it before they have asked.
        let many: Vec<_> = (0..60)
            .map(|_| origin::ask(listen, "send 1 100").ok())
            .collect();
        let named = format!("a limit of {of_end} was reached: {limit}");
        pair.near
            .wait_for_log(&["refused a forwarded connection", &named]);
        drop(many);
        let request = format!("GET http://{target}/ HTTP/1.0\r\nHost: {target}\r\n\r\n");
        let mut client = TcpStream::connect(proxy).expect("a listener");
        client.write_all(request.as_bytes()).expect("a connection");
        let answer = io::read_to_string(client).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains(&named), "{answer}");
        assert_eq!(pair.near.peer().counters.lanes_lost, 0);
        drop(held);
        eventually("there is room again", || {
            origin::answers(listen).then_some(())
        });
    }
}

#[test]
fn a_far_end_says_how_many_lanes_it_takes_and_what_sets_that() {
    let far = ["--lanes", "1", "--lanes-max", "2"];
    let pair = Pair::start(&far, &["--socks5", "127.0.0.1:0"]);
    let limit = ["too many lanes", "at most 2 per link"];
    pair.near
        .wait_for_log(&["the peer refused it", limit[0], limit[1]]);
    pair.far
        .wait_for_log(&["WARN", &pair.site.near_label(), limit[0], limit[1]]);
}

#[test]
fn rate_caps_what_the_link_takes() {
    const BYTES: usize = 500_000;
    let (listen, option) = forward(origin::start());
    let _pair = Pair::start(&["--rate", "4Mbit"], &["--forward", &option]);
    let began = Instant::now();
    let received = origin::fetch(listen, &format!("send 10 {BYTES}")).expect("no reset");
    let took = began.elapsed();
    assert_eq!(received.len(), BYTES);
    // Letters at random keep more than half of their bits in any encoding.
    let least = Duration::from_secs_f64(BYTES as f64 * 8.0 / 2.0 / 4e6);
    assert!(
        took > least,
        "{BYTES} bytes took {took:?}, at least {least:?} at this rate"
    );
}
