//! `refrain bulk` from the outside.

mod common;

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use common::{
    command::{command, ending_signals},
    eventually,
};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with a file, and another with the same and some bytes more.
fn songs() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let verses = (0..20_000).map(|number| format!("verse {}\n", number * number));
    let song = verses.collect::<String>().into_bytes();
    fs::write(folder.path().join("a"), &song).unwrap();
    fs::write(folder.path().join("b"), [&song[..], b"the end"].concat()).unwrap();
    folder
}

fn bulk(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = command(&["bulk"]);
    command.args(arguments).current_dir(folder);
    command.output().expect("the program runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn it_says_how_much_repeats_and_how_fast_that_was_found() {
    let songs = songs();
    let mut shares = Vec::new();
    for method in ["naive", "pipeline"] {
        let output = bulk(songs.path(), &["a", "b", "--json", "--method", method]);
        assert!(output.status.success());
        let report = json(&output);
        assert_eq!(report["method"], method);
        let bytes = fs::metadata(songs.path().join("a")).unwrap().len() * 2 + 7;
        assert_eq!(
            (&report["bytes"], &report["files"]),
            (&bytes.into(), &2.into())
        );
        let share = report["redundancy"].as_f64().unwrap();
        assert!(share > 0.45 && share < 0.5, "{share}");
        assert!(report["gb_per_s"].as_f64().unwrap() > 0.0);
        assert!(report["peak_memory_bytes"].as_u64().unwrap() > 1 << 20);
        let of_length = report["chunk_lengths"].as_array().unwrap().iter();
        let counted: u64 = of_length.map(|n| n["chunks"].as_u64().unwrap()).sum();
        assert_eq!(report["chunks"], counted);
        shares.push(share);
        let stages = report["stages"].as_array().into_iter().flatten();
        let names: Vec<&str> = stages
            .map(|stage| stage["name"].as_str().unwrap())
            .collect();
        match method {
            "naive" => assert_eq!(names, [""; 0]),
            _ => assert_eq!(names, ["fetch", "scan", "cut", "hash", "match"]),
        }
        let text = bulk(songs.path(), &[".", "--method", method]).stdout;
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains(&format!("({:.1} %)", 100.0 * share)),
            "{text}"
        );
    }
    assert_eq!(shares[0], shares[1]);
}

/// On a machine with a GPU, the crate's own tests say more.
#[test]
fn without_a_gpu_it_says_so_and_with_one_it_finds_the_same() {
    let songs = songs();
    let report = json(&bulk(songs.path(), &[".", "--json"]));
    assert_eq!(report["method"], "pipeline");
    assert_eq!(report["why"], "for less than 4.3 GB no GPU is asked");
    for method in ["cuda", "harens"] {
        let output = bulk(songs.path(), &[".", "--json", "--method", method]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            assert_eq!(output.status.code(), Some(1));
            assert_eq!(
                said,
                format!("refrain: --method {method}: no CUDA device\n")
            );
            continue;
        }
        let expected = json(&bulk(songs.path(), &[".", "--json"]));
        assert_eq!(json(&output)["redundancy"], expected["redundancy"]);
        assert_ne!(json(&output)["gpus"], Value::Array(vec![]));
    }
}

#[test]
fn standard_input_is_read_to_its_end() {
    let songs = songs();
    let mut child = command(&["bulk", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let song = fs::read(songs.path().join("a")).unwrap();
    let mut input = child.stdin.take().expect("it is piped");
    for _ in 0..3 {
        input.write_all(&song).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let report = json(&output);
    assert_eq!(report["bytes"], 3 * song.len());
    assert!(report["redundancy"].as_f64().unwrap() > 0.6);
}

#[test]
fn what_cannot_be_read_is_named_and_the_exit_code_is_1() {
    let songs = songs();
    let output = bulk(songs.path(), &["a", "none", "b", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["unread_files"], 1);
    assert!(json(&output)["redundancy"].as_f64().unwrap() > 0.45);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("none: No such file"), "{said}");
    assert!(
        said.contains("without what could not be read: 1 path"),
        "{said}"
    );
}

#[test]
fn a_small_cache_forgets_what_was_seen_long_ago() {
    let songs = songs();
    let share = |cache: &str| {
        let output = bulk(songs.path(), &["a", "b", "--json", "--cache-size", cache]);
        json(&output)["redundancy"].as_f64().unwrap()
    };
    assert!(share("1GB") > 0.45);
    assert!(share("50KB") < 0.1);
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let songs = songs();
    for arguments in [
        &["a", "--method", "magic"][..],
        &["a", "--chunk-size", "3"],
        &["a", "--hashers", "0"],
        &["a", "--cache-size", "0"],
        &["a", "--batch-size", "1TB"],
        &["a", "--chunker", "gear"],
        &["a", "--hash", "md5"],
        &[],
    ] {
        let output = bulk(songs.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    for (arguments, why) in [
        (&["a", "--chunk-min", "1MB"][..], "not 1000000"),
        (&["-", "a", "-"], "standard input is read once"),
    ] {
        let output = bulk(songs.path(), arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn signals_end_it_while_nothing_comes() {
    for (signal, exit_code) in ending_signals() {
        let mut child = command(&["bulk", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program runs");
        let mut input = child.stdin.take().expect("it is piped");
        // More than a pipe holds: it reads, and so it listens.
        input.write_all(&vec![7; 1 << 20]).unwrap();
        let kill = format!("kill -{signal} {}", child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("a shell is there").success());
        let ended = eventually("it ends", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(exit_code), "{signal}");
    }
}
