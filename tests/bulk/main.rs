//! `refrain bulk` from the outside.

#[path = "../common/mod.rs"]
mod common;
mod keeping;

use std::{
    fs::{self, Permissions},
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
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
        let text = |arguments: &[&str]| {
            let arguments = [&[".", "--method", method], arguments].concat();
            String::from_utf8(bulk(songs.path(), &arguments).stdout).unwrap()
        };
        let (short, long) = (text(&[]), text(&["--verbose"]));
        let answer = format!("{:.1} % repeats: ", 100.0 * share);
        assert!(short.starts_with(&answer), "{short}");
        assert!(long.starts_with(&answer), "{long}");
        assert!(
            !short.contains("peak memory") && long.contains("peak memory"),
            "{short}{long}"
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
    assert_eq!(report["why"], "the default for less than 4.3 GB");
    for method in ["cuda", "harens"] {
        let output = bulk(songs.path(), &[".", "--json", "--method", method]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            assert_eq!(output.status.code(), Some(1));
            let start = format!("error: --method {method}: ");
            assert!(
                said.starts_with(&start) && said.contains("no CUDA device"),
                "{said}"
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
    assert!(
        said.contains("cannot open \"none\": No such file"),
        "{said}"
    );
    assert!(said.contains("could not read 1 path"), "{said}");
    let nothing = bulk(songs.path(), &["none"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(nothing.stdout.is_empty(), "{nothing:?}");
}

#[test]
fn who_reads_no_report_may_see_the_exit_code() {
    let songs = songs();
    let mut child = command(&["bulk", "a", "none"])
        .current_dir(songs.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
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
    let forgotten = |cache: &str| {
        let output = run(songs.path(), &["bulk", "a", "--cache-size", cache]).stdout;
        String::from_utf8(output).unwrap().contains("did not fit")
    };
    assert!(forgotten("50KB") && !forgotten("1GB"));
}

/// A hundred times what it may remember, and none of it twice within that.
#[test]
fn memory_does_not_grow_with_the_input() {
    let mut child = command(&["bulk", "-", "--json", "--cache-size", "1MiB"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut input = child.stdin.take().expect("it is piped");
    let mut piece = vec![0; 1 << 20];
    for number in 0..100_u64 {
        let mut state = number | 1 << 40;
        for word in piece.as_chunks_mut::<8>().0 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(number);
            *word = (state ^ state >> 29).to_le_bytes();
        }
        input.write_all(&piece).unwrap();
    }
    drop(input);
    let report = json(&child.wait_with_output().unwrap());
    assert_eq!(report["bytes"], 100 << 20);
    assert_eq!(report["redundant_bytes"], 0);
    let peak = report["peak_memory_bytes"].as_u64().unwrap();
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    // The program, and batches for each stage's threads.
    assert!(peak < (40 << 20) + threads * (10 << 20), "{peak}");
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
        &["a", "--batch-size", "1"],
        &["a", "--chunker", "gear"],
        &["a", "--chunk-hash", "md5"],
        &["a", "--exclude", "["],
        &["a", "--chunk-min", "600", "--chunker", "fixed"],
        &[],
    ] {
        let output = bulk(songs.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    for (arguments, parts) in [
        (
            &["a", "--chunk-min", "4KiB"][..],
            ["--chunk-min: the shortest chunk, 4KiB,", "average, 2KiB"],
        ),
        (&["-", "a", "-"], ["standard input", "only once"]),
    ] {
        let output = bulk(songs.path(), arguments);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
}

#[test]
fn a_pipe_that_nobody_writes_to_is_waited_for_until_a_signal_comes() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let spawned = || {
        let mut command = command(&["bulk", "pipe", "--json"]);
        let command = command.current_dir(folder.path());
        command.stdout(Stdio::piped()).spawn().expect("it runs")
    };
    let child = spawned();
    // Both wait for each other.
    fs::write(&pipe, vec![7; 1_000_000]).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(json(&ended)["bytes"], 1_000_000);
    // And not for ever.
    let mut child = spawned();
    let opened = format!("/proc/{}/fd", child.id());
    eventually("it has opened the pipe", || {
        let open = fs::read_dir(&opened).unwrap().flatten();
        let mut targets = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        targets.any(|target| target == pipe).then_some(())
    });
    let kill = format!("kill -TERM {}", child.id());
    let sent = Command::new("sh").args(["-c", &kill]).status();
    assert!(sent.expect("a shell is there").success());
    let ended = eventually("it ends", || child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(143));
}

#[test]
fn what_matches_a_pattern_is_left_alone() {
    let tree = tree();
    let files = |arguments: &[&str]| {
        let bulk = ["bulk", "in", "--json"];
        json(&run(tree.path(), &[&bulk, arguments].concat()))["files"].clone()
    };
    assert_eq!(files(&[]), 5);
    assert_eq!(files(&["--exclude", "below/"]), 4);
    assert_eq!(files(&["--exclude", "b*", "--exclude", "/in/secret"]), 3);
    assert_eq!(files(&["--exclude", "/secret"]), 5);
    let nothing = command(&["bulk", "in", "--exclude", "in"])
        .current_dir(tree.path())
        .output()
        .unwrap();
    assert_eq!(nothing.status.code(), Some(2));
}

#[test]
fn signals_end_it_while_nothing_comes_and_it_says_what_came_so_far() {
    for (signal, exit_code) in ending_signals() {
        let mut child = command(&["bulk", "-", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
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
        let found = json(&child.wait_with_output().unwrap());
        assert_eq!(found["is_cut_short"], true);
        assert!(found["bytes"].as_u64() <= Some(1 << 20), "{found}");
    }
}

/// A folder `in` with what archives hold: files that repeat, folders, links, permissions.
fn tree() -> TempDir {
    let songs = songs();
    let at = |name: &str| songs.path().join(name);
    fs::create_dir_all(at("in/below/empty")).unwrap();
    fs::rename(at("a"), at("in/a")).unwrap();
    fs::rename(at("b"), at("in/below/b")).unwrap();
    fs::write(at("in/nothing"), "").unwrap();
    fs::write(at("in/secret"), "open sesame").unwrap();
    fs::set_permissions(at("in/secret"), Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(at("in/a"), at("in/linked")).unwrap();
    symlink("below/b", at("in/points")).unwrap();
    songs
}

/// Runs `refrain` in a folder; it must succeed.
#[track_caller]
fn run(folder: &Path, arguments: &[&str]) -> Output {
    let output = command(arguments).current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    output
}

#[test]
fn small_files_may_be_many_more_than_can_be_open() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..3000 {
        fs::write(folder.path().join(number.to_string()), "small").unwrap();
    }
    fs::write(folder.path().join("large"), vec![7; 5_000_000]).unwrap();
    let program = command(&[]).get_program().to_str().unwrap().to_owned();
    for method in ["naive", "pipeline"] {
        let script = format!("ulimit -n 64; exec {program} bulk . --json --method {method}");
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(json(&output)["files"], 3001);
    }
}
