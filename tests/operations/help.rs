//! Help, and what is generated of it.

use std::{collections::BTreeSet, fs::OpenOptions};

use crate::common::command::{command, refrain, refrain_fails};

#[test]
fn short_help_fits_a_screen_and_has_the_common_options() {
    for (end, common) in [("near", "--peer-key"), ("far", "--listen")] {
        let short = text(&[end, "-h"]);
        let lines: Vec<&str> = short.lines().collect();
        assert!(lines.len() <= 60, "{} lines:\n{short}", lines.len());
        let widest = lines.iter().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{short}");
        assert!(
            short.contains(common) && short.contains("Example:"),
            "{short}"
        );
        assert!(!short.contains("--marker-table"), "{short}");
        let long = text(&[end, "--help"]);
        for part in [
            "Example:",
            "--marker-table",
            "\nSIZE: ",
            "\nRATE: ",
            "\nTIME: ",
        ] {
            assert!(long.contains(part), "{part} is not in:\n{long}");
        }
    }
}

#[test]
fn help_of_a_check_has_what_a_check_uses() {
    let long = text(&["check", "--help"]);
    for option in ["--peer <", "--admin <", "--admin-token-file <"] {
        assert!(long.contains(option), "{option} is not in:\n{long}");
    }
    assert!(
        !long.contains("--route") && !long.contains("--socks5"),
        "{long}"
    );
}

#[test]
fn short_help_of_archives_and_bulk_fits_a_terminal() {
    for words in [
        &["czip", "create"][..],
        &["czip", "get"],
        &["czip", "extract"],
        &["bulk"],
    ] {
        let short = text(&[words, &["-h"]].concat());
        let lines: Vec<&str> = short.lines().collect();
        assert!(lines.len() <= 45, "{} lines:\n{short}", lines.len());
        let widest = lines.iter().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{short}");
        let long = text(&[words, &["--help"]].concat());
        assert!(
            short.contains("Example:") && long.contains("Example:"),
            "{short}{long}"
        );
        assert!(long.lines().count() > lines.len(), "{long}");
    }
}

#[test]
fn completions_manual_pages_and_the_version_are_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(
            text(&["completions", shell]).contains("peer-key"),
            "{shell}"
        );
    }
    assert!(text(&["man"]).starts_with(".ie"));
    let page = text(&["man", "czip", "get"]);
    assert!(
        page.contains("refrain\\-czip\\-get") && page.contains("seed"),
        "{page}"
    );
    let source = concat!("\"refrain ", env!("CARGO_PKG_VERSION"), "\"");
    let title = page.lines().find(|line| line.starts_with(".TH"));
    assert!(title.is_some_and(|title| title.contains(source)), "{page}");
    assert!(page.contains("[OPTIONS]"), "{page}");
    assert!(
        page.contains(".SH NOTES\nExample") && !page.contains(".SH EXTRA"),
        "{page}"
    );
    let (code, error) = refrain_fails(&["man", "czip", "nothing"]);
    assert!(
        code == 2 && error.contains("has no command \"nothing\""),
        "{error}"
    );

    let (_, error) = refrain_fails(&["man", "nothing"]);
    assert!(error.contains("\"refrain\" has no command"), "{error}");

    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("man1");
    let out = out.to_str().expect("text");
    // Again over the first ones.
    for _ in 0..2 {
        assert_eq!(text(&["man", "--output", out]), "");
    }
    let pages = std::fs::read_dir(out).expect("a folder");
    let pages = pages.map(|page| page.expect("a page").file_name());
    let pages: BTreeSet<String> = pages
        .map(|name| name.into_string().expect("text"))
        .collect();
    for page in ["refrain.1", "refrain-near.1", "refrain-czip-get.1"] {
        assert!(pages.contains(page), "{page} is not among {pages:?}");
        let page = std::fs::read_to_string(format!("{out}/{page}")).expect("text");
        assert!(page.contains(source), "{page}");
    }

    let (_, error) = refrain_fails(&["man", "--output", "Cargo.toml"]);
    assert!(
        error.contains("\"Cargo.toml\" is not a directory"),
        "{error}"
    );

    let version = text(&["version"]);
    assert!(
        version.contains("commit: ") && version.contains("target: "),
        "{version}"
    );
    assert_eq!(text(&["--version"]), version);
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    for arguments in [
        &["--help"][..],
        &["near", "-h"],
        &["--version"],
        &["version"],
        &["man"],
        &["completions", "bash"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let mut print = command(arguments);
        let ran = print.stdout(full.expect("Linux has it")).output();
        let ran = ran.expect("it runs");
        let error = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{arguments:?}: {error}");
        let is_named = error.starts_with("error: cannot write to standard output: ");
        assert!(is_named, "{arguments:?}: {error}");
    }
}

fn text(arguments: &[&str]) -> String {
    let output = refrain(arguments);
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).expect("text")
}
