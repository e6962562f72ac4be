//! What the program says about its configuration: on a reload, about the environment, and when
//! it is only asked.

mod common;

use common::{
    addresses::{forward, free_address},
    command::command,
    eventually, origin,
    site::Site,
};

#[test]
fn sighup_names_what_only_a_restart_applies_and_reloads_the_rest() {
    let target = origin::start();
    let (listen, option) = forward(target);
    let site = Site::new();
    let config = |rest: &str| format!("peer_key = [\"{}\"]\n{rest}", site.near_key);
    let file = site.write(
        "far.toml",
        &config("allow = [\"127.0.0.1:1\"]\nlanes = 2\n"),
    );
    let far = site.far(&["--config", &file]);
    let near = site.near(site.far_listen, &["--forward", &option]);
    near.wait_until_up();

    // The default of a moment ago, said in so many words, is no change.
    let changed =
        format!("allow = [\"{target}\"]\nlanes = 3\nrate = \"90Mbit\"\neffort = \"auto\"\n");
    site.write("far.toml", &config(&changed));
    far.signal("HUP");
    let warning = far.wait_for_log(&["WARN", "restart"]);
    assert!(warning.ends_with(": rate, lanes"), "{warning}");
    eventually("the rule is reloaded all the same", || {
        origin::answers(listen).then_some(())
    });

    site.write("far.toml", &config("lanes = 2\n"));
    far.signal("HUP");
    eventually("a second reload", || {
        (far.log().matches("reloaded").count() == 2).then_some(())
    });
    site.write("far.toml", "lanes = \n");
    far.signal("HUP");
    far.wait_for_log(&["kept the old configuration"]);
    assert_eq!(
        far.log().matches("restart").count(),
        1,
        "nothing to restart for"
    );
}

#[test]
fn a_misspelt_variable_is_a_warning_that_names_the_nearest() {
    let site = Site::new();
    let key = site.path("near.key").display().to_string();
    let nobody = free_address().to_string();
    let check = [
        "check",
        "--peer",
        &nobody,
        "--key",
        &key,
        "--peer-key",
        &site.far_key,
    ];
    let run = command(&check)
        .env("REFRAIN_CONECT_TIMEOUT", "1s")
        .env("REFRAIN_LISTEN", "127.0.0.1:7000")
        .env("REFRAIN_PORT", "tcp://10.0.0.11:7000")
        .env("REFRAIN_LOG", "warn")
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&run.stderr);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert_eq!(
        lines.len(),
        3,
        "two warnings and why the check fails: {said}"
    );
    for (line, parts) in [
        (
            lines[0],
            [
                "WARN",
                "REFRAIN_CONECT_TIMEOUT",
                "'REFRAIN_CONNECT_TIMEOUT'",
            ],
        ),
        (lines[1], ["WARN", "REFRAIN_LISTEN", "other end"]),
        (lines[2], ["refrain:", "cannot connect", &nobody]),
    ] {
        assert!(
            parts.iter().all(|part| line.contains(part)),
            "{parts:?}: {said}"
        );
    }
}
