//! `refrain cost` as a program: figures by hand, the status of a run, prices
//! of one's own, plots, and what cannot be.

mod common;

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    process::{Output, Stdio},
};

use common::{
    addresses::forward,
    command::{command, refrain, refrain_fails},
    gateway::Gateway,
    origin::{self, Download},
    site::{Pair, Site},
};
use refrain_gateway::status::Status;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What `refrain cost --json` says with these arguments.
#[track_caller]
fn cost(arguments: &[&str]) -> Value {
    report(&refrain(&[&["cost", "--json"], arguments].concat()))
}

#[track_caller]
fn report(ended: &Output) -> Value {
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{error}");
    serde_json::from_slice(&ended.stdout).expect("JSON")
}

#[track_caller]
fn number(report: &Value, pointer: &str) -> f64 {
    let value = report.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {pointer} of {report}"))
}

#[track_caller]
fn assert_near(report: &Value, pointer: &str, expected: f64) {
    let value = number(report, pointer);
    assert!((value - expected).abs() < 1e-6, "{pointer}: {value}");
}

fn write(dir: &TempDir, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = dir.path().join(name);
    fs::write(&path, text).expect("a file");
    path.display().to_string()
}

/// `refrain cost -`, which reads this.
fn cost_of_standard_input(status: &str) -> Output {
    let mut child = command(&["cost", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(status.as_bytes()).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

#[test]
fn figures_by_hand() {
    let report = cost(&[
        "--traffic",
        "20TB",
        "--redundancy",
        "50%",
        "--redundancy-sender",
        "75%",
        "--server-output",
        "80Mbit",
        "--cpu-none",
        "10",
        "--cpu-receiver",
        "11",
        "--cpu-sender",
        "14",
        "--egress",
        "0.09",
        "--server",
        "0.20",
        "--cores",
        "4",
    ]);
    // 20,000 GB at 0.09, and at 36 GB per hour.
    assert_near(&report, "/none/traffic_cost", 1800.0);
    assert_near(&report, "/none/server_hours", 20_000.0 / 36.0);
    // 1 and 4 CPU seconds more a GB: of 4 × 3600 in an hour 36 and 144.
    let hours = 20_000.0 / 36.0;
    assert_near(&report, "/receiver_driven/traffic_cost", 900.0);
    assert_near(&report, "/receiver_driven/server_hours", hours * 1.0025);
    assert_near(&report, "/sender_driven/traffic_cost", 450.0);
    assert_near(&report, "/sender_driven/server_hours", hours * 1.01);
    // The ledger.
    assert_near(&report, "/sender_driven/saved_on_traffic", 1350.0);
    assert_near(&report, "/sender_driven/spent_on_servers", hours * 0.002);
    assert_near(&report, "/sender_driven/left", 1350.0 - hours * 0.002);
    assert_near(&report, "/none/left", 0.0);
    assert_near(&report, "/receiver_driven/traffic_cost_reduction", 0.5);
    let curve = report["curve"].as_array().expect("a curve");
    assert_eq!(curve.len(), 101);
    assert_near(&report, "/curve/0/receiver_driven", 1.0);
    let at_half = number(&report, "/receiver_driven/total_of_none");
    assert_near(&report, "/curve/50/receiver_driven", at_half);
}

#[test]
fn what_is_assumed_is_said() {
    let shown = refrain(&["cost", "--traffic", "9.1TB", "--redundancy", "30%"]);
    let text = String::from_utf8(shown.stdout).expect("text");
    for part in [
        "assumed: the paper's 6.1 % at 30 % redundancy",
        "assumed: the paper's 19.0 %",
        "assumed: as much as predictions",
        "assumed: the paper's server",
        "assumed: a list price of 2025, in US dollars; give --egress",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn the_status_of_a_run_from_a_file_and_from_standard_input() {
    let dir = tempfile::tempdir().expect("a folder");
    let sent = json!({
        "app_bytes": 4_000_000_000u64, "link_bytes": 1_000_000_000,
        "prediction_saved_bytes": 2_000_000_000u64, "matching_saved_bytes": 400_000_000,
        "zstd_saved_bytes": 200_000_000, "of_another_version": [1, {"a": null}],
    });
    let mut status = json!({
        "role": "far", "uptime_s": 7300.0, "flows": [], "peers": [{}],
        "total": {"sent": sent, "received": sent},
    });
    let file = write(&dir, "run.json", status.to_string());
    let report = cost(&[&file]);
    // 4 GB in 7300 s, which are 1/360 of a month.
    assert_near(&report, "/none/traffic_gb", 1440.0);
    assert_near(&report, "/inputs/receiver_share/value", 0.5);
    // Matching had what predictions left: what it finds alone is between 10 and 60 %.
    assert_near(&report, "/inputs/sender_share_least", 0.1);
    assert_near(&report, "/inputs/sender_share/value", 0.6);
    assert_near(&report, "/both/traffic_gb", 0.4 * 1440.0);
    assert_near(&report, "/measured_s", 7300.0);
    assert_near(&report, "/zstd_share_not_counted", 0.05);
    let text = refrain(&["cost", &file]);
    let text = String::from_utf8(text.stdout).expect("text");
    for part in [
        "sender-driven at best  both (auto)",
        "was not measured: predictions came first, and matching then saved 10.0 %",
        "status: 4.00 GB in 2 h 1 min, times 360 for 730 h",
        "the run lasted only 2 h 1 min",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // By hand goes before.
    let report = cost(&[&file, "--redundancy-sender", "20%", "--traffic", "1TB"]);
    assert_near(&report, "/none/traffic_gb", 1000.0);
    assert_near(&report, "/inputs/receiver_share/value", 0.5);
    assert_near(&report, "/inputs/sender_share/value", 0.2);
    assert_eq!(report["inputs"]["sender_share_least"], Value::Null);
    // With the traffic by hand nothing is scaled, and nothing guessed.
    let text = refrain(&["cost", &file, "--traffic", "1TB"]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(
        text.contains("--traffic") && !text.contains("guess"),
        "{text}"
    );

    status["total"]["sent"]["prediction_saved_bytes"] = json!(0);
    let ended = cost_of_standard_input(&status.to_string());
    let text = String::from_utf8(ended.stdout).expect("text");
    for part in [
        "status: predictions saved nothing (off?)",
        "status: matching",
        "zstd saved 5.0 % more",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn the_status_of_a_gateway_that_runs() {
    let target = origin::start();
    let (listen, option) = forward(target);
    let pair = Pair::start(&[], &["--forward", &option]);
    Download::begin(listen).finish();
    common::eventually("the download is counted", || {
        (pair.near.peer().received.app_bytes > 0).then_some(())
    });
    let file = status_of(&pair.near, &pair.site);
    let report = cost(&[&file, "--redundancy", "10%"]);
    assert!(number(&report, "/none/traffic_gb") > 0.0);
    assert_near(&report, "/receiver_driven/traffic_cost_reduction", 0.1);

    // As an older program would say it: the tables of `refrain status` take that.
    let status = fs::read_to_string(&file).expect("a file");
    let mut older: Value = serde_json::from_str(&status).expect("JSON");
    let fields = older.as_object_mut().expect("an object");
    fields.remove("total").expect("a total");
    let file = pair.site.write("older.json", &older.to_string());
    let (code, error) = refrain_fails(&["cost", &file]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("it has no `total`"), "{error}");
    serde_json::from_value::<Status>(older).expect("a status");
}

#[test]
fn what_went_before_restarts_of_the_other_end_is_counted() {
    // A far end keeps 4 links of a peer; a near end keeps one.
    const FAR_LINKS_MAX: usize = 4;
    const NEAR_LIVES: u64 = 7;
    const FAR_LIVES: u64 = 3;
    let (listen, option) = forward(origin::start());
    let mut pair = Pair::start(&[], &["--forward", &option]);
    for life in 0..NEAR_LIVES {
        if life > 0 {
            pair.near.kill();
            pair.near.restart();
            pair.near.wait_until_up();
        }
        download(listen, life).expect("the link is up");
        common::eventually("the far end's total is all that it sent", || {
            let sent = pair.far.status().total.sent;
            (sent.app_bytes == (life + 1) * DOWNLOAD_BYTES).then_some(())
        });
    }
    let status = pair.far.status();
    let rows = || status.peers.iter().map(|peer| peer.sent);
    assert!(rows().len() <= FAR_LINKS_MAX, "links were forgotten");
    let of_rows: u64 = rows().map(|sent| sent.link_bytes).sum();
    let total = status.total.sent;
    assert!(total.link_bytes > of_rows && total.blocks >= NEAR_LIVES);
    let file = status_of(&pair.far, &pair.site);
    let report = cost(&[&file, "--redundancy", "10%"]);
    let months = 730.0 * 3600.0 / number(&report, "/measured_s");
    let gb = (NEAR_LIVES * DOWNLOAD_BYTES) as f64 / 1e9;
    assert_near(&report, "/none/traffic_gb", gb * months);

    // The last near end lives on, and has downloaded once.
    for life in 1..FAR_LIVES {
        pair.far.kill();
        pair.far.restart();
        common::eventually("the new far end serves", || download(listen, life));
    }
    let status = pair.near.status();
    assert_eq!(status.peers.len(), 1);
    assert_eq!(status.peers[0].received.app_bytes, DOWNLOAD_BYTES);
    let received = status.total.received.app_bytes;
    assert_eq!(received, FAR_LIVES * DOWNLOAD_BYTES);
}

const DOWNLOAD_BYTES: u64 = 100_000;

/// Takes as many bytes, others for each seed, if the pair serves.
fn download(listen: SocketAddr, seed: u64) -> Option<()> {
    let taken = origin::fetch(listen, &format!("send {seed} {DOWNLOAD_BYTES}")).ok()?;
    (taken.len() as u64 == DOWNLOAD_BYTES).then_some(())
}

/// The path of a file with what `refrain status --json` says. The model wants a second, whatever the
/// machine's speed.
fn status_of(gateway: &Gateway, site: &Site) -> String {
    common::eventually("a second passes", || {
        (gateway.status().uptime_s >= 1.0).then_some(())
    });
    let admin = gateway.admin.to_string();
    let status = refrain(&["status", "--json", "--admin", &admin]);
    site.write("run.json", &String::from_utf8_lossy(&status.stdout))
}

/// The inputs of the paper's Table 3, at a price of traffic and servers that are 7 : 3.
const PAPERS: [&str; 12] = [
    "--traffic",
    "9.1TB",
    "--redundancy",
    "30%",
    "--redundancy-sender",
    "32%",
    "--egress",
    "0.007",
    "--server",
    "0.4725",
    "--server-output",
    "350Mbit",
];

#[test]
fn a_plot_is_an_svg_and_the_table_comes_all_the_same() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("cost.svg");
    let report = cost(&[&PAPERS[..], &["--plot", &path.display().to_string()]].concat());
    assert_near(&report, "/inputs/price_per_gb/value", 0.007);
    let svg = fs::read_to_string(&path).expect("a plot");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for line in [
        "receiver-driven: 80.8 % at 30.0 %",
        "sender-driven: 83.3 % at 32.0 %",
        "no elimination",
    ] {
        assert!(svg.contains(line), "{line}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    let nowhere = dir.path().join("no/folder.svg").display().to_string();
    let (code, error) = refrain_fails(&[&["cost"], &PAPERS[..], &["--plot", &nowhere]].concat());
    assert_eq!(code, 1);
    assert!(error.contains("folder.svg"), "{error}");
}

#[test]
fn what_cannot_be_is_one_clear_error() {
    const ENOUGH: [&str; 4] = ["--traffic", "1TB", "--redundancy", "30%"];
    for (arguments, part) in [
        (&[][..], "--traffic"),
        (&["--traffic", "1TB"], "--redundancy"),
        (&["--traffic", "-1TB", "--redundancy", "30%"], "--traffic"),
        (&["--traffic", "0", "--redundancy", "30%"], "--traffic"),
        (&["--traffic", "1TB", "--redundancy", "30"], "such as 30%"),
        (&["--traffic", "1TB", "--redundancy", "-3%"], "0% to 100%"),
        (&["--traffic", "1TB", "--redundancy", "NaN%"], "0% to 100%"),
        (
            &[&ENOUGH[..], &["--cpu-none", "1"]].concat(),
            "--cpu-receiver",
        ),
        (
            &[&ENOUGH[..], &["--cpu-sender", "NaN"]].concat(),
            "a number from 0",
        ),
        (
            &[&ENOUGH[..], &["--cpu-sender", "-1"]].concat(),
            "a number from 0",
        ),
        (&[&ENOUGH[..], &["--egress", "-0.1"]].concat(), "--egress"),
        (&[&ENOUGH[..], &["--egress", "inf"]].concat(), "--egress"),
        (&[&ENOUGH[..], &["--server", "aws"]].concat(), "--server"),
        (
            &[&ENOUGH[..], &["--egress", "0", "--server", "0"]].concat(),
            "costs nothing",
        ),
        (&[&ENOUGH[..], &["--cores", "0"]].concat(), "cores"),
        (
            &[&ENOUGH[..], &["--server-output", "0bit"]].concat(),
            "--server-output",
        ),
        (
            &[&ENOUGH[..], &["--cpu-none", "99", "--cpu-sender", "99"]].concat(),
            "cores",
        ),
        (&["nowhere/run.json"], "nowhere/run.json"),
    ] {
        let (code, error) = refrain_fails(&[&["cost"], arguments].concat());
        assert_eq!(code, 2, "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
        assert!(!error.contains("panicked"), "{error}");
    }
}

#[test]
fn hostile_files_are_one_clear_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let run = |status: &str| status.as_bytes().to_vec();
    let with = |app_bytes: u64, uptime_s: i64| {
        let sent = json!({
            "app_bytes": app_bytes, "prediction_saved_bytes": 0, "matching_saved_bytes": 10,
            "zstd_saved_bytes": 0,
        });
        let total = json!({"sent": sent, "received": sent});
        run(&json!({"total": total, "role": "far", "uptime_s": uptime_s}).to_string())
    };
    for (index, (bytes, part)) in [
        (Vec::new(), "status --json"),
        (run("{}"), "total"),
        (run("[NaN]"), "status --json"),
        (run("{\"total\": 7}"), "column 11 is invalid"),
        (
            run("{\"total\": {\"sent\": {\"app_bytes\": -1}}}"),
            "save it again",
        ),
        (
            run("{\"peers\": [], \"role\": \"far\", \"uptime_s\": 1e999}"),
            "is invalid",
        ),
        (run("{\"peers\": [], \"ro"), "is truncated"),
        (with(9, 9), "matching saved 10 of 9 bytes"),
        (with(90, -9), "too short"),
        (with(0, 9), "no data was sent"),
        (vec![b'['; 1 << 20], "status --json"),
        (vec![0xff; 100], "status --json"),
        (vec![b' '; (64 << 20) + 1], "limit 64 MiB"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = write(&dir, &format!("run-{index}"), bytes);
        let (code, error) = refrain_fails(&["cost", &file]);
        assert_eq!(code, 2, "{error}");
        assert!(
            error.contains(part) && error.contains(&file),
            "{part}: {error}"
        );
        for word in ["expected", "invalid type", "integer", "u64", "EOF"] {
            assert!(!error.contains(word), "{word} in: {error}");
        }
    }
    let ended = cost_of_standard_input("{}");
    assert_eq!(ended.status.code(), Some(2));
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(
        error.contains("standard input: it has no `total`"),
        "{error}"
    );
}
