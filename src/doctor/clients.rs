//! The clients of rules about forwarded connections: the near end resets those that `clients` does not have.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Finding, context::Context};
use crate::system_program;

/// Networks of the interfaces that rules name, whose clients the near end would reset.
pub(super) fn clients(context: &Context) -> Vec<Finding> {
    let Some(config) = context.config() else {
        return Vec::new();
    };
    let rules = config.intercept.iter().filter(|rule| rule.is_forwarded());
    let rules: Vec<_> = rules.collect();
    if rules.is_empty() {
        return Vec::new();
    }
    let printed = system_program::run("ip", "iproute2", &["-j", "address", "show"], "");
    let listed = printed.unwrap_or_default();
    let listed: Value = serde_json::from_str(&listed).unwrap_or_default();
    let of_interfaces = rules.iter().flat_map(|rule| {
        let names = rule.interfaces().iter();
        names.map(move |name| (rule, name))
    });
    let lacks = of_interfaces.flat_map(|(rule, name)| {
        let networks = networks_of(&listed, name);
        let networks = networks.iter().filter_map(|text| text.parse().ok());
        let clients = networks.flat_map(|network| rule.clients_of(network));
        let lacks = clients.filter(|network| !config.access.admits_all_of(network));
        lacks
            .map(|network| (name, network.trunc()))
            .collect::<Vec<_>>()
    });
    // Several rules may name the same interface.
    let lacks: BTreeSet<_> = lacks.collect();
    let notes = lacks.into_iter().map(|(name, network)| {
        Finding::note(format!(
            "`clients` does not have all of {network}, from where connections come in by {name}: those that rules \
             redirect are reset"
        ))
        .advise(format!(
            "add {network} to `clients`, unless its machines must not use the near end"
        ))
    });
    notes.collect()
}

/// The addresses of an interface with the length of their networks, by what `ip -j address show` prints. Connections from
/// link-local addresses are not forwarded.
fn networks_of(listed: &Value, interface: &str) -> Vec<String> {
    let interfaces = listed.as_array().into_iter().flatten();
    let own = interfaces.filter(|found| found["ifname"] == interface);
    let addresses = own.flat_map(|found| found["addr_info"].as_array().into_iter().flatten());
    let networks = addresses
        .filter(|address| address["scope"] == "global")
        .filter_map(|address| {
            let own = address["local"].as_str()?;
            Some(format!("{own}/{}", address["prefixlen"].as_u64()?))
        });
    networks.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_networks_of_an_interface_are_those_of_its_global_addresses() {
        let address = |local: &str, length: u8, scope: &str| json!({"local": local, "prefixlen": length, "scope": scope});
        let listed = json!([
            {"ifname": "lo", "addr_info": [address("127.0.0.1", 8, "host")]},
            {"ifname": "lan0", "addr_info": [
                address("10.1.0.1", 16, "global"),
                address("fe80::1", 64, "link"),
                address("fd00::1", 64, "global"),
                json!({"local": 1}),
            ]},
            {},
        ]);
        assert_eq!(networks_of(&listed, "lan0"), ["10.1.0.1/16", "fd00::1/64"]);
        for (listed, name) in [(&listed, "lo"), (&listed, "lan"), (&json!(null), "lan0")] {
            assert_eq!(networks_of(listed, name), [""; 0]);
        }
    }
}
