//! Signals, `kill -9` and full disks: what was there stays, or the new is there whole.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use super::{OLD, World, names, noise};
use crate::common::command::{command, ending_signals};

fn send(child: &Child, signal: &str) {
    let kill = format!("kill -{signal} {}", child.id());
    let sent = Command::new("sh")
        .args(["-c", &kill])
        .stderr(Stdio::null())
        .status();
    // It may have ended by itself.
    sent.expect("a shell is there");
}

/// Starts `refrain czip` with a pipe on standard input.
fn start(world: &World, arguments: &[&str]) -> Child {
    command(&["czip"])
        .args(arguments)
        .current_dir(world.0.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs")
}

/// Sends signals to `create` while half of its input has come.
fn create_is_sent(world: &World, signals: &[&str]) -> ExitStatus {
    world.write("out/x.czip", OLD);
    let mut create = start(world, &["create", "-", "-o", "out/x.czip"]);
    let mut input = create.stdin.take().expect("it is piped");
    // More than a pipe holds: it reads, and so it has its output open.
    input.write_all(&noise(1, 1 << 20)).expect("it reads");
    for signal in signals {
        send(&create, signal);
    }
    create.wait().expect("it ends")
}

#[test]
fn a_signal_in_the_middle_of_create_leaves_the_old_archive_and_nothing_else() {
    for (signal, exit_code) in ending_signals() {
        let world = World::new();
        let ended = create_is_sent(&world, &[signal]);
        assert_eq!(ended.code(), Some(exit_code), "{signal}");
        assert_eq!(names(&world.path("out")), ["x.czip"], "{signal}");
        assert_eq!(fs::read(world.path("out/x.czip")).expect("there"), OLD);
    }
}

/// Whether a file in the world's folder may have no name.
fn has_unnamed_files(world: &World) -> bool {
    let mut create = start(world, &["create", "-", "-o", "probe.czip"]);
    let mut input = create.stdin.take().expect("it is piped");
    input.write_all(&noise(1, 1 << 20)).expect("it reads");
    let has = names(world.0.path()).is_empty();
    send(&create, "INT");
    create.wait().expect("it ends");
    has
}

#[test]
fn a_kill_in_the_middle_of_create_leaves_the_old_archive() {
    let world = World::new();
    let leaves_nothing = has_unnamed_files(&world);
    let ended = create_is_sent(&world, &["KILL"]);
    assert_eq!(ended.signal(), Some(9));
    if leaves_nothing {
        assert_eq!(names(&world.path("out")), ["x.czip"]);
    }
    // Two of one kind may come as one; two kinds do not.
    let ended = create_is_sent(&world, &["INT", "TERM"]);
    assert!([Some(130), Some(143)].contains(&ended.code()), "{ended}");
    if leaves_nothing {
        assert_eq!(names(&world.path("out")), ["x.czip"]);
    }
    assert_eq!(fs::read(world.path("out/x.czip")).expect("there"), OLD);
    world.write("file", b"content");
    world.run(&["create", "file", "-o", "out/x.czip"]);
    assert_eq!(world.run(&["cat", "out/x.czip"]), b"content");
}

#[test]
fn who_is_started_to_ignore_hangups_ignores_them() {
    let world = World::new();
    let shell = "trap '' HUP; exec \"$0\" czip create - -o x.czip";
    let program = command(&[]).get_program().to_owned();
    let mut create = Command::new("sh")
        .args(["-c".as_ref(), shell.as_ref(), program.as_os_str()])
        .current_dir(world.0.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a shell is there");
    let mut input = create.stdin.take().expect("it is piped");
    let content = noise(1, 1 << 20);
    input.write_all(&content).expect("it reads");
    send(&create, "HUP");
    drop(input);
    assert!(create.wait().expect("it ends").success());
    assert_eq!(world.run(&["cat", "x.czip"]), content);
}

#[test]
fn an_interrupt_while_an_archive_comes_down_a_pipe_ends_it_and_makes_no_folder() {
    let world = World::new();
    let mut extract = start(&world, &["extract", "-", "-o", "out"]);
    let mut input = extract.stdin.take().expect("it is piped");
    // More than a pipe holds: it reads.
    input.write_all(&noise(1, 1 << 20)).expect("it reads");
    send(&extract, "INT");
    let ended = extract.wait().expect("it ends");
    assert_eq!(ended.code(), Some(130));
    assert!(!world.path("out").exists());
}

/// Zeros, of which an archive has one chunk: to extract them takes a while.
const LARGE_BYTES: u64 = 256 << 20;

/// Sends a signal to `extract` while it writes, and has `check` look at the target each time.
fn extract_is_sent(signal: &str, check: impl Fn(&World, ExitStatus)) {
    let world = World::new();
    world.write("d/a", b"new");
    let large = File::create(world.path("d/large")).expect("made");
    large.set_len(LARGE_BYTES).expect("a hole");
    world.run(&["create", "d", "-o", "d.czip"]);
    let target = world.path("out/d");
    let was_hit = (0..50).any(|_| {
        let _ = fs::remove_dir_all(world.path("out"));
        world.write("out/d/a", b"old");
        world.write("out/d/large", b"old");
        let mut extract = start(&world, &["extract", "d.czip", "-o", "out"]);
        let status = loop {
            if let Some(status) = extract.try_wait().expect("a child's status") {
                break status;
            }
            if names(&target).len() > 2 {
                send(&extract, signal);
                break extract.wait().expect("it ends");
            }
            thread::sleep(Duration::from_micros(200));
        };
        check(&world, status);
        !status.success()
    });
    assert!(was_hit, "it was always faster than the signal");
}

/// Whether both files are the old ones, or both are the new ones.
fn is_old(target: &Path) -> bool {
    let large = fs::metadata(target.join("large")).expect("there").size();
    match fs::read(target.join("a")).expect("there").as_slice() {
        b"old" => true,
        content => {
            assert_eq!((content, large), (&b"new"[..], LARGE_BYTES));
            false
        }
    }
}

#[test]
fn a_signal_in_the_middle_of_extract_leaves_what_was_there_and_nothing_else() {
    for (signal, exit_code) in ending_signals() {
        extract_is_sent(signal, |world, status| {
            let target = &world.path("out/d");
            assert_eq!(names(target), ["a", "large"]);
            assert_eq!(names(&world.path("out")), ["d"]);
            let expected = if is_old(target) { exit_code } else { 0 };
            assert_eq!(status.code(), Some(expected), "{signal}");
        });
    }
}

#[test]
fn a_kill_in_the_middle_of_extract_leaves_each_file_old_or_whole_and_the_next_one_tidies_up() {
    extract_is_sent("KILL", |world, status| {
        let target = world.path("out/d");
        assert!(status.success() || status.signal() == Some(9));
        let content = fs::read(target.join("a")).expect("there");
        assert!([&b"old"[..], b"new"].contains(&content.as_slice()));
        let large = fs::metadata(target.join("large")).expect("there").size();
        assert!([3, LARGE_BYTES].contains(&large), "{large}");
        if !status.success() {
            world.write("small", b"content");
            world.run(&["create", "small", "-o", "small.czip"]);
            world.run(&["extract", "small.czip", "-o", "out"]);
            assert_eq!(names(&world.path("out")), ["d", "small"]);
            assert_eq!(names(&target), ["a", "large"]);
        }
    });
}

/// A small file system in memory, until it is dropped.
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None where it may not be mounted.
    pub(super) fn mount(path: PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).expect("made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "refrain-test"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        match mounted {
            Ok(status) if status.success() => Some(Self(path)),
            _ => {
                eprintln!("skipped: no file system may be mounted here, so none can be full");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_told_and_leaves_what_was_there() {
    let world = World::new();
    let Some(_disk) = SmallDisk::mount(world.path("disk")) else {
        return;
    };
    world.write("large", &noise(1, 8 << 20));
    world.write("disk/x.czip", OLD);
    world.write("disk/large", OLD);
    world.run(&["create", "large", "-o", "large.czip"]);
    for arguments in [
        &["create", "large", "-o", "disk/x.czip"][..],
        &["create", "large", "-o", "disk/x.czip", "--stream"],
        &["extract", "large.czip", "-o", "disk"],
    ] {
        let (code, error) = world.fails(arguments);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(error.contains("No space left"), "{error}");
        assert!(
            error.contains(arguments[arguments.len() - 1].trim_end_matches("--stream")),
            "{error}"
        );
        assert_eq!(
            names(&world.path("disk")),
            ["large", "x.czip"],
            "{arguments:?}"
        );
        for name in ["disk/large", "disk/x.czip"] {
            assert_eq!(fs::read(world.path(name)).expect("there"), OLD);
        }
    }
    // Down a pipe to a full device.
    let (_, error) = world.fails(&["create", "large", "-o", "/dev/full"]);
    assert!(
        error.contains("/dev/full") && error.contains("No space left"),
        "{error}"
    );
}
