use refrain_gateway::status::{CarriedBytes, Effort, Total};

use super::*;

#[test]
fn the_first_line_has_the_savings() {
    let text = |app_bytes, link_bytes| {
        let carried = Direction {
            app_bytes,
            link_bytes,
            ..Direction::default()
        };
        let mut status = status();
        status.total.received = carried;
        let first = headline(&status);
        // An older program has no total.
        status.total = Total::default();
        let mut peer = Peer::default();
        peer.sent = carried;
        status.peers = vec![peer];
        assert_eq!(headline(&status), first);
        first
    };
    let saved = text(39_100, 7_800);
    assert_eq!(
        saved,
        "saved 80.1 %: 39.1 kB of application data, 7.80 kB over the link, since the gateway started"
    );
    assert!(text(27_000_000, 27_000_000).starts_with("saved 0.0 %: 27.0 MB of"));
    assert_eq!(
        text(291, 4_590),
        "the link carried 4.59 kB for 291 B of application data, since the gateway started"
    );
    assert_eq!(text(0, 0), "no traffic yet");
}

#[test]
fn the_savings_are_shown_however_narrow_the_terminal_is() {
    let mut status = status();
    let mut peer = Peer::default();
    (peer.name, peer.up) = (Some("frankfurt.example.org:7000".to_owned()), true);
    status.peers = vec![peer];
    let out = printed(&status, 60);
    let head = out
        .lines()
        .find(|line| line.starts_with("peer "))
        .expect("a head");
    assert!(head.len() <= 60 && head.ends_with("saved"), "{out}");
}

#[test]
fn an_error_of_a_peer_with_several_links_is_shown_once() {
    let mut status = status();
    let peer = |key: &str| {
        let mut peer = Peer::default();
        key.clone_into(&mut peer.key);
        peer.last_error = Some("the connection closed".to_owned());
        peer
    };
    status.peers = vec![peer("a"), peer("a"), peer("b")];
    let out = printed(&status, 80);
    assert_eq!(out.matches("the connection closed").count(), 2, "{out}");
}

#[test]
fn an_error_that_begins_with_the_peers_name_has_it_once() {
    let mut status = status();
    let mut peer = Peer::default();
    peer.name = Some("bonn".to_owned());
    for (error, shown) in [
        ("bonn already has 4 links", "\nbonn: already has 4 links\n"),
        ("bonn.example is down", "\nbonn: bonn.example is down\n"),
    ] {
        peer.last_error = Some(error.to_owned());
        status.peers = vec![peer.clone()];
        let out = printed(&status, 80);
        assert!(out.contains(shown), "{out}");
    }
}

/// The tables as they are without options, in so many columns.
fn printed(status: &Status, columns_max: usize) -> String {
    let view = View {
        is_verbose: false,
        columns_max,
    };
    let mut out = Vec::new();
    print(status, view, &mut out).expect("memory");
    String::from_utf8(out).expect("text")
}

fn status() -> Status {
    serde_json::from_value(serde_json::json!({
            "role": "near", "version": "0.1.0", "kernels": "avx2", "uptime_s": 3.0, "mode": "auto",
            "memory": { "bound_bytes": 6_320_000_000_u64, "reserved_bytes": 0, "allocated_bytes": 28_000_000 },
            "store": null, "peers": [], "flows": [],
        }))
        .expect("a status")
}

#[test]
fn it_is_said_why_an_end_drives_and_what_came_of_it() {
    let mut driver = Driver {
        by: "receiver".to_owned(),
        reason: "it has history".to_owned(),
        dispersion: Some(0),
    };
    let mut predictions = Predictions::default();
    assert_eq!(why(&driver, &predictions), "it has history");
    driver.dispersion = Some(31);
    predictions.offered_bytes = 3_200_000;
    predictions.wasted_bytes = 5000;
    assert_eq!(
        why(&driver, &predictions),
        "it has history; dispersion 31; offered 3.20 MB; wasted 5.00 kB"
    );
}

#[test]
fn a_sum_adds_up_and_shows_what_was_saved_or_lost() {
    let mut counts = Direction {
        app_bytes: 7_000_000,
        link_bytes: 3_500_000,
        matching_saved_bytes: 3_300_000,
        zstd_saved_bytes: 250_000,
        ..Direction::default()
    };
    assert_eq!(
        sum(&counts),
        [
            "7.00 MB", "0 B", "-3.30 MB", "-250 kB", "+50.0 kB", "3.50 MB", "50.0 %"
        ]
    );
    // What does not shrink costs its overhead, and that is a share worth showing.
    (counts.matching_saved_bytes, counts.zstd_saved_bytes) = (0, -3_000);
    counts.link_bytes = 7_013_000;
    assert_eq!(
        sum(&counts),
        [
            "7.00 MB", "0 B", "0 B", "+3.00 kB", "+10.0 kB", "7.01 MB", "-0.2 %"
        ]
    );
    let tiny = Direction {
        app_bytes: 113,
        link_bytes: 2310,
        zstd_saved_bytes: -1,
        ..Direction::default()
    };
    let [app, .., overhead, link, saved] = sum(&tiny);
    assert_eq!(
        [app, overhead, link, saved],
        ["113 B", "+2.20 kB", "2.31 kB", "-1944.2 %"]
    );
    assert_eq!(sum(&Direction::default())[6], "-");
}

#[test]
fn a_target_that_saves_nothing_has_a_share_of_zero() {
    let carried = |app_bytes, link_bytes| CarriedBytes {
        app_bytes,
        link_bytes,
    };
    let row = |target: Option<&str>, class: &str, sent, received| TargetTraffic {
        target: target.map(str::to_owned),
        class: class.to_owned(),
        sent,
        received,
    };
    let rows = [
        row(
            Some("db:5432"),
            "TLS",
            carried(1000, 1010),
            carried(58_000_000, 58_002_000),
        ),
        row(None, "ordinary", carried(0, 0), carried(9000, 900)),
    ];
    let mut out = Vec::new();
    targets(&rows).print(&mut out).expect("memory");
    let out = String::from_utf8(out).expect("text");
    let lines: Vec<Vec<&str>> = out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[1][..2], ["db:5432", "TLS"], "{out}");
    assert_eq!(lines[1][lines[1].len() - 2..], ["0.0", "%"], "{out}");
    assert_eq!(lines[2][..3], ["other", "targets", "ordinary"], "{out}");
    assert_eq!(lines[2][lines[2].len() - 2..], ["90.0", "%"], "{out}");
}

#[test]
fn a_flows_class_is_shown_for_what_this_end_sends() {
    let driver = Driver {
        by: "sender".to_owned(),
        reason: "nothing is predicted".to_owned(),
        dispersion: None,
    };
    let flow = Flow {
        client: None,
        id: 1,
        peer: "far".to_owned(),
        target: "target:80".to_owned(),
        opened: "out".to_owned(),
        age_s: 1.0,
        class: "ordinary".to_owned(),
        lane: 0,
        sent: Direction::default(),
        received: Direction::default(),
        send_driver: driver.clone(),
        receive_driver: driver,
        limited_by: LimitedBy {
            link_s: 0.25,
            reader_s: 0.001,
            ..LimitedBy::default()
        },
    };
    let mut out = Vec::new();
    flow_details(&[flow]).print(&mut out).expect("memory");
    let out = String::from_utf8(out).expect("text");
    let class = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
    let classes: Vec<_> = out.lines().skip(1).filter_map(class).collect();
    assert_eq!(classes, ["ordinary", "-"], "{out}");
    assert!(out.contains("link 25.0 %"), "{out}");
    assert!(!out.contains("reader"), "{out}");
}

#[test]
fn waits_are_named_and_a_flow_without_any_has_a_dash() {
    assert_eq!(waited(&LimitedBy::default(), 1.0), "-");
    let busy = LimitedBy {
        processor_s: 0.5,
        ..LimitedBy::default()
    };
    assert_eq!(waited(&busy, 1.0), "CPU 50.0 %");
}

#[test]
fn columns_of_links_have_plain_names() {
    let mut peer = Peer::default();
    peer.effort = Some(Effort {
        period_bytes: 32,
        zstd_level: 3,
        reason: "nothing measured yet".to_owned(),
    });
    let mut out = Vec::new();
    links(&[peer]).print(&mut out).expect("memory");
    let out = String::from_utf8(out).expect("text");
    for part in [
        "uncached blocks  cache gaps",
        "sampling period 32 B, zstd 3 (nothing measured yet)",
    ] {
        assert!(out.contains(part), "{part} is not in\n{out}");
    }
}

#[test]
fn what_was_predicted_has_its_share_of_the_sum() {
    let counts = Direction {
        app_bytes: 5_000_000,
        prediction_saved_bytes: 4_000_000,
        link_bytes: 1_010_000,
        ..Direction::default()
    };
    assert_eq!(sum(&counts)[1..5], ["-4.00 MB", "0 B", "0 B", "+10.0 kB"]);
}
