//! What options keep a gateway from.

use std::time::{Duration, Instant};

use crate::{
    common::{
        addresses::{forward, free_address},
        origin,
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
        "no allow rule of this end",
        &pair.site.far_listen.to_string(),
        &target,
    ]);
    pair.far.wait_for_log(&[
        "refused a forwarded connection",
        "no allow rule of the other side",
        &listen,
        &target,
    ]);
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
