//! Reads the answers of DNS that the firewall copies, for rules with a name.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinSet;

use crate::{
    gateway::Gateway,
    intercept::{handling::Handling, queue, rule::InterceptRule},
    options::TRANSPARENT,
};

/// Has `tasks` learn the names that clients get from DNS, if there are rules with names.
pub(crate) fn start(gateway: &Arc<Gateway>, tasks: &mut JoinSet<()>) {
    let ways_in = gateway.config.ways_in.iter().zip(gateway.ways_in());
    let by_name = ways_in.filter_map(|(way_in, address)| match way_in.handling {
        Handling::ByName { is_forwarded } if *way_in.option == TRANSPARENT => {
            Some((address.port(), is_forwarded))
        }
        Handling::ByName { .. } | Handling::Carry(_) => None,
    });
    // Listeners of both families have one group.
    let by_name: BTreeMap<u16, bool> = by_name.collect();
    for (group, is_forwarded) in by_name {
        match gateway.dns_names.bind(is_forwarded, group) {
            Ok(()) => drop(tasks.spawn(read(Arc::clone(gateway), is_forwarded))),
            Err(error) if queue::is_permitted() => tracing::warn!(
                "names of servers are read from clients' first bytes only: cannot take group {group} of netfilter's log: \
                 {error} (does another program use it? See /proc/net/netfilter/nfnetlink_log)"
            ),
            Err(_) => {
                tracing::info!(
                    "names of servers are read from clients' first bytes only: to learn them from DNS answers too, grant \
                     CAP_NET_ADMIN (with systemd: AmbientCapabilities=CAP_NET_ADMIN)"
                );
                // The same about the next one.
                return;
            }
        }
    }
}

async fn read(gateway: Arc<Gateway>, is_forwarded: bool) {
    let is_wanted =
        |name: &str| InterceptRule::any_has_name(&gateway.policy.load().intercept, name);
    let error = gateway.dns_names.read(is_forwarded, is_wanted).await;
    tracing::error!(
        "names of servers are read from clients' first bytes only: cannot read DNS answers: {error}"
    );
}
