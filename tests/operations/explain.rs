//! `refrain explain`: the reasons why flows were not saved.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use refrain_gateway::explain::{Cause, Explanation};

use crate::common::{
    addresses::forward,
    command::{refrain, refrain_fails},
    content::{Content, Kind},
    eventually,
    gateway::Gateway,
    origin,
    server::serve,
    site::Pair,
};

/// Explanations of a gateway, once it has as many of them.
fn explained(gateway: &Gateway, arguments: &[&str], count: usize) -> Vec<Explanation> {
    let admin = gateway.admin.to_string();
    let arguments = [&["explain", "--json", "--admin", &admin], arguments].concat();
    eventually("the flows have ended", || {
        let output = refrain(&arguments);
        let all: Option<Vec<Explanation>> = serde_json::from_slice(&output.stdout).ok();
        all.filter(|all| all.len() == count)
    })
}

fn text_of(gateway: &Gateway, arguments: &[&str]) -> String {
    let admin = gateway.admin.to_string();
    let output = refrain(&[&["explain", "--admin", &admin], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// A server whose answer is the content with the number that it is asked for.
fn contents(all: Vec<Vec<u8>>) -> SocketAddr {
    serve(move |mut client| {
        let mut number = [0];
        client.read_exact(&mut number)?;
        client.write_all(&all[usize::from(number[0])])
    })
}

fn fetch(address: SocketAddr, number: u8) -> Vec<u8> {
    let mut client = TcpStream::connect(address).expect("the near end listens");
    client.write_all(&[number]).expect("it reads");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("the answer");
    answer
}

fn content(seed: u64, kind: Kind, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Content::new(seed, kind).fill(0, &mut content);
    content
}

fn greatest(causes: &[Cause]) -> &Cause {
    causes.first().expect("something was sent")
}

#[test]
fn a_flow_is_explained_at_both_ends() {
    let text = content(1, Kind::Letters, 3_000_000);
    let mut packed = content(2, Kind::Noise, 300_000);
    packed.splice(..0, *b"\x1f\x8b\x08\0");
    let mut encrypted = content(3, Kind::Noise, 20_000);
    encrypted.splice(..0, *b"\x16\x03\x03\x40\0\x02\0\x3f\xfc\x03\x03");
    let others = content(4, Kind::Letters, 2_000_000);
    let all = vec![text, packed, encrypted, others];
    let (listen, option) = forward(contents(all.clone()));
    let cache = ["--cache-size", "1MiB", "--effort", "max"];
    let pair = Pair::start(&cache, &[&cache[..], &["--forward", &option]].concat());
    // Later ones find nothing of it in the cache.
    for number in [0, 3, 0, 1, 2] {
        assert!(fetch(listen, number) == all[usize::from(number)]);
    }
    let far = explained(&pair.far, &[], 5);
    let near = explained(&pair.near, &[], 5);
    for explanation in far.iter().chain(&near) {
        let flow = &explanation.flow;
        for (causes, counts) in [
            (&explanation.sent, &flow.sent),
            (&explanation.received, &flow.received),
        ] {
            let sum: u64 = causes.iter().map(|cause| cause.link_bytes).sum();
            assert_eq!(sum, counts.link_bytes, "causes add up: {explanation:?}");
        }
    }
    // The last is first, and both ends know a flow by one number.
    let numbers = |all: &[Explanation]| all.iter().map(|it| it.flow.id).collect::<Vec<_>>();
    assert_eq!(numbers(&far), numbers(&near));
    let causes = |all: &[Explanation]| {
        let all = all.iter().map(|it| match it.flow.opened.as_str() {
            "in" => greatest(&it.sent).cause.clone(),
            _ => greatest(&it.received).cause.clone(),
        });
        all.collect::<Vec<_>>()
    };
    assert_eq!(
        causes(&far),
        ["encrypted", "compressed", "evicted", "new", "new"]
    );
    assert_eq!(
        causes(&near),
        ["encrypted", "compressed", "new", "new", "new"]
    );

    let evicted = greatest(&far[2].sent);
    assert!(
        evicted.link_bytes * 10 > far[2].flow.sent.link_bytes * 8,
        "{evicted:?}"
    );
    let enough = evicted.sufficient_cache_bytes;
    assert!(
        enough == Some(4 << 20) || enough == Some(8 << 20),
        "{evicted:?}"
    );
    let advice = far[2].advice.as_ref().expect("there is a setting");
    assert!(advice.setting.starts_with("--cache-size "), "{advice:?}");
    assert_eq!(greatest(&near[1].received).formats, ["gzip"]);
    let advice = near[1].advice.as_ref().expect("there is a setting");
    assert_eq!(advice.setting, "--http-proxy PORT");
    let advice = near[0].advice.as_ref().expect("there is a setting");
    assert_eq!(advice.setting, "--open NAME", "its target has no name");

    let number = far[2].flow.id.to_string();
    let shown = text_of(&pair.far, &[&number]);
    for part in [
        &format!("flow {number}: "),
        "opened at the other end, ended ",
        "the cache of 1.05 MB did not have it any more",
        "to save more: --cache-size ",
        "headers of frames",
    ] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
    assert!(text_of(&pair.far, &["--last"]).contains("encrypted (TLS)"));
    let list = text_of(&pair.far, &[]);
    assert_eq!(list.lines().count(), 6, "{list}");
    assert!(list.contains("evicted"), "{list}");
}

#[test]
fn open_flows_are_explained_and_unknown_ones_are_named() {
    let (listen, option) = forward(origin::start());
    let pair = Pair::start(&[], &["--forward", &option]);
    let admin = pair.near.admin.to_string();
    assert!(text_of(&pair.near, &[]).contains("no flow has ended yet"));
    let (code, error) = refrain_fails(&["explain", "--last", "--admin", &admin]);
    assert!(
        code == 1 && error.contains("no flow has ended yet"),
        "{error}"
    );
    let download = origin::Download::begin(listen);
    let number = pair.near.status().flows[0].id.to_string();
    let open = explained(&pair.near, &[&number], 1);
    assert!(open[0].ended_s.is_none() && open[0].flow.received.app_bytes > 0);
    assert!(text_of(&pair.near, &[&number]).contains("opened at this end, open for "));
    download.finish();
    let (code, error) = refrain_fails(&["explain", "4711", "--admin", &admin]);
    assert!(
        code == 1 && error.contains("no flow with the number 4711"),
        "{error}"
    );
    for wrong in [
        &["explain", "-1"][..],
        &["explain", "7", "--last"],
        &["explain", "seven"],
    ] {
        assert_eq!(refrain_fails(wrong).0, 2);
    }
}

/// Memory is bounded, and old flows make place.
#[test]
fn the_last_thousand_flows_are_kept() {
    let (listen, option) = forward(contents(vec![b"short".to_vec()]));
    let pair = Pair::start(&[], &["--forward", &option]);
    let first = fetch(listen, 0);
    assert_eq!(first, b"short");
    let number = explained(&pair.far, &[], 1)[0].flow.id.to_string();
    explained(&pair.far, &[&number], 1);
    for _ in 0..1001 {
        fetch(listen, 0);
    }
    let admin = pair.far.admin.to_string();
    eventually("the first is forgotten", || {
        let output = refrain(&["explain", &number, "--admin", &admin]);
        (!output.status.success()).then_some(())
    });
    assert_eq!(explained(&pair.far, &[], 20).len(), 20);
}
