//! Progress on a terminal, which is a pair of pseudo-terminals here.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    process::Stdio,
    thread,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use super::{World, common::command::command, noise};

/// A terminal's two ends: who shows, and who writes.
fn terminal() -> (File, File) {
    let shown = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&shown).expect("it is ours");
    unlockpt(&shown).expect("it is ours");
    let size = Winsize {
        ws_row: 25,
        ws_col: 132,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&shown, size).expect("it has a size");
    let name = ptsname(&shown, Vec::new()).expect("it has a name");
    let name = std::ffi::OsStr::from_bytes(name.as_bytes());
    let mut options = OpenOptions::new();
    let written = options.read(true).write(true).open(name);
    (shown.into(), written.expect("it opens"))
}

/// Runs `refrain czip` with standard error on a terminal: what it writes to standard output, and what is
/// shown.
#[track_caller]
fn run(world: &World, arguments: &[&str], input: &[u8]) -> (Vec<u8>, String) {
    let (mut screen, stderr) = terminal();
    let mut child = command(&["czip"])
        .env("TERM", "xterm")
        .args(arguments)
        .current_dir(world.0.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    let (output, shown) = thread::scope(|scope| {
        scope.spawn(move || drop(stdin.write_all(input)));
        let shown = scope.spawn(move || {
            let mut shown = Vec::new();
            // Its end is an error where nobody has the other end any more.
            let _ = screen.read_to_end(&mut shown);
            String::from_utf8_lossy(&shown).into_owned()
        });
        let output = child.wait_with_output().expect("it ends");
        (output, shown.join().expect("a screen"))
    });
    assert!(output.status.success(), "{arguments:?}: {shown}");
    (output.stdout, shown)
}

#[test]
fn what_takes_long_shows_how_far_it_is() {
    let world = World::new();
    let content = noise(1, 5_000_000);
    world.write("file", &content);
    world.run(&["create", "file", "-o", "file.czip"]);
    let archive = std::fs::read(world.path("file.czip")).expect("an archive");
    for (arguments, input, words) in [
        (&["cat", "file.czip"][..], &[][..], &["of 5.00 MB"][..]),
        (
            &["cat", "file.czip", "--range", "0-1M"],
            &[],
            &["of 1.00 MB"],
        ),
        (
            &["extract", "file.czip", "-o", "-"],
            &[],
            &["of 5.00 MB", "MB/s"],
        ),
        (&["extract", "file.czip", "-o", "out"], &[], &["of 5.00 MB"]),
        (&["cat", "-"], &archive, &["to a temporary file", "B/s"]),
        (&["list", "-"], &archive, &["to a temporary file"]),
        (
            &["verify", "file.czip", "--content"],
            &[],
            &["stored data", "content", "names"],
        ),
    ] {
        let (_, shown) = run(&world, arguments, input);
        for words in words {
            assert!(shown.contains(words), "{arguments:?}: {words}: {shown:?}");
        }
        for words in ["iB", " 0s left"] {
            assert!(!shown.contains(words), "{arguments:?}: {shown:?}");
        }
    }
}

#[test]
fn bytes_have_the_digits_that_reports_show() {
    let world = World::new();
    world.write("file", &noise(1, 12_340_000));
    let (report, shown) = run(&world, &["create", "file", "-o", "file.czip"], &[]);
    let report = String::from_utf8(report).expect("text");
    assert!(report.starts_with("12.3 MB → "), "{report}");
    assert!(shown.contains("of 12.3 MB, "), "{shown:?}");
}

#[test]
fn nothing_is_shown_where_no_terminal_is() {
    let world = World::new();
    world.write("file", &noise(1, 3_000_000));
    world.run(&["create", "file", "-o", "file.czip"]);
    let archive = std::fs::read(world.path("file.czip")).expect("an archive");
    for (arguments, input) in [
        (&["cat", "file.czip"][..], &[][..]),
        (&["verify", "file.czip"], &[]),
        (&["cat", "-"], &archive),
    ] {
        let ran = world.run_with(arguments, input);
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    }
}
