//! Programs of the system that configure the kernel: `ip` and `nft`.

use std::{
    env,
    io::{Read, Write},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// Where these programs are, though not in the search path of every user.
const FOLDERS: &str = "/usr/sbin:/sbin:/usr/local/sbin";

/// How long they may take. They take milliseconds.
const WITHIN: Duration = Duration::from_secs(8);

/// The most that one may print.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

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
    run_within(WITHIN, program, package, arguments, input)
}

fn run_within(
    within: Duration,
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
    let deadline = Instant::now() + within;
    let (stdout, stderr) = (text_of(child.stdout.take()), text_of(child.stderr.take()));
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_owned();
        // One that ends early says why below.
        thread::spawn(move || stdin.write_all(input.as_bytes()));
    }
    let left = || deadline.saturating_duration_since(Instant::now());
    // Not after the end of the program: its output fills a pipe.
    let printed = stdout.recv_timeout(left());
    let (Ok(printed), Some(status)) = (printed, wait(&mut child, deadline)?) else {
        let _ = child.kill();
        let _ = child.wait();
        bail!("{program} did not end within {within:?}, and was killed");
    };
    if !status.success() {
        let text = stderr.recv_timeout(left()).unwrap_or_default();
        let text = text.lines().next().unwrap_or("failed").to_owned();
        let program = program.to_owned();
        return Err(Failed { program, text }.into());
    }
    if printed.len() as u64 >= OUTPUT_BYTES_MAX {
        bail!("{program} printed more than {OUTPUT_BYTES_MAX} bytes");
    }
    Ok(printed)
}

/// Reads a program's output, to its end or its limit, in a thread.
fn text_of(output: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, text) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let limited = output.map(|output| output.take(OUTPUT_BYTES_MAX));
        let _ = limited.map(|mut output| output.read_to_end(&mut bytes));
        send.send(String::from_utf8_lossy(&bytes).into_owned())
    });
    text
}

/// The status of a program that ends before the deadline.
fn wait(child: &mut Child, deadline: Instant) -> anyhow::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(env::split_paths(FOLDERS));
    folders.find_map(|folder| {
        let file = folder.join(program);
        file.is_file().then_some(file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_input_and_errors_are_passed_on() {
        let echoed = run("cat", "coreutils", &[], "text").expect("it runs");
        assert_eq!(echoed, "text");
        let error = run("sh", "dash", &["-c", "echo wrong >&2; exit 3"], "");
        assert_eq!(error.expect_err("it fails").to_string(), "sh: wrong");
        let missing = run("refrain-no-such-program", "none", &[], "").expect_err("missing");
        assert!(missing.to_string().contains("install the package none"));
    }

    #[test]
    fn a_program_that_hangs_or_prints_without_end_is_given_up() {
        let within = Duration::from_millis(200);
        let hang = ["-c", "sleep 2 & wait"];
        let error = run_within(within, "sh", "dash", &hang, "").expect_err("it hangs");
        assert!(error.to_string().contains("was killed"), "{error}");
        let error = run("cat", "coreutils", &["/dev/zero"], "").expect_err("no end");
        assert!(!error.to_string().is_empty());
    }
}
