//! `refrain analyze --requests`: logs in, repeats out.

use std::{fs, io::Write};

use flate2::{Compression, write::GzEncoder};
use tempfile::TempDir;

use super::{
    common::command::{refrain, refrain_fails},
    json, write,
};

/// An hour of a site: each of three clients requests the same file of 1 MB every ten minutes.
fn log() -> String {
    let mut log = String::new();
    for minute in [0, 10, 20, 30, 40, 50] {
        for client in ["192.0.2.1", "192.0.2.2", "2001:db8::3"] {
            log += &format!(
                "{client} - - [01/Dec/2026:10:{minute:02}:00 +0100] \"GET /file HTTP/1.1\" 200 1000000 \"-\" \"curl\"\n"
            );
        }
    }
    log + "192.0.2.1 - - [01/Dec/2026:10:59:59 +0100] \"POST /form HTTP/1.1\" 200 500 \"-\" \"curl\"\n"
}

#[test]
fn repeats_of_a_client_and_of_all_are_counted() {
    let folder = TempDir::new().expect("a folder");
    let text = log();
    let plain = write(&folder, "access.log", text.as_bytes());
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text.as_bytes()).expect("memory");
    let gzip = write(&folder, "access.log.gz", &gzip.finish().expect("memory"));
    let report = json(&["--requests", &plain], 0);
    assert_eq!(report["requests"], 18);
    assert_eq!(report["bytes"], 18_000_000);
    assert_eq!(report["other_requests"], 1);
    assert_eq!(report["clients"], 3);
    assert_eq!(report["objects"], 1);
    assert_eq!(report["same_client"]["bytes"], 15_000_000);
    assert_eq!(report["any_client"]["bytes"], 17_000_000);
    // After ten minutes, a client's cache has it.
    assert_eq!(report["same_client"]["by_age"][4], 15_000_000);
    assert_eq!(report["seconds"], 3599.0);
    assert_eq!(report["sizes_are_invented"], false);
    let compressed = json(&["--requests", &gzip], 0);
    assert_eq!(compressed["intervals"], report["intervals"]);
    // Two logs are one, the older one first.
    let both = json(&["--requests", &plain, &gzip], 0);
    assert_eq!(both["same_client"]["bytes"], 33_000_000);
}

#[test]
fn servers_and_prices_follow_the_paper() {
    let folder = TempDir::new().expect("a folder");
    let plain = write(&folder, "access.log", log().as_bytes());
    // 3 MB in an interval of a minute are 400 kbit/s.
    let report = json(&["--requests", &plain, "--server-output", "100kbit"], 0);
    let arrays = report["arrays"].as_array().expect("a list");
    let names: Vec<_> = arrays.iter().map(|it| it["name"].as_str()).collect();
    assert_eq!(
        names,
        [Some("no elimination"), Some("PACK"), Some("sender-based")]
    );
    let most = |nth: usize| {
        let servers = arrays[nth]["servers"].as_array().expect("a list");
        servers.iter().filter_map(serde_json::Value::as_u64).max()
    };
    // 4 and 0.25; 4 and 0.81 of hashes; 4 and 0.76.
    assert_eq!([most(0), most(1), most(2)], [Some(5), Some(6), Some(6)]);
    assert_eq!(arrays[0]["cost_percent"], 100.0);
    assert_eq!(arrays[1]["sent_bytes"], 3_000_500);
    let share = |nth: usize| arrays[nth]["cost_percent"].as_f64().expect("a number");
    let hours = |nth: usize| arrays[nth]["server_hours"].as_f64().expect("a number");
    let expected = 70.0 * 3_000_500.0 / 18_000_500.0 + 30.0 * hours(1) / hours(0);
    assert!((share(1) - expected).abs() < 1e-9, "{report}");

    let prices = ["--price-gb", "1000", "--price-hour", "2"];
    let report = json(&[&["--requests", &plain][..], &prices].concat(), 0);
    // An hour of one server.
    let cost = report["arrays"][0]["cost"].as_f64().expect("a number");
    assert!((cost - 18.0005 - 2.0).abs() < 1e-9, "{report}");
}

#[test]
fn a_page_and_a_text_have_no_names() {
    let folder = TempDir::new().expect("a folder");
    let plain = write(&folder, "<b>access.log", log().as_bytes());
    let path = folder.path().join("report.html").display().to_string();
    let output = refrain(&["analyze", "--requests", "--html", &path, &plain]);
    let text = String::from_utf8(output.stdout).expect("text");
    for part in [
        "19 requests of 3 clients for 1 object in 59 min 59 s: 18.0 MB",
        "any client",
        "94.4 %",
        "sender-based",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let page = fs::read_to_string(&path).expect("a page");
    for part in ["http://", "<script", "<b>", "/form", "192.0.2.1"] {
        assert!(!page.contains(part), "{part}");
    }
    assert_eq!(page.matches("<svg").count(), 5);
    let report = json(&["--requests", "--anonymize", &plain], 0);
    assert_eq!(report["traces"][0], "log-1");
}

#[test]
fn logs_that_cannot_be_read_are_named() {
    let folder = TempDir::new().expect("a folder");
    let empty = write(&folder, "empty", b"");
    let other = write(&folder, "other", b"a\nb\n");
    for (arguments, code, part) in [
        (&["--requests", "/nowhere"][..], 1, "/nowhere"),
        (&["--requests", &empty], 1, "no request in 0 lines"),
        (&["--requests", &other], 1, "no request in 2 lines"),
        (&["--requests", "-", "-"], 2, "only once"),
        (&["--requests", "--objects", &other], 2, "--objects"),
        (&["--requests"], 2, "FILE"),
        (
            &["--requests", "--price-gb", "1", &other],
            2,
            "--price-hour",
        ),
        (&["--server-output", "1Mbit", &other], 2, "--requests"),
        (
            &["--requests", "--server-output", "0", &other],
            2,
            "--server-output",
        ),
    ] {
        let (got, error) = refrain_fails(&[&["analyze"], arguments].concat());
        assert_eq!(got, code, "{arguments:?}: {error}");
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    // Rotated logs are named from the newest to the oldest.
    let text = log();
    let middle = text[..text.len() / 2].rfind('\n').expect("a line") + 1;
    let old = write(&folder, "access.log.1", &text.as_bytes()[..middle]);
    let new = write(&folder, "access.log", &text.as_bytes()[middle..]);
    let report = json(&["--requests", &new, &old], 0);
    assert_eq!(report["seconds"], 3599.0);
    // A rotated log that is truncated: its lines before that count.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
    gzip.write_all(log().as_bytes()).expect("memory");
    let gzip = gzip.finish().expect("memory");
    let cut = write(&folder, "cut.gz", &gzip[..gzip.len() / 2]);
    let report = json(&["--requests", &cut], 1);
    assert_eq!(report["unread_traces"], 1);
    // A line without an end is one line.
    let long = [&vec![b'x'; 200_000][..], b"\n", log().as_bytes()].concat();
    let long = write(&folder, "long", &long);
    let report = json(&["--requests", &long], 0);
    assert_eq!(
        (&report["unread_lines"], &report["requests"]),
        (&1.into(), &18.into())
    );
}
