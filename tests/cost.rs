//! `refrain cost` as a program: figures by hand, the status of a run, prices
//! or none, and what cannot be.

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
        "--price-gb",
        "0.09",
        "--price-hour",
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
    let spent = hours * 0.0025 * 0.2;
    let break_even = "/receiver_driven/break_even_per_gb";
    assert_near(&report, break_even, spent / 10_000.0);
    // A CPU second more for each of 20,000 GB.
    let cpu_hours = 20_000.0 / 3600.0;
    assert_near(&report, "/receiver_driven/cpu_hours_added", cpu_hours);
}

#[test]
fn the_first_line_is_the_answer() {
    // 20 CPU hours for 10,000 GB; a server has 2 in an hour, in which it sends 157.5 GB.
    const VOLUME: &str = "saves 10.0 TB of 20.0 TB of traffic per month (50.0 %)";
    const MONEY: &str = "saves 898.00 of 1825.40 per month (49.2 %)";
    const LOSS: &str = "costs 1.00 more per month than the 27.40 without elimination";
    const SENDER: &str = "saves 12.0 TB of 20.0 TB of traffic per month (60.0 %)";
    const CPU: &str = "It needs 0.00200 CPU hours per saved GB, and pays if these are cheaper than 1 GB of traffic";
    const PRICE: &str =
        "Break-even price per GB of traffic: 0.000200 (in the currency of your prices)";
    for (arguments, saves, break_even) in [
        ("", VOLUME, CPU),
        ("--price-gb 0.09", VOLUME, CPU),
        ("--price-hour 0.2", VOLUME, PRICE),
        ("--price-hour 0.2 --price-gb 0.09", MONEY, PRICE),
        ("--price-hour 0.2 --price-gb 0.0001", LOSS, PRICE),
        (
            "--redundancy-sender 60%",
            SENDER,
            "It needs 0.00311 CPU hours per saved GB, and pays if these are cheaper than 1 GB of traffic",
        ),
    ] {
        let all = format!("cost --traffic 20TB --redundancy 50% --cpu-receiver 3.6 {arguments}");
        let shown = refrain(&all.split_whitespace().collect::<Vec<_>>());
        let text = String::from_utf8(shown.stdout).expect("text");
        let driver = if saves == SENDER {
            "sender"
        } else {
            "receiver"
        };
        let answer = format!("{saves}, with {driver}-driven elimination. {break_even}\n");
        assert!(text.starts_with(&answer), "{arguments}: {text}");
    }
}

#[test]
fn unknown_prices_and_assumptions_are_named_and_no_figure_is_money() {
    const ENOUGH: [&str; 4] = ["--traffic", "20TB", "--redundancy", "50%"];
    let shown = refrain(&[&["cost"], &ENOUGH[..]].concat());
    let text = String::from_utf8(shown.stdout).expect("text");
    for part in [
        "unknown: give --price-gb",
        "unknown: give --price-hour",
        "assumed: 6.1 % at 30 % redundancy",
        "assumed: 19.0 %",
        "assumed: as much as predictions",
        "assumed: the server of the PACK paper",
        "CPU hours added",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("cost") && !text.contains("spent"), "{text}");
    let report = cost(&ENOUGH);
    assert_near(&report, "/receiver_driven/saved_gb", 10_000.0);
    let json = report.to_string();
    for field in ["cost", "price", "total", "spent", "left", "break_even"] {
        assert!(!json.contains(field), "{field} is in {json}");
    }
}

#[test]
fn old_names_of_prices_work_and_are_hidden() {
    let with = |names: [&str; 2]| {
        let prices = [names[0], "0.01", names[1], "0.3"];
        cost(&[&["--traffic", "1TB", "--redundancy", "50%"], &prices[..]].concat())
    };
    let old = ["--egress", "--server"];
    assert_eq!(with(old), with(["--price-gb", "--price-hour"]));
    let help = refrain(&["cost", "--help"]);
    let help = String::from_utf8(help.stdout).expect("text");
    assert!(!old.iter().any(|name| help.contains(&format!("{name} "))));
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
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // After the answer.
    let second = text.lines().nth(1).unwrap_or_default();
    let warns = second.starts_with("warning: the run lasted only 2 h 1 min");
    assert!(warns, "{text}");
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
    let traffic = number(&report, "/none/traffic_gb");
    assert!(traffic > 0.0);
    let saved = number(&report, "/receiver_driven/saved_gb");
    assert!((saved / traffic - 0.1).abs() < 1e-6, "{report}");

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

#[test]
fn what_cannot_be_is_one_clear_error() {
    const ENOUGH: [&str; 4] = ["--traffic", "1TB", "--redundancy", "30%"];
    for (arguments, part) in [
        (&[][..], "--traffic"),
        (&["--traffic", "1TB"], "--redundancy"),
        (&["--traffic", "-1TB", "--redundancy", "30%"], "--traffic"),
        (&["--traffic", "0", "--redundancy", "30%"], "--traffic"),
        (
            &["--traffic", "5", "--redundancy", "30%"],
            "write, for example, 5GB",
        ),
        (
            &[&ENOUGH[..], &["--redundancy-both", "20%"]].concat(),
            "--redundancy-both",
        ),
        (
            &["--traffic", "1TB", "--redundancy", "30"],
            "write, for example, 30%",
        ),
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
        (
            &[&ENOUGH[..], &["--price-gb", "-0.1"]].concat(),
            "--price-gb",
        ),
        (
            &[&ENOUGH[..], &["--price-gb", "inf"]].concat(),
            "--price-gb",
        ),
        (
            &[&ENOUGH[..], &["--price-hour", "aws"]].concat(),
            "--price-hour",
        ),
        (
            &[&ENOUGH[..], &["--price-gb", "0", "--price-hour", "0"]].concat(),
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
    ] {
        let (code, error) = refrain_fails(&[&["cost"], arguments].concat());
        assert_eq!(code, 2, "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
        assert!(!error.contains("panicked"), "{error}");
    }
    let (code, error) = refrain_fails(&["cost", "nowhere/run.json"]);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("nowhere/run.json"), "{error}");
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
    let short = String::from_utf8(with(90, 0)).expect("text");
    for (status, part) in [("{}", "no `total`"), (short.as_str(), "up for 0.0 s")] {
        let ended = cost_of_standard_input(status);
        assert_eq!(ended.status.code(), Some(2));
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(
            error.contains("from standard input: ") && error.contains(part),
            "{error}"
        );
    }
}
