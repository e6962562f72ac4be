//! Where archives go.

use std::{
    fs::{self, File, Permissions},
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    process::{Command, Stdio},
};

use super::{OLD, World, names, noise};
use crate::common::command::command;

fn listed(world: &World, archive: &str) -> Vec<String> {
    let list = world.json(&["list", archive]);
    let entries = list["entries"].as_array().expect("entries").iter();
    let paths = entries.map(|entry| entry["path"].as_str().expect("text").to_owned());
    paths.collect()
}

#[test]
fn an_archive_in_the_folder_that_is_archived_is_not_in_itself() {
    let world = World::new();
    world.write("d/file", &noise(1, 100_000));
    for _ in 0..2 {
        // The second time there is an old one as well.
        world.run(&["create", "d", "-o", "d/d.czip"]);
        assert_eq!(listed(&world, "d/d.czip"), ["d", "d/file"]);
        assert_eq!(names(&world.path("d")), ["d.czip", "file"]);
    }
    let out = File::create(world.path("d/out.czip")).expect("made");
    let mut create = command(&["czip", "create", "d", "-o", "-"]);
    let create = create.current_dir(world.0.path()).stdout(out);
    let status = create.stderr(Stdio::null()).status();
    assert!(status.expect("it runs").success());
    assert_eq!(listed(&world, "d/out.czip"), ["d", "d/d.czip", "d/file"]);

    let (_, error) = world.fails(&["create", "d/file", "-o", "d/file"]);
    assert!(error.contains("both an input and the output"), "{error}");
    assert_eq!(
        fs::read(world.path("d/file")).expect("there"),
        noise(1, 100_000)
    );
}

#[test]
fn special_files_are_passed_over_told_and_counted() {
    let world = World::new();
    world.write("d/file", b"content");
    let made = Command::new("mkfifo")
        .arg(world.path("d/pipe\u{1b}[31m"))
        .status();
    assert!(made.expect("mkfifo is there").success());
    let output = world.run_with(&["create", "d", "-o", "d.czip", "--json"], b"");
    let error = String::from_utf8(output.stderr).expect("text");
    let start = "refrain: skipped \"d/pipe\\u{1b}[31m\": ";
    assert!(
        error.starts_with(start) && error.contains("not a file"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["special_files"], 1);
    let (_, error) = world.fails(&["create", "d/pipe\u{1b}[31m", "-o", "x.czip"]);
    assert!(error.contains("standard input"), "{error}");
    assert!(!world.path("x.czip").exists());
}

#[test]
fn what_cannot_be_read_is_told_and_left_out_and_the_exit_code_says_so() {
    let world = World::new();
    world.write("d/a", b"content");
    world.write("d/z", b"more");
    // Deeper than a path can say: root may not read it either.
    let deep =
        "cd d; for i in $(seq 20); do mkdir $0; cd $0 2>/dev/null || break; done; echo > file";
    let made = Command::new("sh")
        .args(["-c", deep, &"n".repeat(250)])
        .current_dir(world.0.path())
        .status();
    assert!(made.expect("a shell is there").success());
    let output = world.run_with(&["create", "d", "-o", "d.czip", "--json"], b"");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("text");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(lines[0].starts_with("refrain: skipped \"d/nnn"), "{error}");
    assert!(lines[0].contains("File name too long"), "{error}");
    assert!(lines[1].contains("1 path could not be read"), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["unread_files"], 1);
    let unread = &report["unread"][0];
    assert!(unread["path"].as_str().expect("text").starts_with("d/nnn"));
    assert!(
        unread["error"]
            .as_str()
            .expect("text")
            .contains("File name too long")
    );
    assert_eq!(unread["archived_bytes"], 0);
    assert_eq!(world.run(&["cat", "d.czip", "d/a"]), b"content");
    assert_eq!(world.run(&["cat", "d.czip", "d/z"]), b"more");
    for arguments in [&["--json"][..], &[]] {
        let create = [&["create", "d", "-o", "d.czip"], arguments].concat();
        assert_eq!(world.code_unread(&create), Some(1), "nobody reads of it");
    }
    // What was named has to be there.
    let (code, error) = world.fails(&["create", "d", "missing", "-o", "x.czip"]);
    assert!(
        code == Some(1) && error.contains("cannot open \"missing\": "),
        "{error}"
    );
    assert!(!world.path("x.czip").exists());
}

#[test]
fn an_archive_that_is_replaced_keeps_its_mode_and_a_link_to_it_stays() {
    let world = World::new();
    world.write("file", b"content");
    world.write("private.czip", OLD);
    let private = Permissions::from_mode(0o600);
    fs::set_permissions(world.path("private.czip"), private).expect("ours");
    symlink("private.czip", world.path("link.czip")).expect("made");
    world.run(&["create", "file", "-o", "link.czip"]);
    let link = fs::symlink_metadata(world.path("link.czip")).expect("there");
    assert!(link.is_symlink());
    let private = fs::metadata(world.path("private.czip")).expect("there");
    assert_eq!(private.permissions().mode() & 0o777, 0o600);
    assert_eq!(world.run(&["cat", "private.czip"]), b"content");

    let (_, error) = world.fails(&["create", "file", "-o", "."]);
    assert!(error.contains("directory"), "{error}");
    let (_, error) = world.fails(&["create", "file", "-o", "none/x.czip"]);
    assert!(
        error.starts_with("error: cannot write to \"none/x.czip\": ")
            && error.contains("directory does not exist")
            && !error.contains(".refrain-"),
        "{error}"
    );
    let (_, error) = world.fails(&["create", "missing", "-o", "private.czip"]);
    assert!(error.contains("missing"), "{error}");
    assert_eq!(world.run(&["cat", "private.czip"]), b"content");
    assert_eq!(names(world.0.path()), ["file", "link.czip", "private.czip"]);
}

#[test]
fn a_file_that_is_not_an_archive_is_not_replaced() {
    let world = World::new();
    world.write("d/file", b"content");
    for content in [&b"a plain file"[..], b"x"] {
        world.write("plain", content);
        for more in [&[][..], &["--stream"]] {
            let (code, error) = world.fails(&[&["create", "d", "-o", "plain"], more].concat());
            assert_eq!(code, Some(2), "{error}");
            assert!(error.contains("\"plain\" exists and is not"), "{error}");
            assert_eq!(fs::read(world.path("plain")).expect("there"), content);
        }
    }
    // An empty file, such as of `mktemp`, has nothing to lose.
    world.write("plain", b"");
    for _ in 0..2 {
        world.run(&["create", "d", "-o", "plain"]);
        assert_eq!(listed(&world, "plain"), ["d", "d/file"]);
    }
}

#[test]
fn an_archive_goes_down_a_pipe_and_to_a_device_but_not_to_a_terminal() {
    let world = World::new();
    world.write("file", b"content");
    world.run(&["create", "file", "-o", "/dev/null"]);
    let made = Command::new("mkfifo").arg(world.path("pipe")).status();
    assert!(made.expect("mkfifo is there").success());
    let mut create = command(&["czip", "create", "file", "-o", "pipe"])
        .current_dir(world.0.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    let archive = fs::read(world.path("pipe")).expect("readable");
    assert!(create.wait().expect("it ends").success());
    world.write("piped.czip", &archive);
    assert_eq!(world.json(&["stat", "piped.czip"])["has_footer"], true);
    assert_eq!(world.run(&["cat", "piped.czip"]), b"content");

    let terminal = Command::new("script")
        .args(["-qec", "\"$REFRAIN\" czip create file -o -", "/dev/null"])
        .env("REFRAIN", env!("CARGO_BIN_EXE_refrain"))
        .current_dir(world.0.path())
        .stdin(Stdio::null())
        .output();
    match terminal {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                !output.status.success() && said.contains("standard output: it is a terminal"),
                "{said}"
            );
        }
        Err(_) => eprintln!("skipped: no terminal, since `script` is not installed"),
    }
}

#[test]
fn an_archive_is_made_though_nobody_can_be_told_what_is_not_in_it() {
    let world = World::new();
    world.write("d/file", b"content");
    let made = Command::new("mkfifo").arg(world.path("d/pipe")).status();
    assert!(made.expect("mkfifo is there").success());
    let (_, closed) = std::io::pipe().expect("a pipe");
    let full = File::options().write(true).open("/dev/full");
    for stderr in [full.expect("there").into(), Stdio::from(closed)] {
        let mut create = command(&["czip", "create", "d", "-o", "d.czip"]);
        let create = create.current_dir(world.0.path()).stdout(Stdio::null());
        let status = create.stderr(stderr).status().expect("it runs");
        assert_eq!(status.code(), Some(0));
        assert_eq!(listed(&world, "d.czip"), ["d", "d/file"]);
        fs::remove_file(world.path("d.czip")).expect("ours");
    }
    // So is one that goes to standard output, where the report has no other place.
    let out = File::create(world.path("d.czip")).expect("made");
    let full = File::options().write(true).open("/dev/full");
    let mut create = command(&["czip", "create", "d", "-o", "-"]);
    let create = create.current_dir(world.0.path()).stdout(out);
    let status = create.stderr(full.expect("there")).status();
    assert_eq!(status.expect("it runs").code(), Some(0));
    // And an error is told by the exit code.
    let full = File::options().write(true).open("/dev/full");
    let mut list = command(&["czip", "list", "missing.czip"]);
    let status = list.stderr(full.expect("there")).status();
    assert_eq!(status.expect("it runs").code(), Some(1));
}

#[test]
fn a_standard_output_that_is_full_is_an_error_that_names_it() {
    let world = World::new();
    world.write("file", b"content");
    world.run(&["create", "file", "-o", "file.czip"]);
    for arguments in [
        &["cat", "file.czip"][..],
        &["list", "file.czip"],
        &["list", "file.czip", "--json"],
        &["stat", "file.czip"],
        &["extract", "file.czip", "-o", "-"],
    ] {
        let full = File::options().write(true).open("/dev/full");
        let run = command(&[&["czip"], arguments].concat())
            .current_dir(world.0.path())
            .stdout(full.expect("there"))
            .output()
            .expect("it runs");
        let error = String::from_utf8(run.stderr).expect("text");
        assert_eq!(run.status.code(), Some(1), "{arguments:?}");
        assert!(
            error.contains("standard output: ") && error.contains("No space left"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn an_archive_of_nothing_replaces_none() {
    let world = World::new();
    world.write("d/file", b"content");
    world.write("e.o", b"more");
    world.run(&["create", "d", "-o", "d.czip"]);
    let before = fs::read(world.path("d.czip")).expect("there");
    for (inputs, pattern) in [
        (&["d"][..], "d"),
        (&["./d/"], "d/"),
        (&["d", "e.o"], "*"),
        (&["e.o"], "/e.o"),
    ] {
        let create = [&["create", "-o", "d.czip", "--exclude", pattern], inputs].concat();
        let (code, error) = world.fails(&create);
        assert_eq!(code, Some(2), "{inputs:?}: {error}");
        assert!(error.contains("--exclude matches all inputs"), "{error}");
    }
    assert_eq!(fs::read(world.path("d.czip")).expect("there"), before);
    world.run(&["create", "d", "e.o", "-o", "d.czip", "--exclude", "*.o"]);
    assert_eq!(listed(&world, "d.czip"), ["d", "d/file"]);
}

#[test]
fn an_empty_standard_input_replaces_no_archive() {
    let world = World::new();
    let create = ["create", "-", "-o", "x.czip"];
    let made = |input: &[u8]| world.run_with(&create, input).status.code();
    assert_eq!(made(b""), Some(0), "without an archive");
    assert_eq!(world.run(&["cat", "x.czip"]), b"");
    // The first one that stays is of nothing itself.
    for content in [&b"x"[..], &noise(1, 300_000)[..]] {
        let before = fs::read(world.path("x.czip")).expect("there");
        for more in [&[][..], &["--stream"]] {
            let (code, error) = world.fails(&[&create[..], more].concat());
            assert_eq!(code, Some(2), "{error}");
            assert!(error.contains("remove \"x.czip\" first"), "{error}");
            let after = fs::read(world.path("x.czip")).expect("there");
            assert!(before == after);
        }
        assert_eq!(made(content), Some(0));
        assert!(world.run(&["cat", "x.czip"]) == content);
    }
    assert_eq!(names(world.0.path()), ["x.czip"]);
    world.write("x.czip", b"");
    assert_eq!(made(b""), Some(0), "an empty file");
    // Down a pipe there is nothing to lose.
    let archive = world.run(&["create", "-", "-o", "-"]);
    world.write("y.czip", &archive);
    assert_eq!(world.run(&["cat", "y.czip"]), b"");
}

/// Runs `refrain` by a shell that changes its standard input and output.
fn redirected(world: &World, redirections: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let run = command(arguments);
    let output = Command::new("sh")
        .args(["-c", &format!("exec \"$0\" \"$@\" {redirections}")])
        .arg(run.get_program())
        .args(arguments)
        .current_dir(world.0.path())
        .output()
        .expect("a shell is there");
    let error = String::from_utf8(output.stderr).expect("text");
    (output.status.code(), error)
}

#[test]
fn closed_standard_input_and_output_are_errors_and_the_old_archive_stays() {
    let world = World::new();
    world.write("file", b"content");
    world.run(&["create", "file", "-o", "file.czip"]);
    let before = fs::read(world.path("file.czip")).expect("there");
    for (redirections, arguments) in [
        ("<&-", &["czip", "create", "-", "-o", "file.czip"][..]),
        ("<&-", &["bulk", "-"]),
        ("<&-", &["czip", "cat", "-"]),
        ("<&-", &["cost", "-"]),
        (">&-", &["czip", "create", "file", "-o", "file.czip"]),
        (">&-", &["czip", "create", "file", "-o", "-"]),
        (">&-", &["czip", "cat", "file.czip"]),
        (">&-", &["czip", "extract", "file.czip", "-o", "-"]),
        (">&-", &["czip", "extract", "file.czip", "-o", "out"]),
        (">&-", &["czip", "list", "file.czip"]),
        (">&-", &["bulk", "file"]),
        (">&-", &["keygen", "key"]),
        (">&-", &["cost", "--traffic", "1TB", "--redundancy", "1%"]),
        (">&-", &["--version"]),
        (">&-", &["czip", "--help"]),
        (
            "<&- >&- 2>/dev/null",
            &["czip", "create", "-", "-o", "file.czip"],
        ),
    ] {
        let (code, error) = redirected(&world, redirections, arguments);
        assert_eq!(code, Some(1), "{redirections} {arguments:?}: {error}");
        let is_said = error.contains("Bad file descriptor") || redirections.contains("2>");
        assert!(is_said, "{redirections} {arguments:?}: {error}");
    }
    assert_eq!(fs::read(world.path("file.czip")).expect("there"), before);
    assert_eq!(names(world.0.path()), ["file", "file.czip"]);
}

#[test]
fn what_is_not_used_may_be_closed_and_dev_null_is_not() {
    let world = World::new();
    world.write("file", b"content");
    for (redirections, arguments) in [
        ("<&-", &["czip", "create", "file", "-o", "file.czip"][..]),
        // As programs open it that start others.
        ("<>/dev/null", &["czip", "create", "-", "-o", "none.czip"]),
        ("1<>/dev/null", &["czip", "cat", "file.czip"]),
        ("2>&-", &["czip", "list", "file.czip"]),
    ] {
        let (code, error) = redirected(&world, redirections, arguments);
        assert_eq!(code, Some(0), "{redirections} {arguments:?}: {error}");
    }
    // What runs until it is told to stop prints nothing.
    let arguments = ["czip", "serve", "nowhere", "--listen", "127.0.0.1:0"];
    let (code, error) = redirected(&world, "<&- >&-", &arguments);
    assert_eq!(code, Some(1));
    assert!(error.contains("cannot serve \"nowhere\""), "{error}");
}

#[test]
fn a_file_on_standard_input_ends_where_it_ended_and_is_reported_if_it_grows() {
    let world = World::new();
    world.write("log", &noise(1, 4 << 20));
    let mut create = command(&["czip", "create", "-", "-o", "log.czip", "--json"]);
    let create = create.current_dir(world.0.path());
    let log = File::open(world.path("log")).expect("there");
    let mut create = create
        .stdin(log)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    // It grows until the program has ended, much faster than it is read.
    let mut log = File::options().append(true).open(world.path("log"));
    let log = log.as_mut().expect("there");
    let piece = noise(2, 1 << 20);
    while create.try_wait().expect("ours").is_none() {
        if log.metadata().expect("there").len() < 256 << 20 {
            log.write_all(&piece).expect("room");
        }
    }
    let output = create.wait_with_output().expect("it ended");
    let error = String::from_utf8(output.stderr).expect("text");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let bytes = report["plain_bytes"].as_u64().expect("a number");
    assert!(bytes < 64 << 20, "{bytes}");
    assert_eq!(
        (output.status.code(), &report["changed_files"]),
        (Some(1), &1.into())
    );
    assert!(error.contains("standard input"), "{error}");
}
