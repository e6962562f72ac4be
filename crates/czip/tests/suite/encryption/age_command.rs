//! The keys section is an ordinary age file: the `age` command opens ours, and we open its.
//! Without `age`, `age-keygen` and `ssh-keygen` these tests say that they were skipped; with
//! `REFRAIN_REQUIRE_PROGRAMS=1` they fail.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::programs::are_installed;
use refrain_czip::crypt::{ArchiveKey, Identities, Recipients, unwrap, wrap};

const PROGRAMS: [&str; 3] = ["age", "age-keygen", "ssh-keygen"];

fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Makes a key of each kind: the private key's file and the public key.
fn make_keys(folder: &Path) -> Vec<(String, String)> {
    let mut keys = Vec::new();
    let age = folder.join("age").to_str().unwrap().to_owned();
    run(Command::new("age-keygen").args(["-o", &age]));
    let public = run(Command::new("age-keygen").args(["-y", &age])).stdout;
    keys.push((age, String::from_utf8(public).unwrap()));
    for (kind, bits) in [("ed25519", "256"), ("rsa", "3072")] {
        let file = folder.join(kind).to_str().unwrap().to_owned();
        run(Command::new("ssh-keygen").args([
            "-q", "-t", kind, "-b", bits, "-N", "", "-C", "a test", "-f", &file,
        ]));
        let public = fs::read_to_string(format!("{file}.pub")).unwrap();
        keys.push((file, public));
    }
    keys
}

#[test]
fn age_opens_what_we_wrapped() {
    if !are_installed(&PROGRAMS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let keys = make_keys(folder.path());
    let publics: Vec<_> = keys.iter().map(|(_, public)| public).collect();
    let key = ArchiveKey::generate().unwrap();
    let section = folder.path().join("keys");
    fs::write(
        &section,
        wrap(&key, &Recipients::parse(&publics).unwrap()).unwrap(),
    )
    .unwrap();
    for (private, _) in &keys {
        let opened = run(Command::new("age")
            .args(["-d", "-i", private])
            .arg(&section))
        .stdout;
        assert_eq!(opened, key.as_bytes(), "{private}");
    }
}

#[test]
fn we_open_what_age_wrapped() {
    if !are_installed(&PROGRAMS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let content = folder.path().join("content");
    fs::write(&content, [7; 32]).unwrap();
    for (private, public) in make_keys(folder.path()) {
        let section = run(Command::new("age")
            .args(["-e", "-r", public.trim()])
            .arg(&content))
        .stdout;
        let mut identities = Identities::new();
        identities
            .add(&private, &fs::read(&private).unwrap())
            .unwrap();
        let opened = unwrap(&section, &identities, &mut |_| None).unwrap();
        assert_eq!(opened.as_bytes(), &[7; 32], "{private}");
    }
}
