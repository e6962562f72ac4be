//! The programs that an ecosystem needs, and the packages that bring them.

use std::process::Command;

use super::bench::search_path;

/// Its tables name the package of each program.
const SETUP: &str = include_str!("../../../setup");

/// Which of them are missing, and what to do; `None` if all are there.
pub(super) fn missing(programs: &[&str]) -> Option<String> {
    let is_missing = |program: &&str| !is_there(program);
    let names = programs.iter().map(|command| name(command));
    let missing: Vec<String> = names
        .filter(is_missing)
        .map(|program| {
            let package = package_of(program).unwrap_or("unknown");
            format!("`{program}` (package `{package}`)")
        })
        .collect();
    let missing = match &missing[..] {
        [] => return None,
        missing => missing.join(", "),
    };
    Some(format!(
        "{missing} not found (install: lab/setup --ecosystems)"
    ))
}

/// What each calls itself.
pub(super) fn versions(programs: &[&str]) -> Vec<String> {
    let lines = programs.iter().filter_map(|command| {
        let output = Command::new("bash")
            .args(["-c", &format!("{command} 2>&1")])
            .env("PATH", search_path())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let has_number = |line: &&str| line.contains(|it: char| it.is_ascii_digit());
        let line = text.lines().find(has_number)?.trim();
        // pip says where it is, which differs between machines.
        let line = line.split(" from /").next().unwrap_or(line);
        let program = name(command);
        Some(match line.contains(program) {
            true => line.to_owned(),
            false => format!("{program} {line}"),
        })
    });
    lines.collect()
}

/// The program in a command.
fn name(command: &str) -> &str {
    command.split(' ').next().unwrap_or_default()
}

fn is_there(program: &str) -> bool {
    let path = search_path();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn package_of(program: &str) -> Option<&'static str> {
    SETUP.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let row = (words.next()?, words.next()?);
        (row.0 == program && words.next().is_none()).then_some(row.1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecosystems::ECOSYSTEMS;

    #[test]
    fn setup_installs_every_program() {
        for ecosystem in &ECOSYSTEMS {
            for command in ecosystem.programs {
                let program = name(command);
                assert!(package_of(program).is_some(), "{program}");
            }
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        assert_eq!(missing(&["bash --version"]), None);
        let reason = missing(&["bash --version", "no-such-program -V"]).expect("it is missing");
        assert!(reason.starts_with("`no-such-program` ("), "{reason}");
    }
}
