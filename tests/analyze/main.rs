//! `refrain analyze` as a program: captures in, a report out.

#[path = "../common/mod.rs"]
mod common;
mod damaged;
mod objects;
mod packets;
mod pages;
mod requests;
mod train;

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use common::{
    command::{command, refrain},
    content::{letters, noise},
};
use packets::Capture;
use serde_json::Value;
use tempfile::TempDir;

/// Writes a capture, and gives its path.
fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("a file");
    path.display().to_string()
}

/// The JSON of a report. Its exit code is `code`.
#[track_caller]
fn json(arguments: &[&str], code: i32) -> Value {
    let output = refrain(&[&["analyze", "--json"], arguments].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {error}"))
}

fn saved(report: &Value, column: &str) -> f64 {
    report["columns"][column]["saved_percent"]
        .as_f64()
        .unwrap_or_else(|| panic!("no {column} in {report}"))
}

/// Two downloads of the same noise by one client.
fn twice(bytes: &[u8]) -> Capture {
    let mut capture = Capture::default();
    for port in [40_000, 40_001] {
        capture.exchange(
            port,
            b"GET /file HTTP/1.1\r\nHost: files.example\r\n\r\n",
            bytes,
        );
    }
    capture
}

#[test]
fn a_repeat_is_half_of_two_downloads() {
    let folder = TempDir::new().expect("a folder");
    let path = write(&folder, "twice.pcap", &twice(&noise(1, 400_000)).pcap());
    let report = json(&["--columns", "all", &path], 0);
    assert_eq!(report["tcp_flows"], 2);
    assert_eq!(report["payload_bytes"], 800_086);
    for column in [
        "modp-32",
        "maxp-32",
        "samplebyte-32",
        "samplebyte-1g",
        "pack",
        "refrain",
        "refrain-max",
    ] {
        let saved = saved(&report, column);
        assert!((44.0..51.0).contains(&saved), "{column}: {saved}");
    }
    for column in ["gzip", "zstd"] {
        assert!(saved(&report, column).abs() < 1.0, "{column}");
    }
    assert_eq!(report["protocols"][0]["protocol"], "HTTP");
    assert_eq!(report["sites"][0]["site"], "files.example");
    assert_eq!(report["pairs"][0]["port"], 80);
    // The second download repeats the first 400 kB later.
    assert_eq!(report["cache"]["recommended_bytes"], 512 << 10);
    assert_eq!(report["matches"]["other_pair_bytes"], 0);
    assert!(
        report["chains"]["repeated_chunks"]
            .as_u64()
            .expect("a number")
            > 20
    );
}

#[test]
fn text_of_gzip_is_an_upper_bound_only() {
    use flate2::{Compression, write::GzEncoder};
    let folder = TempDir::new().expect("a folder");
    let text = letters(3, 300_000);
    let mut capture = Capture::default();
    for (port, level) in [(40_000, 6), (40_001, 9)] {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
        encoder.write_all(&text).expect("memory");
        let body = encoder.finish().expect("memory");
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nContent-Encoding: gzip\r\n\r\n",
            body.len()
        );
        capture.exchange(
            port,
            b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            &[head.as_bytes(), &body].concat(),
        );
    }
    let path = write(&folder, "gzip.pcap", &capture.pcap());
    let report = json(&["--columns", "refrain,inflated", &path], 0);
    assert!(saved(&report, "refrain") < 20.0, "{report}");
    assert!(saved(&report, "inflated") > 40.0, "{report}");
}

#[test]
fn all_forms_of_a_capture_are_one() {
    let folder = TempDir::new().expect("a folder");
    let capture = twice(&letters(1, 50_000));
    let plain = capture.pcap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).expect("memory");
    let forms: [Vec<u8>; 4] = [
        plain.clone(),
        gzip.finish().expect("memory"),
        zstd::encode_all(&plain[..], 1).expect("memory"),
        capture.pcapng(),
    ];
    let reports = forms.map(|bytes| {
        let path = write(&folder, "capture", &bytes);
        let report = json(&[&path], 0);
        let column = |name: &str| report["columns"][name]["sent_bytes"].clone();
        (
            report["payload_bytes"].clone(),
            ["zstd", "samplebyte-32", "pack", "refrain"].map(column),
        )
    });
    assert!(
        reports.iter().all(|report| *report == reports[0]),
        "{reports:?}"
    );
}

#[test]
fn several_captures_are_one_or_each_alone() {
    let folder = TempDir::new().expect("a folder");
    let bytes = noise(2, 200_000);
    let mut paths = Vec::new();
    // The second capture is older than the first.
    for (name, second, port) in [("b.pcap", 2_000_000, 40_000), ("a.pcap", 1_000_000, 40_001)] {
        let mut capture = Capture::beginning_at(second);
        capture.exchange(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &bytes);
        paths.push(write(&folder, name, &capture.pcap()));
    }
    let together = json(&[&paths[0], &paths[1]], 0);
    assert!(saved(&together, "samplebyte-32") > 45.0, "{together}");
    assert!(saved(&together, "refrain") > 45.0, "{together}");
    let output = refrain(&["analyze", "--json", "--each", &paths[0], &paths[1]]);
    let lines = String::from_utf8(output.stdout).expect("text");
    let each: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(each.len(), 2);
    assert!(
        each.iter()
            .all(|report| saved(report, "samplebyte-32") < 1.0),
        "{lines}"
    );
}

#[test]
fn memory_is_bounded_and_that_is_said() {
    let folder = TempDir::new().expect("a folder");
    let mut capture = Capture::default();
    // Servers with more than half a megabyte each, which grow their caches to 8 MiB.
    for server in 0..40 {
        capture.server = [10, 0, 1, server];
        capture.exchange(
            40_000,
            b"GET / HTTP/1.1\r\n\r\n",
            &noise(server.into(), 600_000),
        );
    }
    let path = write(&folder, "many.pcap", &capture.pcap());
    let bounded = json(
        &["--columns", "samplebyte-32", "--memory", "256MiB", &path],
        0,
    );
    assert!(
        bounded["columns"]["samplebyte-32"]["caches_given_up"].as_u64() > Some(0),
        "{bounded}"
    );
    assert!(
        bounded["columns"]["samplebyte-32"]["memory_bytes"].as_u64() < Some(2 * (256 << 20)),
        "{bounded}"
    );
    let text = refrain(&[
        "analyze",
        "--columns",
        "samplebyte-32",
        "--memory",
        "256MiB",
        &path,
    ]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("more --memory"));
}

#[test]
fn a_live_capture_is_reported_on_ctrl_c() {
    let mut child = command(&["analyze", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin
        .write_all(&twice(&noise(4, 100_000)).pcap())
        .expect("it reads");
    stdin.flush().expect("it reads");
    // It must have read them: a pipe holds less.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.expect("kill runs").success());
    let output: Output = child.wait_with_output().expect("it ends");
    drop(stdin);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["is_cut_short"], true);
    assert_eq!(report["tcp_flows"], 2);
}

#[test]
fn a_month_has_the_price_of_its_traffic() {
    let folder = TempDir::new().expect("a folder");
    let path = write(&folder, "twice.pcap", &twice(&noise(1, 400_000)).pcap());
    let report = json(
        &[
            "--traffic",
            "10TB",
            "--price-gb",
            "0.05",
            "--price-hour",
            "0",
            &path,
        ],
        0,
    );
    let share = saved(&report, "refrain") / 100.0;
    let month = &report["month"];
    assert_eq!(month["is_scaled"], false);
    let before = month["traffic_before_gb"].as_f64().expect("a number");
    assert!(
        before > month["traffic_gb"].as_f64().expect("a number"),
        "{month}"
    );
    assert!(
        (month["saved_on_traffic"].as_f64().expect("a price") - 500.0 * share).abs() < 0.01,
        "{month}"
    );
}
