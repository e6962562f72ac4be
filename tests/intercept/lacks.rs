//! What the machine of a near end may lack: nft, a version of it that is new enough, and IPv6.

use std::{
    fs,
    process::{Command, Output},
};

use rustix::process::Signal;

use crate::{
    common::{
        doctor::Findings,
        eventually,
        programs::{find, install_script},
    },
    failing::signal,
    world::{Outcome, World, keeper::on, within},
};

/// Runs `refrain` with these arguments where nft is not as it was.
type Refrain<'a> = dyn Fn(&[&str]) -> Output + 'a;

/// Each command that needs nft fails with this text, and changes nothing.
#[track_caller]
fn fails_and_changes_nothing(world: &World, refrain: &Refrain, commands: &[&[&str]], text: &str) {
    let before = world.ruleset();
    for arguments in commands {
        let output = refrain(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains(text), "{arguments:?}: {error}");
        // These are advice for another cause.
        for other in ["one of these rules", "modprobe"] {
            assert!(!error.contains(other), "{arguments:?}: {error}");
        }
        assert_eq!(world.ruleset(), before, "{arguments:?}");
    }
    let config = world.path("near.toml");
    let found = Findings::of(&refrain(&["doctor", "--json", "--config", &config]));
    found.expect("problem", "nft", &[text]);
    assert!(!found.has("nft", "correct `intercept`"));
}

/// The rules need more of nft than others.
fn world() -> Option<World> {
    World::with(
        "transparent = \"15001\"
         intercept = [
             \"port=8080 refusal=exact\",
             \"port=8081 name=a.example action=direct\",
             \"action=direct\",
         ]\n",
    )
}

#[test]
fn without_nft_the_error_names_its_package() {
    let Some(world) = world() else { return };
    // In a mount namespace of the command, a device takes the place of each nft.
    let hide = "for nft in $(PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin which -a nft); do
            mount --bind /dev/null \"$nft\"
        done
        exec \"$@\"";
    let refrain = |arguments: &[&str]| {
        Command::new("unshare")
            .args(["--mount", "sh", "-c", hide, "sh"])
            .arg("nsenter")
            .arg(format!("--net=/run/netns/{}", world.site))
            .arg(env!("CARGO_BIN_EXE_refrain"))
            .args(arguments)
            .env("XDG_RUNTIME_DIR", world.folder())
            .output()
            .expect("it runs")
    };
    let config = world.path("near.toml");
    let commands = [
        &on(&config, &[])[..],
        &["intercept", "off"],
        &["intercept", "show"],
    ];
    let text = "is missing: install the package nftables";
    fails_and_changes_nothing(&world, &refrain, &commands, text);
}

#[test]
fn an_nft_that_is_too_old_is_named_with_its_version() {
    let Some(world) = world() else { return };
    let real = find("nft").expect("its presence was tested");
    let script = format!(
        "#!/bin/sh
case \" $* \" in
    *' --version '*) echo 'nftables v0.9.0 (Fearless Fosdick)' ;;
    *' -f '*) echo '/dev/stdin:2:3-9: Error: syntax error, unexpected comment' >&2; exit 1 ;;
    *) exec {} \"$@\" ;;
esac
",
        real.display()
    );
    fs::create_dir(world.path("old")).expect("our own folder");
    let old = world.path("old/nft");
    install_script(&script, old.as_ref());
    let path = std::env::var("PATH").expect("a path");
    let path = format!("{}:{path}", world.path("old"));
    let refrain = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command
            .env("PATH", &path)
            .env("XDG_RUNTIME_DIR", world.folder())
            .output()
            .expect("it runs")
    };
    let config = world.path("near.toml");
    let text = "nftables v0.9.0 (Fearless Fosdick) is too old";
    fails_and_changes_nothing(&world, &refrain, &[&on(&config, &[])], text);
}

#[test]
fn without_ipv6_connections_of_ipv4_are_carried() {
    let Some(mut world) = World::new() else {
        return;
    };
    signal(&world.near, Signal::KILL);
    world.near.take().expect("it ran").wait().expect("it ends");
    within(&world.site, || {
        for interface in ["all", "default"] {
            let setting = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
            fs::write(setting, "1").expect("root may");
        }
    });
    world.start_near();
    let before = world.ruleset();
    world.intercept();
    let loaded = world.ruleset();
    assert!(loaded.contains("ip6 daddr fd77::/64"), "{loaded}");
    world.wait_for(Outcome::Carried);
    let config = world.path("near.toml");
    let found = eventually("a report without problems", || {
        let found = Findings::of(&world.refrain(&["doctor", "--json", "--config", &config]));
        found.problems().is_empty().then_some(found)
    });
    found.expect("note", "IPv6", &["no IPv6"]);
    world.refrain_ok(&["intercept", "off"]);
    assert_eq!(world.ruleset(), before);
    assert_eq!(world.connect(), Outcome::Direct);
}
