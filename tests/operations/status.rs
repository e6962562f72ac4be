//! What operators see of a gateway: status, once and again, and metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
};

use crate::common::{
    addresses::{forward, free_address},
    command::{command, refrain, refrain_fails},
    content::{letters, noise},
    eventually, exposition,
    gateway::Gateway,
    http,
    origin::{self, Download},
    resident::resident_bytes,
    server::serve,
    site::{Pair, Site},
};
use refrain_codec::simd::Backend;

#[test]
fn status_shows_peers_and_flows_while_they_run() {
    let target = origin::start();
    let (listen, option) = forward(target);
    let pair = Pair::start(&[], &["--forward", &option]);
    let download = Download::begin(listen);
    for (gateway, role, opened) in [(&pair.near, "near", "out"), (&pair.far, "far", "in")] {
        let status = gateway.status();
        assert_eq!(status.role, role);
        assert_eq!(status.flows.len(), 1, "{status:?}");
        let flow = &status.flows[0];
        assert_eq!(
            (flow.target.as_str(), flow.opened.as_str()),
            (&*target.to_string(), opened)
        );
        assert!(
            flow.sent.app_bytes + flow.received.app_bytes > 0,
            "{flow:?}"
        );
        let peer = &status.peers[0];
        assert!(peer.up && peer.flows_open == 1, "{peer:?}");
        assert!(
            peer.sent.link_bytes > 0 && peer.received.link_bytes > 0,
            "{peer:?}"
        );

        let admin = gateway.admin.to_string();
        let shown = refrain(&["status", "--admin", &admin]);
        let text = String::from_utf8(shown.stdout).expect("text");
        let first = text.lines().next().expect("a line");
        assert!(first.contains(" of application data, "), "{text}");
        for part in [role, &target.to_string(), "link", "saved"] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let shown = refrain(&["status", "--admin", &admin, "--verbose"]);
        let text = String::from_utf8(shown.stdout).expect("text");
        for part in [
            "refrain",
            role,
            &target.to_string(),
            "matching",
            "zstd",
            "overhead",
            "effort",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }
    download.finish();
    eventually("the flow's row goes", || {
        pair.near.status().flows.is_empty().then_some(())
    });
    let received = pair.near.peer().received;
    assert!(received.app_bytes >= 100_000, "{received:?}");
}

#[test]
fn status_metrics_and_log_name_the_kernels() {
    let pair = Pair::start(
        &["--simd", "portable"],
        &["--simd", "auto", "--socks5", "127.0.0.1:0"],
    );
    let best = Backend::best().instruction_set().to_string();
    for (role, gateway, kernels) in [
        ("far", &pair.far, "portable"),
        ("near", &pair.near, best.as_str()),
    ] {
        assert_eq!(gateway.status().kernels, kernels);
        let program = format!("refrain {role} {}, ", env!("CARGO_PKG_VERSION"));
        gateway.wait_for_log(&["INFO", &program, &format!("SIMD path {kernels}")]);
        let by_name = format!("localhost:{}", gateway.admin.port());
        for admin in [gateway.admin.to_string(), by_name] {
            let shown = refrain(&["status", "-v", "--admin", &admin]);
            let text = String::from_utf8(shown.stdout).expect("text");
            assert!(text.contains(&format!("SIMD path {kernels}")), "{text}");
        }
        let (_, page) = http::get(gateway.admin, "/metrics", None).expect("the page");
        let families = exposition::parse(&page);
        let info = families.iter().find(|family| family.name == "refrain_info");
        let (labels, value) = &info.expect("it is among the names").series[0];
        assert!(labels.contains(&("kernels".to_owned(), kernels.to_owned())));
        assert_eq!(*value, 1.0);
    }
}

#[test]
fn watch_shows_the_status_again_until_it_is_told_to_stop() {
    let mut pair = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    let admin = pair.near.admin.to_string();
    let mut watch = command(&["status", "--admin", &admin, "--watch", "0.1"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut lines = BufReader::new(watch.stdout.take().expect("it is piped")).lines();
    let mut wait_for = |part: &str| {
        let mut soon = lines.by_ref().take(5000);
        let found = soon.find(|line| line.as_ref().expect("text").contains(part));
        assert!(found.is_some(), "it ended without {part:?}");
    };
    wait_for("near end");
    wait_for("near end");
    pair.near.kill();
    wait_for("no gateway answers");
    pair.near.restart();
    wait_for("near end");
    let stop = format!("kill -INT {}", watch.id());
    let sent = Command::new("sh").args(["-c", &stop]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{stop}");
    let ended = eventually("it ends", || watch.try_wait().expect("a child's status"));
    assert_eq!(ended.code(), Some(0));

    let nobody = free_address().to_string();
    let (code, error) = refrain_fails(&["status", "--admin", &nobody, "--watch"]);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("no gateway answers"), "{error}");
}

/// Names that scripts rely on. A near end with a store and a far end have them all.
const KEYS: &str = include_str!("status-keys.txt");

#[test]
fn the_status_has_stable_names() {
    fn add_names(value: &serde_json::Value, path: &str, names: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(fields) => fields.iter().for_each(|(name, field)| {
                let dot = if path.is_empty() { "" } else { "." };
                add_names(field, &format!("{path}{dot}{name}"), names);
            }),
            serde_json::Value::Array(items) => items
                .iter()
                .for_each(|item| add_names(item, &format!("{path}[]"), names)),
            _ => {
                names.insert(path.to_owned());
            }
        }
    }
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let far = site.far(&[]);
    let store = site.path("store").display().to_string();
    let redirected = free_address().to_string();
    let options = ["--forward", &option, "--store", &store];
    let service = format!("{}=https://a.example", free_address());
    let others = [
        "--store-size",
        "64MiB",
        "--transparent",
        &redirected,
        "--service",
        &service,
    ];
    let options = [&options[..], &others].concat();
    let near = site.near(site.far_listen, &options);
    near.wait_until_up();
    let download = Download::begin(listen);
    let mut names = BTreeSet::new();
    for gateway in [&near, &far] {
        let (_, page) = http::get(gateway.admin, "/status", None).expect("the page");
        let status = serde_json::from_str(&page).expect("JSON");
        add_names(&status, "", &mut names);
    }
    download.finish();
    let names: Vec<_> = names.into_iter().collect();
    assert_eq!(names, KEYS.lines().collect::<Vec<_>>());
}

/// Names that dashboards rely on: removing one is a change that users must hear of.
const METRICS: [(&str, &str); 39] = [
    ("refrain_app_bytes_total", "counter"),
    ("refrain_blocks_total", "counter"),
    ("refrain_bypassed_blocks_total", "counter"),
    ("refrain_cache_bytes", "gauge"),
    ("refrain_cache_filled_bytes", "gauge"),
    ("refrain_chunks_not_learnt_total", "counter"),
    ("refrain_confirmations_refused_total", "counter"),
    ("refrain_cpu_seconds_total", "counter"),
    ("refrain_effort_period_bytes", "gauge"),
    ("refrain_effort_zstd_level", "gauge"),
    ("refrain_flows_driven_by_sender_total", "counter"),
    ("refrain_flows_open", "gauge"),
    ("refrain_flows_opened_total", "counter"),
    ("refrain_flows_reset_total", "counter"),
    ("refrain_holes", "gauge"),
    ("refrain_holes_made_total", "counter"),
    ("refrain_info", "gauge"),
    ("refrain_lanes", "gauge"),
    ("refrain_lanes_held_up", "gauge"),
    ("refrain_lanes_lost_total", "counter"),
    ("refrain_link_bytes_total", "counter"),
    ("refrain_matching_saved_bytes", "gauge"),
    ("refrain_memory_allocated_bytes", "gauge"),
    ("refrain_memory_bound_bytes", "gauge"),
    ("refrain_memory_reserved_bytes", "gauge"),
    ("refrain_memory_resident_bytes", "gauge"),
    ("refrain_peer_up", "gauge"),
    ("refrain_predicted_bytes_total", "counter"),
    ("refrain_prediction_saved_bytes_total", "counter"),
    ("refrain_predictions_hashed_false_bytes_total", "counter"),
    ("refrain_predictions_hashed_true_bytes_total", "counter"),
    ("refrain_predictions_held_bytes", "gauge"),
    ("refrain_predictions_overtaken_bytes_total", "counter"),
    ("refrain_predictions_wasted_bytes_total", "counter"),
    ("refrain_round_trip_seconds", "gauge"),
    ("refrain_target_app_bytes", "gauge"),
    ("refrain_target_link_bytes", "gauge"),
    ("refrain_uptime_seconds", "gauge"),
    ("refrain_zstd_saved_bytes", "gauge"),
];

#[test]
fn metrics_are_prometheus_text_with_stable_names() {
    // A name that has to be escaped.
    let site = Site::new();
    let peers = site.write("peers", &format!("{} \"a\" & \\b\n", site.near_key));
    let (listen, option) = forward(origin::start());
    let far = site.far(&["--peer-key", &peers]);
    let near = site.near(site.far_listen, &["--forward", &option]);
    near.wait_until_up();
    assert!(origin::answers(listen));
    assert_metrics(&near, &[&METRICS[..], &METRICS_OF_A_NEAR_END].concat());
    assert_metrics(&far, &METRICS);
    let (_, page) = http::get(far.admin, "/metrics", None).expect("the page");
    let up = exposition::parse(&page)
        .into_iter()
        .find(|family| family.name == "refrain_peer_up")
        .expect("it is among the names");
    let labels = vec![("peer".to_owned(), "\"a\" & \\b".to_owned())];
    assert_eq!(up.series, [(labels, 1.0)]);
}

/// What a near end has besides.
const METRICS_OF_A_NEAR_END: [(&str, &str); 1] = [("refrain_peer_serves", "gauge")];

/// What a near end with a store has besides.
const METRICS_OF_A_STORE: [(&str, &str); 9] = [
    ("refrain_store_chunks", "gauge"),
    ("refrain_store_damaged_chunks_total", "counter"),
    ("refrain_store_disk_bound_bytes", "gauge"),
    ("refrain_store_disk_bytes", "gauge"),
    ("refrain_store_evicted_chunks_total", "counter"),
    ("refrain_store_failing", "gauge"),
    ("refrain_store_open", "gauge"),
    ("refrain_store_received_bytes_total", "counter"),
    ("refrain_store_stored_bytes_total", "counter"),
];

#[test]
fn a_near_end_with_a_store_has_metrics_of_it() {
    let (listen, option) = forward(origin::start());
    let site = Site::new();
    let _far = site.far(&["--mode", "receiver"]);
    let store = site.path("store").display().to_string();
    let options = [
        "--forward",
        &option,
        "--store",
        &store,
        "--store-size",
        "1GB",
    ];
    let near = site.near(site.far_listen, &options);
    near.wait_until_up();
    // What comes again is stored once.
    for _ in 0..2 {
        origin::fetch(listen, "send 3 300000").expect("an answer");
    }
    let store = eventually("all of it was taken to the store", || {
        let store = near.status().store.expect("a store");
        (store.received_bytes >= 600_000).then_some(store)
    });
    assert!(store.stored_bytes < 400_000, "{store:?}");
    let expected = [&METRICS[..], &METRICS_OF_A_NEAR_END, &METRICS_OF_A_STORE];
    let page = assert_metrics(&near, &expected.concat());
    let families = exposition::parse(&page);
    for (name, value) in [
        ("refrain_store_chunks", store.chunks),
        ("refrain_store_disk_bound_bytes", 1_000_000_000),
        ("refrain_store_received_bytes_total", store.received_bytes),
        ("refrain_store_stored_bytes_total", store.stored_bytes),
        ("refrain_store_open", 1),
        ("refrain_store_failing", 0),
    ] {
        let family = families.iter().find(|family| family.name == name);
        let series = &family.expect("it is among the names").series;
        assert_eq!(*series, [(Vec::new(), value as f64)], "{name}");
    }
}

/// Holds the names on a gateway's page and their types against `expected`, and gives the page.
#[track_caller]
fn assert_metrics(gateway: &Gateway, expected: &[(&str, &str)]) -> String {
    eventually("a round trip is measured", || gateway.peer().round_trip_ms);
    let (status, page) = http::get(gateway.admin, "/metrics", None).expect("the page");
    assert_eq!(status, 200);
    let families = exposition::parse(&page);
    let types = families.iter().map(|family| (family.name, family.kind));
    let types: BTreeSet<_> = types.collect();
    assert_eq!(types, expected.iter().copied().collect());
    for family in &families {
        let is_counter = family.kind == "counter";
        assert_eq!(family.name.ends_with("_total"), is_counter, "{family:?}");
        assert!(family.help.ends_with('.'), "{family:?}");
        assert!(!family.series.is_empty(), "{family:?}");
    }
    page
}

/// The counters on a page, by name and labels.
fn counters(gateway: &Gateway) -> BTreeMap<String, f64> {
    let (_, page) = http::get(gateway.admin, "/metrics", None).expect("the page");
    let families = exposition::parse(&page);
    let counters = families.iter().filter(|family| family.kind == "counter");
    let series = counters.flat_map(|family| {
        let series = family.series.iter();
        series.map(|(labels, value)| (format!("{} {labels:?}", family.name), *value))
    });
    series.collect()
}

#[test]
fn counters_do_not_fall_when_links_end() {
    let (listen, option) = forward(origin::start());
    let keep = ["--keep-link", "1s"];
    let mut pair = Pair::start(&keep, &["--forward", &option]);
    for _ in 0..3 {
        origin::fetch(listen, "send 3 300000").expect("an answer");
    }
    let before = counters(&pair.far);
    assert!(
        before.values().any(|&count| count > 300_000.0),
        "{before:?}"
    );
    for _ in 0..2 {
        pair.near.kill();
        pair.near.restart();
        pair.near.wait_until_up();
    }
    eventually("the old links are forgotten", || {
        (pair.far.status().peers.len() == 1).then_some(())
    });
    let after = counters(&pair.far);
    for (series, count) in before {
        let now = after.get(&series).copied();
        assert!(
            now.is_some_and(|now| now >= count),
            "{series}: {count}, {now:?}"
        );
    }
    // What the present link counts comes on top.
    origin::fetch(listen, "send 3 300000").expect("an answer");
    let sent = |counters: &BTreeMap<String, f64>| {
        let of = counters.iter().filter(|(series, _)| {
            series.starts_with("refrain_app_bytes_total") && series.contains("sent")
        });
        of.map(|(_, count)| count).sum::<f64>()
    };
    eventually("the far end has counted it", || {
        (sent(&counters(&pair.far)) >= sent(&after) + 300_000.0).then_some(())
    });
}

/// A client that encrypts is known afterwards, by its target.
#[test]
fn what_was_carried_is_said_by_target_and_class_when_it_is_over() {
    const BYTES: usize = 200_000;
    let sink = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = sink.local_addr().expect("an address");
    let taking = std::thread::spawn(move || {
        let mut taken = Vec::new();
        let (mut stream, _) = sink.accept().expect("a connection");
        stream.read_to_end(&mut taken).expect("all of it");
        taken.len()
    });
    let (listen, option) = forward(target);
    let pair = Pair::start(&[], &["--forward", &option]);
    // A ClientHello's beginning, and what nobody can compress.
    let mut encrypted = noise(11, BYTES);
    encrypted[..6].copy_from_slice(&[0x16, 3, 1, 2, 0, 1]);
    let mut client = TcpStream::connect(listen).expect("the listener is there");
    client.write_all(&encrypted).expect("taken");
    drop(client);
    assert_eq!(taking.join().expect("no panic"), BYTES);
    for (gateway, direction) in [(&pair.near, "sent"), (&pair.far, "received")] {
        let row = eventually("both ends have counted it", || {
            let status = gateway.status();
            let mut rows = status.targets.into_iter().filter(|row| row.class == "TLS");
            rows.next().filter(|row| row.app_bytes() == BYTES as u64)
        });
        assert_eq!(row.target, Some(target.to_string()));
        assert!(row.link_bytes() > BYTES as u64, "{row:?}");
        eventually("no flow is open", || {
            gateway.status().flows.is_empty().then_some(())
        });
        let shown = refrain(&["status", "--admin", &gateway.admin.to_string()]);
        let text = String::from_utf8(shown.stdout).expect("text");
        let mut lines = text.lines().filter(|line| line.contains("TLS"));
        let line = lines.next().unwrap_or_else(|| panic!("no TLS in\n{text}"));
        for part in [&target.to_string(), "200 kB", " -0."] {
            assert!(line.contains(part), "{part}: {line}");
        }
        let (_, page) = http::get(gateway.admin, "/metrics", None).expect("the page");
        let series = format!(
            "refrain_target_app_bytes{{target=\"{target}\",class=\"TLS\",direction=\"{direction}\"}} {BYTES}"
        );
        assert!(page.lines().any(|line| line == series), "{series}\n{page}");
    }
}

#[test]
fn memory_and_cpu_time_are_those_of_the_process() {
    let pair = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    for (_, gateway) in pair.ends() {
        let before = cpu_seconds(gateway);
        let status = gateway.status();
        let after = cpu_seconds(gateway);
        let cpu = status.cpu_s.expect("Linux counts it");
        // The kernel shows whole ticks of each kind.
        assert!(
            before - 0.02 <= cpu && cpu <= after + 0.02,
            "{before} {cpu} {after}"
        );
        let memory = status.memory;
        let resident = memory.resident_bytes.expect("Linux says so");
        let seen = resident_bytes(gateway);
        assert!(resident.abs_diff(seen) < 32 << 20, "{resident}, {seen}");
        assert!(memory.allocated_bytes < resident);
        let shown = refrain(&["status", "-v", "--admin", &gateway.admin.to_string()]);
        let text = String::from_utf8(shown.stdout).expect("text");
        let first = text.lines().nth(1).expect("a line");
        for part in [
            ", CPU time ",
            " reserved",
            " in caches and tables",
            "; process ",
        ] {
            assert!(first.contains(part), "{part}: {first}");
        }
    }
}

/// What the kernel says that a gateway's process has taken: user and system time, in ticks of 10 ms.
fn cpu_seconds(gateway: &Gateway) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", gateway.process()));
    let stat = stat.expect("the process runs, on Linux");
    // Its name, in brackets, may have spaces.
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().expect("a number"))
        .sum::<f64>()
        / 100.0
}

#[test]
fn status_says_for_how_long_the_link_of_an_earlier_life_is_down() {
    let (listen, option) = forward(origin::start());
    let mut pair = Pair::start(&[], &["--forward", &option]);
    assert!(origin::answers(listen));
    pair.near.kill();
    pair.near.restart();
    pair.near.wait_until_up();
    let down_s = |up| {
        let peers = pair.far.status().peers;
        let mut alike = peers.into_iter().filter(|peer| peer.up == up);
        let peer = alike.next()?;
        assert_eq!(peer.key, pair.site.near_key);
        Some(peer.down_s)
    };
    eventually("the new link is up", || {
        down_s(true)?.is_none().then_some(())
    });
    eventually("the old link is down", || down_s(false)?);
    let shown = refrain(&["status", "--admin", &pair.far.admin.to_string()]);
    let text = String::from_utf8(shown.stdout).expect("text");
    assert!(text.contains("down "), "{text}");
}

#[test]
fn the_next_link_begins_with_the_effort_that_the_last_one_came_to() {
    // New content for each connection: the cache would answer for what comes again.
    let origin = serve(|mut stream| {
        let mut seed = [0];
        stream.read_exact(&mut seed)?;
        stream.write_all(&letters(seed[0].into(), 1_000_000))
    });
    let (listen, option) = forward(origin);
    // The encoder waits for a link as slow as that, and has time for more.
    let mut pair = Pair::start(&["--rate", "8Mbit"], &["--forward", &option]);
    let level = |far: &Gateway| far.peer().effort.expect("one link").zstd_level;
    let at_first = level(&pair.far);
    let mut seed = 0;
    // The first transfer is enough, unless other tests take the processor away from the encoder.
    let came_to = eventually("the effort climbs", || {
        seed += 1;
        let mut stream = TcpStream::connect(listen).expect("it listens");
        stream.write_all(&[seed]).expect("the flow lives");
        let read = std::io::copy(&mut stream, &mut std::io::sink()).expect("the flow lives");
        assert_eq!(read, 1_000_000);
        let now = level(&pair.far);
        (now > at_first).then_some(now)
    });
    pair.near.kill();
    eventually("the far end knows that the near end is gone", || {
        (!pair.far.peer().up).then_some(())
    });
    pair.near.restart();
    pair.near.wait_until_up();
    assert_eq!(level(&pair.far), came_to);
}
