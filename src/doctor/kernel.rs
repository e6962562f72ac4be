//! What the kernel and its programs offer to `refrain run`, `refrain intercept` and lanes.

use refrain_gateway::config::Config;

use super::{Finding, context::Context};
use crate::kernel_file::text_of;
use crate::{
    in_words,
    intercept::{self, nft_version},
    run, system_program,
};

/// The oldest versions that load the table of interception: see `docs/interception.md`.
const LINUX_MIN: [u32; 2] = [5, 10];
const LINUX_MIN_OF_CONTROL_GROUPS: [u32; 2] = [5, 13];

/// The program, the kernel and the user, for whoever reads the report.
pub(super) fn system(context: &Context) -> Vec<Finding> {
    let release = text_of("/proc/sys/kernel/osrelease").unwrap_or_default();
    let user = match context.is_root {
        true => "root".to_owned(),
        false => format!(
            "user {}, without the checks that need root",
            nix::unistd::Uid::effective()
        ),
    };
    let text = format!(
        "refrain {}, commit {}, Linux {}, as {user}",
        env!("CARGO_PKG_VERSION"),
        env!("REFRAIN_COMMIT"),
        release.trim()
    );
    let rules = rules(context);
    let min = match rules.iter().any(|rule| !rule.control_groups().is_empty()) {
        true => LINUX_MIN_OF_CONTROL_GROUPS,
        false => LINUX_MIN,
    };
    let is_old = nft_version::numbers(&release).is_some_and(|version| version < min);
    vec![match is_old && !rules.is_empty() {
        true => Finding::problem(
            text,
            format!(
                "update Linux: these rules need {}.{} or later",
                min[0], min[1]
            ),
        ),
        false => Finding::ok(text),
    }]
}

/// The rules of the file.
fn rules(context: &Context) -> &[refrain_gateway::intercept::rule::InterceptRule] {
    context
        .config()
        .map_or(&[], |config: &Config| &config.intercept)
}

/// Makes the network that `refrain run` gives a program, in a process of its own.
pub(super) fn network_of_a_program(_: &Context) -> Vec<Finding> {
    vec![match run::test_network() {
        Ok(()) => Finding::ok("this user can run programs in a network of their own"),
        Err(error) => Finding::note(format!("does not work here: {}", in_words(&error)))
            .advise("needed only for `refrain run`: see \"Requirements\" in docs/programs.md"),
    }]
}

/// nft, and whether it takes the rules of the file.
pub(super) fn nft(context: &Context) -> Vec<Finding> {
    let rules = rules(context);
    let unless_needed = |text: String, advice: &str| match rules.is_empty() {
        true => Finding::note(text).advise(format!(
            "{advice}, for `refrain intercept` and `refrain run`"
        )),
        false => Finding::problem(text, advice),
    };
    let printed = match system_program::run("nft", "nftables", &["--version"], "") {
        Ok(printed) => printed,
        Err(error) => {
            return vec![unless_needed(
                in_words(&error),
                "correct this until `nft --version` works",
            )];
        }
    };
    let text = printed.lines().next().unwrap_or_default().trim();
    let version = match nft_version::is_enough(text) {
        Some(true) => Finding::ok(text),
        Some(false) => {
            return vec![unless_needed(
                format!("{text} is too old"),
                "update nftables to 1.0 or later",
            )];
        }
        None => Finding::skipped(format!("nft printed another version than expected: {text}")),
    };
    [version].into_iter().chain(taken(context)).collect()
}

/// Has nft and the kernel check the rules of the file, and load nothing.
fn taken(context: &Context) -> Option<Finding> {
    let rules = rules(context);
    if rules.is_empty() || !context.is_root {
        return None;
    }
    let gateway = intercept::Gateway {
        port: 1,
        user: 1,
        gets_dns: false,
    };
    let groups = intercept::control_groups::ControlGroups::of(rules);
    let checked =
        groups.and_then(|groups| intercept::check(rules, &groups.script(rules, &gateway)));
    Some(match checked {
        Ok(()) => Finding::ok("nft and the kernel accept the rules of the file"),
        Err(error) => Finding::problem(in_words(&error), "correct `intercept` in the file"),
    })
}

/// Whether lanes of the file's gateway, or of any by default, use bbr.
pub(super) fn congestion(_: &Context) -> Vec<Finding> {
    let of = |name: &str| text_of(format!("/proc/sys/net/ipv4/tcp_{name}"));
    let (Some(own), Some(allowed)) = (of("congestion_control"), of("allowed_congestion_control"))
    else {
        return Vec::new();
    };
    let own = own.trim();
    vec![match own == "bbr" || allowed.split_whitespace().any(|name| name == "bbr") {
        true => Finding::ok("bbr is available to all users"),
        false => Finding::note(format!(
            "bbr is not available to all users: with `congestion` auto, lanes use {own}, which is slower after loss \
             and pauses"
        ))
        .advise(
            "as root, `modprobe tcp_bbr`, and add bbr to net.ipv4.tcp_allowed_congestion_control; then restart the \
             gateway",
        ),
    }]
}

/// Whether there is any address of IPv6.
pub(super) fn ipv6(_: &Context) -> Vec<Finding> {
    let addresses = text_of("/proc/net/if_inet6").unwrap_or_default();
    vec![match addresses.trim().is_empty() {
        true => {
            Finding::note("this machine has no IPv6: connections by IPv6 neither come nor go here")
        }
        false => Finding::ok("this machine has IPv6 addresses"),
    }]
}
