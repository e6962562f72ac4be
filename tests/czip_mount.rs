//! `refrain czip mount` from the outside: ready, read, and gone after a signal.
#![cfg(target_os = "linux")]

mod common;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use common::{command::ending_signals, eventually};
use serde_json::Value;
use tempfile::TempDir;

/// A mount's process, which does not outlive the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Gently: a mount without its process stays behind.
        if let Ok(None) = self.0.try_wait() {
            signal("TERM", &self.0);
            let _ = self.0.wait();
        }
    }
}

fn refrain() -> Command {
    Command::new(env!("CARGO_BIN_EXE_refrain"))
}

fn signal(name: &str, process: &Child) {
    let id = process.id().to_string();
    let _ = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(id)
        .status();
}

/// An archive of `folder`'s files, beside it.
fn create(folder: &Path) -> PathBuf {
    let archive = folder.with_extension("czip");
    let made = refrain()
        .args(["czip", "create"])
        .args([folder, "-o".as_ref(), &archive])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    archive
}

/// Mounts and waits until it says that it is ready. None where nothing may be mounted.
fn mount(test: &str, archive: &str, at: &Path) -> Option<Process> {
    mount_with(test, archive, at, &[])
}

fn mount_with(test: &str, archive: &str, at: &Path, options: &[&str]) -> Option<Process> {
    let mut child = refrain()
        .args(["czip", "mount", archive])
        .arg(at)
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut said = String::new();
        let mut stderr = child.stderr.take().expect("it is piped");
        stderr.read_to_string(&mut said).unwrap();
        assert!(!child.wait().unwrap().success());
        let is_refusal = [
            "/dev/fuse",
            "not permitted",
            "Permission denied",
            "fusermount3",
        ];
        assert!(
            is_refusal.iter().any(|refusal| said.contains(refusal)),
            "{said}"
        );
        eprintln!("skipped: {test}: {said}");
        return None;
    }
    assert!(line.contains(" is mounted on "), "{line}");
    Some(Process(child))
}

/// An archive of a folder `tree`, and where it is to be mounted.
struct Place {
    archive: PathBuf,
    at: PathBuf,
    _scratch: TempDir,
}

impl Place {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("tree");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "what is in it").unwrap();
        let at = scratch.path().join("mounted");
        fs::create_dir(&at).unwrap();
        Self {
            archive: create(&folder),
            at,
            _scratch: scratch,
        }
    }
}

fn is_mounted(at: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    table.contains(at.to_str().unwrap())
}

#[test]
fn each_signal_that_ends_programs_unmounts_and_is_no_failure() {
    let Place { archive, at, .. } = &Place::new();
    for (name, _) in ending_signals() {
        let Some(mut process) = mount("each_signal", archive.to_str().unwrap(), at) else {
            return;
        };
        assert!(is_mounted(at));
        let read = fs::read_to_string(at.join("tree/file")).unwrap();
        assert_eq!(read, "what is in it");
        signal(name, &process.0);
        let status = process.0.wait().unwrap();
        assert!(status.success(), "{name}: {status}");
        assert!(!is_mounted(at), "{name}");
    }
}

#[test]
fn a_busy_mount_goes_at_once_and_its_process_when_the_last_file_is_closed() {
    let Place { archive, at, .. } = &Place::new();
    for is_impatient in [false, true] {
        let Some(mut process) = mount("a_busy_mount", archive.to_str().unwrap(), at) else {
            return;
        };
        let file = File::open(at.join("tree/file")).unwrap();
        signal("INT", &process.0);
        let mut stderr = BufReader::new(process.0.stderr.take().expect("it is piped"));
        let mut said = String::new();
        stderr.read_line(&mut said).unwrap();
        assert!(said.contains("files in it are open"), "{said}");
        assert!(!is_mounted(at));
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"what");
        if is_impatient {
            signal("INT", &process.0);
            assert_eq!(process.0.wait().unwrap().code(), Some(130));
            drop(file);
        } else {
            drop(file);
            let status = process.0.wait().unwrap();
            let mut said = String::new();
            stderr.read_to_string(&mut said).unwrap();
            assert!(status.success(), "{status}: {said}");
        }
    }
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("no archive");
    fs::write(&file, [7; 1000]).unwrap();
    let output = refrain()
        .args(["czip", "mount"])
        .args([&file, scratch.path()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no archive: not a CZIP archive"), "{said}");
}

/// Unmounts from outside, whoever may.
fn unmount(at: &Path) {
    let ended = Command::new("umount").arg(at).output();
    if !ended.is_ok_and(|ended| ended.status.success()) {
        let ended = Command::new("fusermount3").arg("-u").arg(at).output();
        assert!(ended.expect("a program that unmounts").status.success());
    }
}

#[test]
fn who_unmounts_it_from_outside_ends_it_without_a_word() {
    let Place { archive, at, .. } = &Place::new();
    let Some(mut process) = mount("who_unmounts", archive.to_str().unwrap(), at) else {
        return;
    };
    unmount(at);
    assert!(process.0.wait().unwrap().success());
    let mut stderr = process.0.stderr.take().expect("it is piped");
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn what_a_killed_mount_left_is_told_and_how_to_be_rid_of_it() {
    let Place { archive, at, .. } = &Place::new();
    let Some(mut process) = mount("what_a_killed", archive.to_str().unwrap(), at) else {
        return;
    };
    signal("KILL", &process.0);
    process.0.wait().unwrap();
    let output = refrain()
        .args(["czip", "mount"])
        .args([&archive, &at])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let command = format!("`umount {}`", at.display());
    let is_told = said.contains(&command) && said.contains("is still mounted");
    unmount(at);
    assert!(is_told, "{said}");
}

#[test]
fn one_file_system_keeps_a_folder_empty_that_another_is_mounted_on() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("tree");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), "what is in it").unwrap();
    let archive = create(&folder);
    let at = folder.join("mounted");
    fs::create_dir(&at).unwrap();
    let Some(_process) = mount("one_file_system", archive.to_str().unwrap(), &at) else {
        return;
    };
    let listed = |options: &[&str]| {
        let made = scratch.path().join("made.czip");
        let create = refrain()
            .args(["czip", "create"])
            .args(options)
            .args([folder.as_path(), "-o".as_ref(), &made])
            .output();
        assert!(create.unwrap().status.success());
        let list = refrain().args(["czip", "list"]).arg(&made).output();
        String::from_utf8(list.unwrap().stdout)
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!(listed(&[]), 5);
    assert_eq!(listed(&["--one-file-system"]), 3);
    let read = |options: &[&str]| {
        let bulk = refrain()
            .args(["bulk", "--json"])
            .args(options)
            .arg(&folder)
            .output();
        let found: Value = serde_json::from_slice(&bulk.unwrap().stdout).unwrap();
        found["files"].clone()
    };
    assert_eq!(read(&[]), 2);
    assert_eq!(read(&["--one-file-system"]), 1);
}

/// How many mounts there are at `at` or below.
fn mounts(at: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let at = at.to_str().unwrap();
    table.lines().filter(|line| line.contains(at)).count()
}

/// Mounts a file system in memory. False where that is not permitted.
fn mount_memory(at: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "refrain-test"]).arg(at);
    let is_mounted = command.output().is_ok_and(|output| output.status.success());
    if !is_mounted {
        eprintln!("skipped: no file system in memory may be mounted here");
    }
    is_mounted
}

/// What a process says next.
fn next_line(process: &mut Process) -> String {
    let stderr = process.0.stderr.as_mut().expect("it is piped");
    let mut line = String::new();
    let mut byte = [0];
    while stderr.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(byte[0].into());
    }
    line
}

#[test]
fn what_is_mounted_on_it_or_in_it_is_not_unmounted() {
    let Place { archive, at, .. } = &Place::new();
    for other in [at.clone(), at.join("tree")] {
        let Some(mut process) = mount("what_is_mounted_on_it", archive.to_str().unwrap(), at)
        else {
            return;
        };
        if !mount_memory(&other) {
            return;
        }
        fs::write(other.join("precious"), "precious").unwrap();
        signal("INT", &process.0);
        let said = next_line(&mut process);
        let is_left = fs::read(other.join("precious")).is_ok_and(|read| read == b"precious");
        let is_served = process.0.try_wait().unwrap().is_none();
        unmount(&other);
        assert!(is_left && is_served, "{said}");
        assert!(
            said.contains("stays mounted") && said.contains("unmount that first"),
            "{said}"
        );
        // It was asked to end, and now it can.
        let ended = eventually("it ends", || process.0.try_wait().unwrap());
        assert!(ended.success(), "{ended}");
        assert_eq!(mounts(at), 0);
    }
}

#[test]
fn a_second_signal_ends_one_that_is_covered_and_leaves_the_other_mount() {
    let Place { archive, at, .. } = &Place::new();
    let Some(mut process) = mount("a_second_signal", archive.to_str().unwrap(), at) else {
        return;
    };
    if !mount_memory(at) {
        return;
    }
    fs::write(at.join("precious"), "precious").unwrap();
    signal("INT", &process.0);
    let said = next_line(&mut process);
    signal("INT", &process.0);
    let status = process.0.wait().unwrap();
    let left = fs::read(at.join("precious"));
    unmount(at);
    unmount(at);
    assert_eq!(status.code(), Some(130), "{said}");
    assert_eq!(left.unwrap(), b"precious");
    assert_eq!(mounts(at), 0);
}

#[test]
fn a_mount_point_is_refused_unless_asked_for_and_each_unmounts_itself() {
    let Place { archive, at, .. } = &Place::new();
    let archive = archive.to_str().unwrap();
    let Some(mut first) = mount("a_mount_point", archive, at) else {
        return;
    };
    let again = refrain().args(["czip", "mount", archive]).arg(at).output();
    let again = again.unwrap();
    let said = String::from_utf8(again.stderr).unwrap();
    assert_eq!(again.status.code(), Some(1), "{said}");
    assert!(said.contains("is already a mount point"), "{said}");
    assert!(said.contains("--over-mount"), "{said}");
    let mut second = mount_with("a_mount_point", archive, at, &["--over-mount"]).unwrap();
    assert_eq!(mounts(at), 2);
    signal("INT", &first.0);
    let said = next_line(&mut first);
    assert!(said.contains("stays mounted"), "{said}");
    assert_eq!(mounts(at), 2);
    let read = fs::read_to_string(at.join("tree/file"));
    assert_eq!(read.unwrap(), "what is in it");
    signal("INT", &second.0);
    assert!(second.0.wait().unwrap().success());
    let ended = eventually("the first ends", || first.0.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
    assert_eq!(mounts(at), 0);
}

/// A server of a folder, which does not outlive the test, and its address.
fn serve(folder: &Path) -> (Process, String) {
    let mut child = refrain()
        .args(["czip", "serve"])
        .arg(folder)
        .args(["--listen", "127.0.0.1:0", "--json-log"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stderr = child.stderr.take().expect("it is piped");
    BufReader::new(stderr).read_line(&mut line).unwrap();
    let log: Value = serde_json::from_str(&line).unwrap();
    let address = log["address"].as_str().expect("where it listens");
    (Process(child), format!("http://{address}"))
}

#[test]
fn what_one_mount_brought_from_a_server_the_next_one_has_in_its_cache() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    for folder in ["served", "served/tree", "mounted"] {
        fs::create_dir(path(folder)).unwrap();
    }
    let mut content = vec![0; 3 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    fs::write(path("served/tree/file"), &content).unwrap();
    create(&path("served/tree"));
    let (_server, url) = serve(&path("served"));
    let sent = || {
        let mut status = ureq::get(format!("{url}/.czip/status")).call().unwrap();
        let status = status.body_mut().read_to_string().unwrap();
        let status: Value = serde_json::from_str(&status).unwrap();
        status["sent_bytes"].as_u64().expect("a number")
    };
    let cache = path("cache");
    let mut sent_bytes = Vec::new();
    for _ in 0..2 {
        let (archive, before) = (format!("{url}/tree.czip"), sent());
        let options = ["--cache", cache.to_str().unwrap()];
        let at = path("mounted");
        let Some(mut process) = mount_with("cache", &archive, &at, &options) else {
            return;
        };
        assert!(fs::read(at.join("tree/file")).unwrap() == content);
        signal("TERM", &process.0);
        assert!(process.0.wait().unwrap().success());
        sent_bytes.push(sent() - before);
    }
    assert!(sent_bytes[0] > 3 << 20, "{sent_bytes:?}");
    // Blocks with the header, the root and the table.
    assert!(sent_bytes[1] <= 3 * (256 << 10), "{sent_bytes:?}");
}
