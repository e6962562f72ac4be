//! A near end of several far ends: which of them new flows go to, and what becomes of those in flight.

mod common;

use std::net::SocketAddr;

use common::{
    addresses::{forward, free_address},
    command::{keygen, refrain, refrain_fails},
    eventually,
    gateway::Gateway,
    http,
    origin::{self, Download, answers},
    read,
    site::Site,
};

/// A near end of two far ends, which are called `first` and `second`.
struct Trio {
    near: Gateway,
    first: Gateway,
    second: Gateway,
    site: Site,
    /// Where both far ends listen.
    listen: [SocketAddr; 2],
    second_key: String,
}

impl Trio {
    fn start(options: &[&str]) -> Trio {
        let site = Site::new();
        let second_key = keygen(&site.path("second.key"));
        let listen = [site.far_listen, free_address()];
        let first = site.far(&[]);
        let second = site.further_far("second.key", listen[1], &[]);
        let peers = [
            ("first", listen[0], site.far_key.as_str()),
            ("second", listen[1], &second_key),
        ];
        let near = site.near_of(&peers, options);
        let trio = Trio {
            near,
            first,
            second,
            listen,
            second_key,
            site,
        };
        trio.wait_until_up([true, true]);
        trio
    }

    #[track_caller]
    fn wait_until_up(&self, expected: [bool; 2]) {
        eventually(&format!("the links are up: {expected:?}"), || {
            let peers = self.near.status().peers;
            let up: Vec<bool> = peers.iter().map(|peer| peer.up).collect();
            (up == expected).then_some(())
        });
    }

    /// Which peer takes a new flow at `entrance`, which stays open meanwhile.
    fn peer_of(&self, entrance: SocketAddr) -> String {
        let download = Download::begin(entrance);
        let flows = self.near.status().flows;
        assert_eq!(flows.len(), 1, "{flows:?}");
        download.finish();
        eventually("the flow is over", || {
            self.near.status().flows.is_empty().then_some(())
        });
        flows[0].peer.clone()
    }

    /// Who takes new flows, and why.
    fn turns(&self) -> Vec<(bool, String)> {
        let peers = self.near.status().peers.into_iter();
        let turns = peers.map(|peer| peer.serves.zip(peer.serves_reason));
        turns.map(|turn| turn.expect("of a near end")).collect()
    }

    fn metric(&self, name: &str, peer: &str) -> Option<String> {
        let (_, page) = http::get(self.near.admin, "/metrics", None).expect("a page");
        let start = format!("{name}{{peer=\"{peer}\"}} ");
        let mut lines = page.lines();
        lines.find_map(|line| Some(line.strip_prefix(&start)?.to_owned()))
    }
}

#[test]
fn new_flows_go_to_the_first_peer_that_is_up() {
    let (entrance, option) = forward(origin::start());
    let (only_first, first_option) = forward(origin::start());
    let mut trio = Trio::start(&[
        "--forward",
        &option,
        "--forward",
        &format!("{first_option}@first"),
        "--memory",
        "200MiB",
    ]);
    let turn = |serves, reason: &str| (serves, reason.to_owned());
    let [standby, down] = [
        turn(false, "one before it is up"),
        turn(false, "it is down"),
    ];
    let first = [turn(true, "it is up and first in order"), standby];
    assert_eq!(trio.turns(), first);
    assert_eq!(trio.peer_of(entrance), "first");
    assert_eq!(trio.peer_of(only_first), "first");
    assert_eq!(
        trio.metric("refrain_peer_serves", "first").as_deref(),
        Some("1")
    );
    assert_eq!(
        trio.metric("refrain_peer_serves", "second").as_deref(),
        Some("0")
    );
    let memory = trio.near.status().memory;
    assert!(memory.reserved_bytes <= 200 << 20, "{memory:?}");

    // What is in flight ends with its peer; what is new goes to the next.
    let mut in_flight = origin::ask(entrance, "hold").expect("it listens");
    eventually("the flow is open", || {
        (trio.first.status().flows.len() == 1).then_some(())
    });
    trio.first.kill();
    assert!(read(&mut in_flight, &mut [0]).is_err(), "it is reset");
    trio.wait_until_up([false, true]);
    assert_eq!(
        trio.turns(),
        [down, turn(true, "it is the first that is up")]
    );
    assert_eq!(trio.peer_of(entrance), "second");
    assert!(!answers(only_first), "it goes to no other peer");
    assert_eq!(
        trio.metric("refrain_peer_serves", "second").as_deref(),
        Some("1")
    );
    let shown = refrain(&["status", "--admin", &trio.near.admin.to_string()]);
    let text = String::from_utf8(shown.stdout).expect("text");
    for line in [
        "first: gets no new connections: it is down\n",
        "second: gets new connections: it is the first that is up\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }

    // Flows of the second are not cut off by the first, which takes the new ones.
    let in_flight = Download::begin(entrance);
    trio.first.restart();
    trio.wait_until_up([true, true]);
    assert_eq!(trio.turns(), first);
    assert!(answers(only_first));
    in_flight.finish();
    assert_eq!(trio.peer_of(entrance), "first");

    trio.first.kill();
    trio.second.kill();
    trio.wait_until_up([false, false]);
    assert!(!answers(entrance), "it is refused");
}

#[test]
fn a_peer_that_shuts_down_finishes_its_flows_and_takes_no_new_ones() {
    let (entrance, option) = forward(origin::start());
    let mut trio = Trio::start(&["--forward", &option]);
    let in_flight = Download::begin(entrance);
    trio.first.signal("TERM");
    eventually("the first is known to shut down", || {
        (trio.turns()[0] == (false, "it shuts down".to_owned())).then_some(())
    });
    assert_eq!(trio.turns()[1].1, "it is the first that is up");
    let new = Download::begin(entrance);
    let flows = trio.near.status().flows;
    let mut peers: Vec<_> = flows.iter().map(|flow| flow.peer.as_str()).collect();
    peers.sort_unstable();
    assert_eq!(peers, ["first", "second"]);
    in_flight.finish();
    assert_eq!(trio.first.wait_for_exit().code(), Some(0));
    new.finish();
}

#[test]
fn rules_name_the_peer_of_a_target_and_are_reloaded() {
    let targets = [(); 3].map(|()| origin::start());
    let [plain, by_forward, by_route] = targets.map(forward);
    let config = |peer: &str| format!("route = [\"{}@{peer}\"]\n", targets[2]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("near.toml");
    std::fs::write(&file, config("second")).expect("written");
    let mut trio = Trio::start(&[
        "--config",
        &file.display().to_string(),
        "--forward",
        &plain.1,
        "--forward",
        &format!("{}@second", by_forward.1),
        "--forward",
        &by_route.1,
    ]);
    assert_eq!(trio.peer_of(plain.0), "first");
    assert_eq!(trio.peer_of(by_forward.0), "second");
    assert_eq!(trio.peer_of(by_route.0), "second");

    std::fs::write(&file, config("first")).expect("written");
    trio.near.signal("HUP");
    trio.near
        .wait_for_log(&["reloaded ", "near.toml: all options"]);
    assert_eq!(trio.peer_of(by_route.0), "first");
    assert_eq!(trio.peer_of(by_forward.0), "second");

    trio.second.kill();
    trio.wait_until_up([true, false]);
    assert!(!answers(by_forward.0), "it goes to no other peer");
    assert!(answers(plain.0) && answers(by_route.0));
}

#[test]
fn a_check_tries_each_peer() {
    let mut trio = Trio::start(&["--socks5", "127.0.0.1:0"]);
    let admin = trio.near.admin.to_string();
    let shown = refrain(&["check", "--admin", &admin]);
    let text = String::from_utf8(shown.stdout).expect("text");
    for peer in ["the link to first at", "the link to second at"] {
        assert!(text.contains(peer), "{text}");
    }
    trio.second.kill();
    trio.wait_until_up([true, false]);
    let (code, error) = refrain_fails(&["check", "--admin", &admin]);
    assert!(
        code == 1 && error.contains("the link to second at"),
        "{error}"
    );

    let [first, second] = trio.listen.map(|address| address.to_string());
    let key = trio.site.path("near.key").display().to_string();
    let check = [
        "check",
        "--key",
        &key,
        "--peer",
        &format!("a={first}"),
        "--peer-key",
        &format!("a={}", trio.site.far_key),
        "--peer",
        &format!("b={second}"),
        "--peer-key",
        &format!("b={}", trio.second_key),
    ];
    let (code, error) = refrain_fails(&check);
    assert!(code == 1 && error.contains(&second), "{error}");
    assert!(!error.contains(&first), "{error}");
    let shown = refrain(&[&check[..], &["--json"]].concat());
    let text = String::from_utf8(shown.stdout).expect("text");
    for (line, peer) in text.lines().zip([first, second]) {
        let report: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(report["peer"], peer);
    }
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn each_peer_has_its_realm_in_one_store() {
    let (entrance, option) = forward(origin::start());
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store").display().to_string();
    let mut trio = Trio::start(&[
        "--forward",
        &option,
        "--store",
        &store,
        "--store-size",
        "64MiB",
    ]);
    let predicted = |trio: &Trio, peer: usize| {
        let command = "send 3 400000";
        let content = origin::fetch(entrance, command).expect("the content");
        assert_eq!(content, common::content::letters(3, 400_000));
        trio.near.status().peers[peer]
            .received
            .prediction_saved_bytes
    };
    assert_eq!(predicted(&trio, 0), 0);
    let is_predicted = |trio: &Trio, peer: usize| {
        eventually("what came is predicted", || {
            (predicted(trio, peer) > 100_000).then_some(())
        });
    };
    is_predicted(&trio, 0);
    let realms = trio.near.status().store.expect("a store").realm;
    for key in [&trio.site.far_key, &trio.second_key] {
        assert!(realms.contains(key), "{realms}");
    }
    trio.first.kill();
    trio.wait_until_up([false, true]);
    // The second peer hears nothing of what the first sent.
    assert_eq!(predicted(&trio, 1), 0);
    is_predicted(&trio, 1);
}
