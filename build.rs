//! What `refrain version` prints: the commit and the target.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rustc-env=REFRAIN_COMMIT={}", commit());
    let target = env::var("TARGET").expect("cargo sets it");
    println!("cargo::rustc-env=REFRAIN_TARGET={target}");
    println!("cargo::rerun-if-env-changed=REFRAIN_COMMIT");
    // Each commit adds a line.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    } else {
        println!("cargo::rerun-if-changed=build.rs");
    }
}

/// As packagers give it, or as git knows it.
fn commit() -> String {
    let given = env::var("REFRAIN_COMMIT").ok();
    let known = || git(&["log", "-1", "--format=%h (%cs)"]);
    given.or_else(known).unwrap_or("unknown".into())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
