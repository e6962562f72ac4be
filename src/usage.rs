//! Errors of usage: of the command line and of the configuration. They have an exit code of their own, and one form:
//! what is wrong, what to try, and where the help is.

use std::{
    env,
    error::Error,
    fmt::Display,
    num::{IntErrorKind, ParseFloatError, ParseIntError},
};

use clap::{
    Arg, Command, CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};

use strsim::osa_distance;

use crate::{Arguments, stderr};

/// The exit code of an error of usage.
pub(crate) const EXIT_CODE: u8 = 2;

/// Arguments that each are right and make no sense together, or for what is there.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub(crate) struct UsageError(pub anyhow::Error);

/// Prints an error of usage.
pub(crate) fn print(error: impl Display) {
    let (command, _) = command_of(&Arguments::command(), &words());
    stderr::usage(error, &command);
}

/// The same of one that clap found.
pub(crate) fn print_clap(error: &clap::Error) {
    let (program, words) = (Arguments::command(), words());
    let (command, _) = command_of(&program, &words);
    stderr::usage(in_words(error, &program, &words), &command);
}

/// The command line, without the program.
fn words() -> Vec<String> {
    let words = env::args_os().skip(1);
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// The command that `words` begin with, and what it is called, such as `refrain czip get`.
fn command_of<'a>(program: &'a Command, words: &[String]) -> (String, &'a Command) {
    let (mut called, mut command) = (program.get_name().to_owned(), program);
    for word in words {
        let Some(found) = command.find_subcommand(word) else {
            break;
        };
        command = found;
        called = format!("{called} {}", command.get_name());
    }
    (called, command)
}

/// What clap found, with its hints and without its form.
fn in_words(error: &clap::Error, program: &Command, words: &[String]) -> String {
    let rendered = error.render().to_string();
    let text = rendered.strip_prefix("error: ").unwrap_or(&rendered);
    let mut text = text.to_owned();
    if let Some(reason) = error.source()
        && let Some(plain) = plain_reason(reason)
    {
        text = text.replacen(&reason.to_string(), &plain, 1);
    }
    if let Some((argument, variable)) = variable_of(error, program, words) {
        text = text.replacen(&format!("'{argument}'"), &variable, 1);
    }
    let own_hint = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => hint_of(argument, error.kind(), program, words),
        _ => None,
    };
    if let Some(ContextValue::String(called)) = error.get(ContextKind::InvalidSubcommand) {
        let nearest = nearest_command(called, command_of(program, words).1);
        let hint = nearest.map(|name| format!("\nhint: a similar command exists: '{name}'"));
        return format!("unknown command '{called}'{}", hint.unwrap_or_default());
    }
    let is_form =
        |line: &&str| line.starts_with("Usage:") || line.starts_with("For more information");
    let lines = text.lines().take_while(|line| !is_form(line));
    let mut said = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        match line.trim_start().strip_prefix("tip: ") {
            // An unknown option is hardly meant as a value.
            Some(tip) if own_hint.is_none() && !tip.starts_with("to pass '-") => {
                said.push(format!("hint: {tip}"));
            }
            Some(_) => {}
            None => said.push(line.to_owned()),
        }
    }
    said.extend(own_hint.map(|hint| format!("hint: {hint}")));
    said.join("\n")
}

/// The command that is the fewest edits away, if they are few.
fn nearest_command<'a>(called: &str, program: &'a Command) -> Option<&'a str> {
    const EDITS_MAX: usize = 2;
    let visible = program
        .get_subcommands()
        .filter(|known| !known.is_hide_set());
    let distances = visible.map(|known| (osa_distance(called, known.get_name()), known.get_name()));
    let (edits, nearest) = distances.min()?;
    (edits <= EDITS_MAX.min(called.len() / 2)).then_some(nearest)
}

/// The argument whose value is wrong, and the variable that sets it, if the value is from there and not on the command
/// line.
fn variable_of(
    error: &clap::Error,
    program: &Command,
    words: &[String],
) -> Option<(String, String)> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    let value = text(ContextKind::InvalidValue)?;
    let has_value = |word: &String| {
        let before = word.strip_suffix(value);
        before.is_some_and(|before| before.is_empty() || before.ends_with('='))
    };
    // It is shown with the name of its value.
    let long = argument.strip_prefix("--")?.split(' ').next();
    let (_, command) = command_of(program, words);
    let mut arguments = command.get_arguments();
    let known = arguments.find(|known| known.get_long() == long)?;
    let variable = known.get_env()?.to_str()?;
    let is_from_there =
        !words.iter().any(has_value) && env::var(variable).is_ok_and(|set| set == value);
    is_from_there.then(|| (argument.to_owned(), variable.to_owned()))
}

/// The reason of a library in plain words, if it has none itself.
fn plain_reason(reason: &(dyn Error + 'static)) -> Option<String> {
    if let Some(reason) = reason.downcast_ref::<ParseIntError>() {
        return Some(match reason.kind() {
            IntErrorKind::PosOverflow => "too large".to_owned(),
            _ => "expected a whole number".to_owned(),
        });
    }
    if reason.is::<ParseFloatError>() {
        return Some("expected a number".to_owned());
    }
    // Of clap's ranges, as `0 is not in 1..=64`.
    let reason = reason.to_string();
    let (_, range) = reason.split_once(" is not in ")?;
    let (least, most) = range.split_once("..=")?;
    Some(format!("must be from {least} to {most}"))
}

/// What to try instead of an argument that is wrong, or that a command does not have, if it is known.
fn hint_of(argument: &str, kind: ErrorKind, program: &Command, words: &[String]) -> Option<String> {
    let (_, command) = command_of(program, words);
    let has = |command: &Command, long: &str, is_meant: fn(&Arg) -> bool| {
        let mut arguments = command.get_arguments();
        arguments.any(|known| known.get_long() == Some(long) && is_meant(known))
    };
    let long = argument.strip_prefix("--");
    if long.is_some_and(|long| has(command, long, |_| true)) {
        let has_value = kind == ErrorKind::TooManyValues;
        return has_value.then(|| format!("{argument} takes no value"));
    }
    if argument.ends_with(".toml") && has(command, "config", |_| true) {
        return Some(format!("--config {argument}"));
    }
    let at = words.iter().position(|word| word == argument);
    let before = at.and_then(|at| words.get(at.checked_sub(1)?));
    if let Some(before) = before
        && let Some(long) = before.strip_prefix("--")
        && has(command, long, Arg::is_require_equals_set)
    {
        return Some(format!(
            "{before} takes its value after an equals sign: {before}={argument}"
        ));
    }
    let is_plain = !argument.starts_with('-');
    let meant = match command.get_name() {
        "far" if argument == "--port" => Some("--listen PORT".to_owned()),
        "extract" if argument == "-C" => Some("-o DIR extracts to this directory".to_owned()),
        "check" if is_plain && argument.contains(':') => Some(format!("--peer {argument}")),
        "verify" | "stat" if is_plain && has(command, "store", |_| true) => {
            Some(format!("--store {argument}"))
        }
        _ => None,
    };
    if meant.is_some() {
        return meant;
    }
    let is_number = argument
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()));
    let mut pairs = words.iter().zip(words.iter().skip(1));
    let negative = pairs.find(|(_, word)| is_number && word.starts_with(argument));
    if let Some((before, word)) = negative.filter(|(before, _)| before.starts_with("--")) {
        return Some(format!("{before} cannot be negative ({word})"));
    }
    let other = match command.get_name() {
        "far" => "near",
        "near" => "far",
        _ => return None,
    };
    let is_there = has(program.find_subcommand(other)?, long?, |known| {
        !known.is_hide_set()
    });
    is_there.then(|| format!("{argument} is an option of 'refrain {other}'"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// What is said of a command line, and the command that it is of.
    fn said(words: &[&str]) -> (String, String) {
        let program = Arguments::command();
        let line = ["refrain"].iter().chain(words);
        let error = Arguments::try_parse_from(line).err().expect("it is wrong");
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let text = in_words(&error, &program, &words);
        (text, command_of(&program, &words).0)
    }

    #[test]
    fn options_of_the_other_end_and_values_without_an_equals_sign_are_explained() {
        for (words, end) in [
            (["far", "--store", "x"], " 'refrain near'"),
            (["near", "--listen", "7000"], " 'refrain far'"),
            (["near", "--require-peer", "5"], " --require-peer=5"),
            (["far", "--open-to-all", "true"], " --open-to-all=true"),
        ] {
            let (text, command) = said(&words);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 2, "{text}");
            assert!(lines[0].starts_with("unexpected argument"), "{text}");
            let start = format!("hint: {} ", words[1]);
            assert!(
                lines[1].starts_with(&start) && lines[1].ends_with(end),
                "{text}"
            );
            assert_eq!(command, format!("refrain {}", words[0]));
        }
        for (words, start, end) in [
            (&["near", "--dry-run=yes"][..], "--dry-run ", "no value"),
            (&["czip", "list", "a", "--json=1"], "--json ", "no value"),
            (&["near", "near.toml"], "--config ", "near.toml"),
            (&["check", "etc/near.toml"], "--config ", "etc/near.toml"),
        ] {
            let (text, _) = said(words);
            let start = format!("\nhint: {start}");
            assert!(text.contains(&start) && text.ends_with(end), "{text}");
        }
        for words in [
            ["far", "--json-log", "--json-log"],
            ["keygen", "a", "b.toml"],
        ] {
            let (text, _) = said(&words);
            assert!(!text.contains("hint: "), "{text}");
        }
        let (text, _) = said(&["far", "--lane", "3"]);
        assert!(
            text.contains("\nhint: ") && text.ends_with(" '--lanes'"),
            "{text}"
        );
        let (text, _) = said(&["czip", "list", "a.czip", "--range", "1-2"]);
        assert!(
            text.contains("'--range'") && !text.contains("hint: "),
            "{text}"
        );
        for (word, hint) in [
            ("fra", Some("far")),
            ("staus", Some("status")),
            ("server", None),
            ("x", None),
        ] {
            let (text, _) = said(&[word]);
            let start = format!("unknown command '{word}'");
            assert!(text.starts_with(&start), "{text}");
            assert_eq!(text.contains("\nhint: "), hint.is_some(), "{text}");
            let end = format!(" '{}'", hint.unwrap_or(word));
            assert!(text.ends_with(&end), "{text}");
        }
    }

    #[test]
    fn reasons_of_libraries_are_in_plain_words() {
        for (words, reason) in [
            (["demo", "--flows", "x"], "expected a whole number"),
            (["demo", "--flows", "65"], "must be from 1 to 64"),
        ] {
            let (text, _) = said(&words);
            let end = format!("'--flows <COUNT>': {reason}");
            assert!(text.ends_with(&end), "{text}");
        }
        let (text, command) = said(&["czip", "get", "--no-such-option"]);
        assert!(text.starts_with("unexpected argument"), "{text}");
        assert_eq!(command, "refrain czip get");
    }
}
