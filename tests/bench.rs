//! `refrain bench` as a program: rows come as they were measured, and Ctrl-C keeps them.

mod common;

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use common::{
    command::{command, refrain, refrain_fails},
    eventually,
};
use serde_json::Value;

fn start(arguments: &[&str]) -> Child {
    command(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs")
}

/// Starts the program, and waits until it takes Ctrl-C itself.
fn start_interruptible(arguments: &[&str]) -> Child {
    let child = start(arguments);
    eventually("it takes interrupts", || {
        takes_interrupts(&child).then_some(())
    });
    child
}

fn interrupt(child: &Child) {
    let kill = format!("kill -INT {}", child.id());
    let sent = Command::new("sh").args(["-c", &kill]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{kill}");
}

/// Whether a process takes Ctrl-C itself: signal 2 is bit 1.
fn takes_interrupts(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.expect("a process that runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("Linux says").trim(), 16);
    caught.expect("a mask") & 2 != 0
}

#[test]
fn rows_come_one_by_one_and_an_interrupt_keeps_those_that_came() {
    // More time than can pass unseen between the first row and the signal.
    let mut bench = start(&["bench", "--seconds", "2"]);
    let mut out = BufReader::new(bench.stdout.take().expect("it is piped"));
    let mut text = String::new();
    while !text.contains("\nencode new data ") {
        let read = out.read_line(&mut text).expect("text");
        assert!(read > 0, "it ended without a row: {text}");
    }
    interrupt(&bench);
    out.read_to_string(&mut text).expect("text");
    let ended = bench.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{error}");
    assert!(text.contains("NOT COMPLETE"), "{text}");
    assert!(!text.contains("carry"), "the last rows: {text}");
    assert!(error.contains("interrupted"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_filter_that_fits_nothing_is_told_what_there_is() {
    let (code, error) = refrain_fails(&["bench", "--filter", "lz4"]);
    assert_eq!(code, 1, "{error}");
    assert!(
        error.contains("\"lz4\"") && error.contains(": encode new data, "),
        "{error}"
    );
}

#[test]
fn all_ten_rows_have_speeds() {
    let run = refrain(&["bench", "--json", "--seconds", "0.01"]);
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{error}");
    let report: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 10);
    for row in rows {
        assert!(row["gb_per_s"].as_f64() > Some(0.0), "{row}");
        let is_of_chunks = row["name"]
            .as_str()
            .is_some_and(|name| name.contains(" chunks "));
        let is_of_store = is_of_chunks && row["name"] != "cut chunks and hash them";
        assert_eq!(
            row["chunks_per_s"].as_f64() > Some(0.0),
            is_of_store,
            "{row}"
        );
    }
}

/// As in `refrain bench | tee FILE`, where Ctrl-C ends both.
#[test]
fn an_interrupt_is_told_to_the_shell_also_where_nobody_reads() {
    for json in [&["--json"][..], &[]] {
        let arguments = [&["bench", "--seconds", "100"], json].concat();
        let mut bench = start_interruptible(&arguments);
        drop(bench.stdout.take());
        interrupt(&bench);
        let ended = bench.wait_with_output().expect("it ends");
        let error = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{json:?}: {error}");
    }
}

#[test]
fn json_says_whether_it_is_complete() {
    let rows = ["--seconds", "0.01", "--filter", "Decode"];
    let whole = refrain(&[&["bench", "--json"], &rows[..]].concat());
    let error = String::from_utf8_lossy(&whole.stderr);
    assert!(whole.status.success(), "{error}");
    assert_eq!(error, "", "no progress where there is no terminal");
    let report: Value = serde_json::from_slice(&whole.stdout).expect("JSON");
    assert_eq!(report["complete"], true);
    assert_eq!(report["rows"][0]["name"], "decode repeated data");
    assert!(report["rows"][0]["gb_per_s"].as_f64() > Some(0.0));

    let bench = start_interruptible(&["bench", "--json", "--seconds", "100"]);
    interrupt(&bench);
    let ended = bench.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{error}");
    let report: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    assert_eq!(report["complete"], false);
    assert_eq!(report["rows"], Value::Array(Vec::new()));
}
