//! A far end on the machine of the rules. Its connections to servers are redirected to the near end again, and so for
//! ever, unless it runs as the near end's user or can mark them.

use std::{fs, os::unix::fs::MetadataExt};

use refrain_gateway::intercept::rule::InterceptRule;

use crate::{
    kernel_file::{CAP_NET_RAW, has_capability, text_of},
    local::Found,
};

/// The processes of far ends in this network whose connections these rules redirect, if the near end runs as `user`.
pub(crate) fn redirected_far_ends<'a>(
    found: &'a [Found],
    rules: &[InterceptRule],
    user: u32,
) -> impl Iterator<Item = u32> + 'a {
    let is_possible = rules.iter().any(InterceptRule::is_about_any_program);
    let far_ends = found
        .iter()
        .filter(move |found| is_possible && found.status.role == "far");
    far_ends
        .filter_map(|found| found.place.process())
        .filter(move |process| {
            let status = text_of(format!("/proc/{process}/status")).unwrap_or_default();
            let own_user = format!("Uid:\t{user}\t");
            is_in_this_network(*process)
                && !status.lines().any(|line| line.starts_with(&own_user))
                && has_capability(&status, CAP_NET_RAW) == Some(false)
        })
}

/// The text of a warning about such a process.
pub(crate) fn described(process: u32) -> String {
    format!(
        "connections of the far end here (process {process}) to servers are intercepted, and come back to it"
    )
}

/// The cure.
pub(crate) const ADVICE: &str =
    "run it as the near end's user, give it CAP_NET_RAW, or give the rules uid or cgroup";

/// By a file that each network has once. Its namespace itself may be read by few.
fn is_in_this_network(process: u32) -> bool {
    let file = |process: &str| {
        let file = fs::metadata(format!("/proc/{process}/net/dev"));
        file.ok().map(|file| file.ino())
    };
    file(&process.to_string()).is_some_and(|other| file("self") == Some(other))
}
