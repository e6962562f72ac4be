//! `refrain demo`, over a simulated link and on loopback.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{
    command::{refrain, refrain_fails},
    content::letters,
};

/// Runs a demo with these options.
#[track_caller]
fn demo(options: &[&str]) -> String {
    let ran = refrain(&[&["demo"][..], options].concat());
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{options:?}: {error}");
    // There is no terminal.
    assert_eq!(error, "");
    String::from_utf8(ran.stdout).expect("text")
}

/// A directory with two equal files of 300 kB, of which zstd saves a third.
fn two_equal_files() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["a", "b"] {
        fs::write(directory.path().join(name), letters(1, 300_000)).expect("a file");
    }
    directory
}

fn bytes(way: &Value) -> u64 {
    way["link_bytes"].as_u64().expect("a number")
}

#[test]
fn each_way_carries_all_objects_over_the_link() {
    let files = two_equal_files();
    let path = files.path().to_str().expect("text");
    let options = ["--json", "--flows", "1", "--link", "100Mbit,5ms", path];
    let report: Value = serde_json::from_str(&demo(&options)).expect("JSON");
    assert_eq!(
        (&report["objects"], &report["flows"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(report["verified"], true);
    assert_eq!(report["effort"], "max");
    let link = json!({ "bits_per_second": 100_000_000, "delay_ms": 5 });
    assert_eq!(report["link"], link);
    let [direct, zstd, pair] = &report["ways"].as_array().expect("ways")[..] else {
        panic!("{report}");
    };
    for (way, name) in [(direct, "direct"), (zstd, "zstd"), (pair, "pair")] {
        assert_eq!(way["way"], name);
        assert_eq!(way["calculated"], false);
        // Two requests, one after the other.
        let seconds = way["seconds"].as_f64().expect("a number");
        assert!(seconds >= 0.02, "{report}");
    }
    // Two bodies, and the heads of requests and answers.
    assert!((600_000..602_000).contains(&bytes(direct)), "{report}");
    assert!(direct["seconds"].as_f64() >= Some(0.048), "{report}");
    assert!(bytes(zstd) < bytes(direct), "{report}");
    assert!(2 * bytes(pair) < bytes(direct), "{report}");
    assert!(bytes(pair) < bytes(zstd), "{report}");
    // The fields without a way are of the pair.
    for field in ["seconds", "link_bytes"] {
        assert_eq!(report[field], pair[field]);
    }
    let measured = [bytes(direct), bytes(zstd)];
    for (field, measured) in ["app_bytes", "zstd_only_bytes"].into_iter().zip(measured) {
        let derived = report[field].as_u64().expect("a number");
        assert!(derived.abs_diff(measured) < 200, "{field}: {report}");
    }
}

#[test]
fn without_a_link_all_is_on_loopback() {
    let files = two_equal_files();
    let path = files.path().to_str().expect("text");
    let report: Value =
        serde_json::from_str(&demo(&["--json", "--link", "none", path])).expect("JSON");
    assert_eq!(report["link"], Value::Null);
    assert_eq!(report["effort"], "auto");
    assert_eq!(report["verified"], true);
    assert_eq!(report["ways"][0]["link_bytes"], report["app_bytes"]);
    assert_eq!(report["ways"][1]["link_bytes"], report["zstd_only_bytes"]);
    assert_eq!(report["ways"][2]["link_bytes"], report["link_bytes"]);
}

#[test]
fn a_transfer_that_takes_too_long_is_calculated_and_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("zeros");
    fs::write(&file, vec![0_u8; 3_000_000]).expect("a file");
    let text = demo(&["--link", "1Mbit,1ms", file.to_str().expect("text")]);
    let first = text.lines().next().unwrap_or_default();
    assert!(first.starts_with("the pair sent "), "{text}");
    assert!(first.ends_with(" in 24.0 s (calculated)"), "{text}");
    for part in [
        "calculated: 24.0",
        "\n1 object, 1 at a time, over a link (1 Mbit/s, 1 ms each way) that is simulated inside this program\n",
        "\nverified: received data is identical to sent data\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_link_that_cannot_be_simulated_is_an_error_of_usage() {
    for (link, part) in [
        ("20Mbit", "such as 20Mbit,25ms, or none"),
        ("10Gbit,25ms", "from 1Mbit/s to 1Gbit/s"),
        ("20Mbit,2s", "at most 500ms"),
    ] {
        let (code, error) = refrain_fails(&["demo", "--link", link]);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains(part), "{link}: {error}");
    }
}
