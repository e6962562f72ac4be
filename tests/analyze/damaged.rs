//! Captures that are none, or only in part.

use tempfile::TempDir;

use super::{
    common::{
        command::{refrain, refrain_fails},
        content::noise,
    },
    json,
    packets::Capture,
    saved, twice, write,
};

#[test]
fn files_that_are_no_captures_are_named_with_the_reason() {
    let folder = TempDir::new().expect("a folder");
    let cases = [
        ("empty", Vec::new(), "it is empty"),
        ("noise", noise(9, 10_000), "neither"),
        ("short", b"\xd4\xc3\xb2".to_vec(), "neither"),
        (
            "gzip",
            b"\x1f\x8b\x08\0\0\0\0\0\0\x03rubbish".to_vec(),
            "cannot be read",
        ),
    ];
    for (name, bytes, reason) in cases {
        let path = write(&folder, name, &bytes);
        let (code, error) = refrain_fails(&["analyze", &path]);
        assert_eq!(code, 1, "{name}: {error}");
        assert!(
            error.contains(reason) && error.contains(&path),
            "{name}: {error}"
        );
    }
    let (code, error) = refrain_fails(&["analyze", "/nowhere/at-all.pcap"]);
    assert!(
        code == 1 && error.contains("/nowhere/at-all.pcap"),
        "{error}"
    );
}

#[test]
fn the_packets_before_a_cut_are_reported() {
    let folder = TempDir::new().expect("a folder");
    let whole = twice(&noise(1, 200_000)).pcap();
    let path = write(&folder, "cut.pcap", &whole[..whole.len() * 3 / 4]);
    let output = refrain(&["analyze", &path]);
    let (text, error) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("is truncated"), "{error}");
    assert!(text.starts_with("29") || text.starts_with("30"), "{text}");
    // Others are read all the same.
    let good = write(&folder, "good.pcap", &whole);
    let report = json(&["--each", &path], 1);
    assert_eq!(report["unread_captures"], 1);
    let report = json(&[&good], 0);
    assert_eq!(report["unread_captures"], 0);
}

#[test]
fn truncated_packets_are_counted_with_advice() {
    let folder = TempDir::new().expect("a folder");
    let path = write(
        &folder,
        "snap.pcap",
        &twice(&noise(1, 100_000)).pcap_with(96),
    );
    let report = json(&[&path], 0);
    assert!(report["missed_bytes"].as_u64() > Some(190_000), "{report}");
    let text = refrain(&["analyze", &path]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("capture them whole"));
}

#[test]
fn a_clock_that_goes_backwards_changes_no_byte() {
    let folder = TempDir::new().expect("a folder");
    let path = write(
        &folder,
        "back.pcap",
        &twice(&noise(1, 100_000)).backwards().pcap(),
    );
    let report = json(&[&path], 0);
    assert_eq!(report["payload_bytes"], 200_086);
    assert!(saved(&report, "samplebyte-32") > 40.0, "{report}");
    assert!(saved(&report, "refrain") > 40.0, "{report}");
}

#[test]
fn many_first_packets_are_many_connections_in_bounded_memory() {
    let folder = TempDir::new().expect("a folder");
    let mut capture = Capture::default();
    for nth in 0..300_000_u32 {
        let [_, high, middle, low] = nth.to_be_bytes();
        capture.client = [10, 1 + high, middle, low];
        capture.first_packet(40_000);
    }
    let path = write(&folder, "flood.pcap", &capture.pcap());
    let report = json(&["--columns", "zstd", &path], 0);
    assert_eq!(report["tcp_flows"], 300_000);
    assert_eq!(report["payload_bytes"], 0);
    // A table of 262,144 connections.
    assert!(
        report["flows_ended_early"].as_u64() > Some(30_000),
        "{report}"
    );
}

#[test]
fn other_packets_are_no_traffic() {
    let folder = TempDir::new().expect("a folder");
    let path = write(&folder, "nothing.pcap", &Capture::default().pcap());
    let output = refrain(&["analyze", &path]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("nothing to estimate"), "{text}");
}

#[test]
fn unknown_columns_are_named() {
    let (code, error) = refrain_fails(&["analyze", "--columns", "zstd,huffman", "x.pcap"]);
    assert!(
        code == 2 && error.contains("huffman") && error.contains("--list-columns"),
        "{error}"
    );
}
