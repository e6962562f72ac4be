//! Programs of the system that configure the kernel: `ip` and `nft`.

use std::{
    env,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::Context;

/// Where these programs are, though not in the search path of every user.
const FOLDERS: &str = "/usr/sbin:/sbin:/usr/local/sbin";

/// What a program printed that failed.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {text}")]
pub(crate) struct Failed {
    program: String,
    text: String,
}

/// Runs a program of this package with this input. Returns its standard output.
pub(crate) fn run(
    program: &str,
    package: &str,
    arguments: &[&str],
    input: &str,
) -> anyhow::Result<String> {
    let mut child = Command::new(find(program).with_context(|| {
        format!("the program \"{program}\" is missing: install the package {package}")
    })?)
    .args(arguments)
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .with_context(|| format!("cannot run {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that ends early says why below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let text = text.lines().next().unwrap_or("failed").to_owned();
        let program = program.to_owned();
        return Err(Failed { program, text }.into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(env::split_paths(FOLDERS));
    folders.find_map(|folder| {
        let file = folder.join(program);
        file.is_file().then_some(file)
    })
}
