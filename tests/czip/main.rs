//! `refrain czip`, as its users run it.

#[path = "../common/mod.rs"]
mod common;

mod bars;
mod caches;
mod commands;
mod deaths;
mod folders;
mod gets;
mod keys;
mod outputs;
mod proxies;
mod proxying;
mod serving;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    thread,
};

use common::command::command;
use serde_json::Value;

/// A folder to work in: paths are relative to it.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, content).expect("written");
    }

    /// Runs `refrain czip` there, with `input` on its standard input.
    fn run_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = command(&["czip"])
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut stdin = child.stdin.take().expect("it is piped");
        thread::scope(|scope| {
            // Who wants no input closes it.
            scope.spawn(move || drop(stdin.write_all(input)));
            child.wait_with_output().expect("it ends")
        })
    }

    /// The exit code where nobody reads standard output.
    fn code_unread(&self, arguments: &[&str]) -> Option<i32> {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut child = command(&["czip"]);
        let child = child.args(arguments).current_dir(self.0.path());
        let status = child.stdout(writer).stderr(Stdio::null()).status();
        status.expect("the program runs").code()
    }

    /// The same as `run_with`, which must succeed: what it writes to standard output.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.run_with(arguments, b"");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        output.stdout
    }

    /// The same with `--json`.
    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let out = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&out).expect("one JSON object")
    }

    /// The same, which must fail: its exit code, and standard error.
    #[track_caller]
    fn fails(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run_with(arguments, b"");
        assert!(!output.status.success(), "{arguments:?} succeeded");
        let error = String::from_utf8(output.stderr).expect("messages are text");
        (output.status.code(), error)
    }
}

/// What lies in a folder, by name.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).expect("a folder");
    let names = names.map(|below| below.expect("readable").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// What begins as an archive does.
const OLD: &[u8] = b"\x89CZIP\r\n\x1aold";

/// Bytes that do not repeat.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut noise);
    noise
}
