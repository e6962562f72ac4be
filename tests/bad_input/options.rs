//! Options, keys and files that cannot be right: one error, and an exit code.

use std::{fs, io, net::TcpListener, os::unix::fs::PermissionsExt, process::Command};

use crate::common::{
    command::{command, keygen, refrain, refrain_fails},
    http,
    site::{Pair, Site},
};

/// `refrain far` with `options` and what else is necessary, which must fail: exit code and
/// message.
#[track_caller]
fn far_fails(site: &Site, options: &[&str]) -> (i32, String) {
    let key = site.path("far.key").display().to_string();
    let listen = site.far_listen.to_string();
    let necessary = [
        ("--key", key.as_str()),
        ("--listen", &listen),
        ("--peer-key", &site.near_key),
    ];
    let mut command = vec!["far"];
    for (option, value) in necessary {
        if !options.contains(&option) {
            command.extend([option, value]);
        }
    }
    command.extend(options);
    refrain_fails(&command)
}

#[test]
fn a_port_in_use() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = taken.local_addr().expect("an address").to_string();
    let (code, error) = far_fails(&site, &["--listen", &address]);
    assert_eq!(code, 1);
    assert!(
        error.contains(&address) && error.contains("another program"),
        "{error}"
    );
    let (code, error) = far_fails(&site, &["--admin", &address]);
    assert_eq!(code, 1);
    assert!(
        error.contains("admin") && error.contains(&address),
        "{error}"
    );
    let forward = format!("{address}=127.0.0.1:80");
    let (code, error) = far_fails(&site, &["--forward", &forward]);
    assert_eq!(code, 1);
    assert!(
        error.contains("forward") && error.contains(&address),
        "{error}"
    );
}

#[test]
fn keys_that_are_missing_or_open_to_others_or_no_keys() {
    let site = Site::new();
    let (code, error) = far_fails(&site, &["--peer-key", "nowhere/peers"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("--peer-key") && error.contains("nowhere/peers"),
        "{error}"
    );

    let (code, error) = far_fails(&site, &["--key", "nowhere/far.key"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("--key") && error.contains("nowhere/far.key"),
        "{error}"
    );
    assert!(error.contains("refrain keygen"), "{error}");

    let path = site.path("far.key");
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&path, open).expect("its owner may");
    let (code, error) = far_fails(&site, &[]);
    assert_eq!(code, 2);
    assert!(
        error.contains("other users can read") && error.contains("chmod 600"),
        "{error}"
    );

    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&path, private).expect("its owner may");
    fs::write(&path, "no key\n").expect("its owner may");
    let (code, error) = far_fails(&site, &[]);
    assert_eq!(code, 2);
    assert!(
        error.contains("far.key") && error.contains("refrain keygen"),
        "{error}"
    );
}

#[test]
fn a_key_that_does_not_fit_the_disk_leaves_nothing() {
    let site = Site::new();
    let folder = site.path("keys");
    fs::create_dir(&folder).expect("a folder");
    let file = folder.join("near.key");
    // A limit on files' size stands for the full disk; its signal would kill before any error.
    let limited = "trap '' XFSZ; ulimit -f 0; exec \"$0\" keygen \"$1\"";
    let made = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_refrain")])
        .arg(&file)
        .output()
        .expect("a shell");
    let error = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(1), "{error}");
    assert!(error.contains("near.key"), "{error}");
    assert!(made.stdout.is_empty(), "no key was made");
    let left = fs::read_dir(&folder).expect("the folder").count();
    assert_eq!(left, 0, "files are left");
    keygen(&file);
}

#[test]
fn a_public_key_that_cannot_be_printed() {
    let site = Site::new();
    let file = site.path("new.key").display().to_string();
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let mut keygen = command(&["keygen", &file]);
    let made = keygen.stdout(full.expect("Linux has it")).output();
    let made = made.expect("it runs");
    let error = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(1), "{error}");
    assert!(
        error.contains("the private key is in") && error.contains(&file),
        "{error}"
    );
    assert!(refrain(&["keygen", "--show", &file]).status.success());
}

#[test]
fn an_empty_file_is_no_key_and_is_not_overwritten() {
    let site = Site::new();
    let file = site.write("empty.key", "");
    let (code, error) = refrain_fails(&["keygen", &file]);
    assert_eq!(code, 1);
    assert!(error.contains("empty"), "{error}");
    assert_eq!(fs::read(&file).expect("it is there"), b"");
}

#[test]
fn the_gateways_own_key_as_its_peers() {
    let site = Site::new();
    for mode in [&[][..], &["--dry-run"]] {
        let own = [&["--peer-key", &site.far_key], mode].concat();
        let (code, error) = far_fails(&site, &own);
        assert_eq!(code, 2);
        assert!(error.contains("this end's own --key"), "{error}");
    }
}

#[test]
fn errors_of_usage_have_one_form() {
    let site = Site::new();
    let nowhere = site.path("nowhere").display().to_string();
    for (arguments, command) in [
        (&["far", "--lane", "3"][..], "far"),
        (&["far", "--key", &nowhere, "--peer-key", &nowhere], "far"),
        (&["near"], "near"),
        (&["near", "--require-peer", "5"], "near"),
        (&["demo", "--flows", "0"], "demo"),
        (&["czip", "create", "-o", &nowhere], "czip create"),
        (&["man", "nothing"], "man"),
        (&["nothing"], ""),
    ] {
        let (code, error) = refrain_fails(arguments);
        assert_eq!(code, 2, "{error}");
        let program = format!("refrain {command}");
        let help = format!("\nsee '{} --help'\n", program.trim_end());
        assert!(
            error.starts_with("error: ") && error.ends_with(&help),
            "{error}"
        );
        assert!(!error.contains("Usage:"), "{error}");
    }
}

#[test]
fn all_missing_options_are_named_at_once() {
    let far = ["--key", "--peer-key"];
    let near = ["--peer", "--key", "--peer-key", "one of --forward"];
    for (end, options) in [("far", &far[..]), ("near", &near)] {
        let (code, error) = refrain_fails(&[end]);
        assert_eq!(code, 2);
        for option in options {
            assert!(error.contains(option), "{option} is not in: {error}");
        }
    }
}

#[test]
fn output_into_a_closed_pipe_ends_quietly() {
    let Pair {
        site,
        far,
        near: _near,
    } = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    let key = site.path("far.key").display().to_string();
    let near_key = site.path("near.key").display().to_string();
    let (admin, listen) = (far.admin.to_string(), site.far_listen.to_string());
    let file = site.write("file", "to move");
    let status = ["status", "--admin", &admin];
    let check = ["check", "--peer", &listen, "--key", &near_key];
    let check = [&check[..], &["--peer-key", &site.far_key]].concat();
    let dry_run = ["far", "--dry-run", "--listen", &listen, "--key", &key];
    let dry_run = [&dry_run[..], &["--peer-key", &site.near_key]].concat();
    for arguments in [
        &["keygen", "--show", &key][..],
        &dry_run,
        &status,
        &[&status[..], &["--json"]].concat(),
        &[&status[..], &["--watch", "0.1"]].concat(),
        &check,
        &[&check[..], &["--json"]].concat(),
        &["demo", &file],
        &["demo", "--json", &file],
        &["near", "--help"],
        &["version"],
    ] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let ended = command(arguments).stdout(writer).output().expect("it runs");
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{arguments:?}: {error}");
        assert!(!error.contains("pipe"), "{arguments:?}: {error}");
    }
}

#[test]
fn configurations_with_mistakes() {
    let site = Site::new();
    let file = site.write("far.toml", "# a comment\nlanes = 2\nlanes_maximum = 4\n");
    let (code, error) = far_fails(&site, &["--config", &file]);
    assert_eq!(code, 2);
    for part in ["far.toml:3", "lanes_maximum", "lanes_max"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let (code, error) = far_fails(&site, &["--config", "nowhere/far.toml"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("--config: ") && error.contains("nowhere/far.toml"),
        "{error}"
    );
    assert!(error.contains("give the full path"), "{error}");
    let (code, error) = far_fails(&site, &["--config", "."]);
    assert_eq!(code, 2);
    assert!(
        error.contains("--config: cannot open \".\": ") && error.contains("is a directory"),
        "{error}"
    );
    let far = command(&["far", "--dry-run"])
        .env("REFRAIN_CONFIG", "nowhere/far.toml")
        .output();
    let error = String::from_utf8_lossy(&far.expect("it runs").stderr).into_owned();
    assert!(error.contains("REFRAIN_CONFIG: "), "{error}");
    let (code, error) = far_fails(&site, &["--rate", "fast"]);
    assert_eq!(code, 2);
    assert!(error.contains("--rate"), "{error}");
    let (code, error) = far_fails(&site, &["--lane", "3"]);
    assert_eq!(code, 2);
    assert!(error.contains("--lanes"), "{error}");
}

#[test]
fn an_admin_page_for_others_needs_a_token() {
    let site = Site::new();
    let (code, error) = far_fails(&site, &["--admin", "0.0.0.0:0"]);
    assert_eq!(code, 2);
    assert!(error.contains("--admin-token-file"), "{error}");
}

#[test]
fn an_admin_page_with_a_token_answers_nobody_else() {
    const TOKEN: &str = "correct-horse-battery";
    let site = Site::new();
    let token_file = site.write("token", TOKEN);
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&token_file, private).expect("its owner may");
    let far = site.far(&["--admin-token-file", &token_file]);
    for page in ["/healthz", "/status", "/metrics"] {
        for token in [None, Some("correct-horse-batterx"), Some("")] {
            let (status, body) = http::get(far.admin, page, token).expect("an answer");
            assert_eq!(status, 401, "{page} with {token:?}: {body}");
        }
        let (status, _) = http::get(far.admin, page, Some(TOKEN)).expect("an answer");
        assert_eq!(status, 200, "{page}");
    }
    let admin = far.admin.to_string();
    let (code, error) = refrain_fails(&["status", "--admin", &admin]);
    assert_eq!(code, 1);
    assert!(error.contains("--admin-token-file"), "{error}");
    let other = site.write("other-token", "correct-horse-batterx");
    let ask = ["status", "--admin", &admin, "--admin-token-file", &other];
    let (code, error) = refrain_fails(&ask);
    assert_eq!(code, 1);
    assert!(error.contains("refused this admin token"), "{error}");
    let shown = refrain(&[
        "status",
        "--admin",
        &admin,
        "--admin-token-file",
        &token_file,
    ]);
    assert!(shown.status.success());
}
