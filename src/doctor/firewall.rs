//! What `nft -j` says of tables, as far as checks need it. All of it may be anything.

use std::collections::{BTreeMap, BTreeSet};

use nix::unistd::User;
use refrain_gateway::intercept::table::TABLE;
use serde_json::Value;

/// The place of network address translation among the chains of a hook.
const PRIORITY: i64 = -100;

pub(super) fn entries<'a>(listed: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let entries = listed["nftables"].as_array().into_iter().flatten();
    entries.filter_map(move |entry| entry.get(kind))
}

pub(super) fn parts(rule: &Value) -> impl Iterator<Item = &Value> {
    rule["expr"].as_array().into_iter().flatten()
}

/// Whether a table has rules about forwarded connections.
pub(super) fn is_about_forwarded(table: &Value) -> bool {
    entries(table, "chain").any(|chain| chain["name"] == "forwarded")
}

/// Whether a table brings answers to clients' addresses here.
pub(super) fn brings_answers(table: &Value) -> bool {
    entries(table, "rule").any(|rule| rule["chain"] == "answers")
}

/// The port to which a table redirects.
pub(super) fn redirect_port(table: &Value) -> Option<u16> {
    let mut ports = entries(table, "rule").flat_map(parts);
    let port = ports.find_map(|part| part["redirect"]["port"].as_u64())?;
    port.try_into().ok()
}

/// The port of `transparent` that a table is for. Rules redirect to it, or to those after it.
pub(super) fn first_port(table: &Value) -> Option<u16> {
    let of_gate = entries(table, "rule").filter(|rule| rule["chain"] == "gate");
    let mut matches = of_gate.flat_map(parts).map(|part| &part["match"]);
    let port = &matches.find(|found| found["left"]["payload"]["field"] == "dport")?["right"];
    port.as_u64()?.try_into().ok()
}

/// Whether rules redirect while the gate is open, and whether some always do.
pub(super) fn redirects(table: &Value) -> (bool, bool) {
    let is_gate = |part: &Value| {
        let set = part["match"]["right"].as_str();
        set.is_some_and(|set| {
            ["@alive", "@others"]
                .iter()
                .any(|gate| set.starts_with(gate))
        })
    };
    let redirecting = entries(table, "rule")
        .filter(|rule| parts(rule).any(|part| part.get("redirect").is_some()));
    let gated: Vec<_> = redirecting.map(|rule| parts(rule).any(is_gate)).collect();
    (gated.contains(&true), gated.contains(&false))
}

/// The user whose packets open the gate, and whose connections are not redirected.
pub(super) fn excepted_user(table: &Value) -> Option<u32> {
    let of_gate = entries(table, "rule").filter(|rule| rule["chain"] == "gate");
    let mut matches = of_gate.flat_map(parts).map(|part| &part["match"]);
    let user = &matches.find(|found| found["left"]["meta"]["key"] == "skuid")?["right"];
    match user.as_str() {
        Some(name) => Some(User::from_name(name).ok()??.uid.as_raw()),
        None => user.as_u64()?.try_into().ok(),
    }
}

/// The comments of rules about control groups, and whether nft finds no path for a group's number. It also looks at
/// control groups of version 1, so a group that is gone may have the path of another.
pub(super) fn rules_of_groups(table: &Value) -> BTreeMap<String, bool> {
    let mut rules = BTreeMap::new();
    for rule in entries(table, "rule") {
        let groups = parts(rule).filter_map(|part| {
            let (left, right) = (&part["match"]["left"], &part["match"]["right"]);
            (left["socket"]["key"] == "cgroupv2").then(|| right.as_str().unwrap_or_default())
        });
        let has_number = |path: &str| path.bytes().all(|byte| byte.is_ascii_digit());
        let Some(is_gone) = groups.map(has_number).reduce(|one, other| one || other) else {
            continue;
        };
        // A rule has several lines.
        let Some(comment) = rule["comment"].as_str() else {
            continue;
        };
        *rules.entry(comment.to_owned()).or_default() |= is_gone;
    }
    rules
}

/// Connections of other machines that a table redirects.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Redirected {
    /// Where they come in; none for any interface.
    pub interface: Option<String>,
    /// Where they are redirected to.
    pub port: u16,
}

/// Those of each interface and port, once.
pub(super) fn redirected_from_others(table: &Value) -> BTreeSet<Redirected> {
    let rules = entries(table, "rule").filter(|rule| rule["chain"] == "forwarded");
    let all = rules.flat_map(|rule| {
        let port = parts(rule).find_map(|part| part["redirect"]["port"].as_u64());
        let mut matches = parts(rule).map(|part| &part["match"]);
        let named = matches.find(|found| found["left"]["meta"]["key"] == "iifname");
        let right = named.map_or(&Value::Null, |named| &named["right"]);
        let names = match right["set"].as_array() {
            Some(names) => names.iter().map(Value::as_str).collect(),
            None => vec![right.as_str()],
        };
        let port = port.and_then(|port| port.try_into().ok());
        let of_each = names.into_iter().filter_map(move |name| {
            Some(Redirected {
                interface: name.map(str::to_owned),
                port: port?,
            })
        });
        of_each.collect::<Vec<_>>()
    });
    all.collect()
}

/// A chain of another program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OtherChain {
    pub family: String,
    pub table: String,
    pub name: String,
}

/// Those in `nft -j list chains` that translate addresses at the hooks of ours, before it or at the same place.
pub(super) fn other_chains(chains: &Value) -> Vec<OtherChain> {
    others(chains, |chain| {
        let is_there = ["output", "prerouting"].map(|hook| chain["hook"] == hook);
        let is_before = chain["prio"].as_i64().is_some_and(|prio| prio <= PRIORITY);
        chain["type"] == "nat" && is_there.contains(&true) && is_before
    })
}

/// Those that filter packets to this machine.
pub(super) fn input_chains(chains: &Value) -> Vec<OtherChain> {
    others(chains, |chain| {
        let is_of_ip = ["ip", "ip6", "inet"].map(|family| chain["family"] == family);
        chain["type"] == "filter" && chain["hook"] == "input" && is_of_ip.contains(&true)
    })
}

fn others(chains: &Value, is_one: impl Fn(&Value) -> bool) -> Vec<OtherChain> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let others = entries(chains, "chain").filter_map(|chain| {
        let other = OtherChain {
            family: text(&chain["family"])?,
            table: text(&chain["table"])?,
            name: text(&chain["name"])?,
        };
        let is_ours = format!("{} {}", other.family, other.table) == TABLE;
        (is_one(chain) && !is_ours).then_some(other)
    });
    others.collect()
}

/// Whether a rule of this table changes destinations, by nft or by its form of iptables.
pub(super) fn changes_destinations(table: &Value) -> bool {
    let changes = |part: &Value| {
        let name = part["xt"]["name"].as_str().unwrap_or_default();
        let of_iptables = ["DNAT", "REDIRECT"].contains(&name);
        of_iptables || part.get("dnat").is_some() || part.get("redirect").is_some()
    };
    entries(table, "rule").flat_map(parts).any(changes)
}

/// The bytes that came by QUIC since the rules were loaded; none if these rules do not count them.
pub(super) fn quic_bytes(table: &Value) -> Option<u64> {
    let counting = entries(table, "rule").find(|rule| rule["chain"] == "quic")?;
    parts(counting).find_map(|part| part["counter"]["bytes"].as_u64())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn table() -> Value {
        let group = json!({"match": {"op": "==", "left": {"socket": {"key": "cgroupv2", "level": 1}}, "right": "120"}});
        json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"chain": {"family": "inet", "table": "refrain", "name": "forwarded"}},
            {"rule": {"chain": "gate", "expr": [
                {"match": {"op": "==", "left": {"meta": {"key": "skuid"}}, "right": 64999}},
                {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 15001}},
                {"drop": null}]}},
            {"rule": {"chain": "local", "comment": "rule 1: cgroup=a", "expr": [
                group,
                {"counter": {"packets": 3, "bytes": 9}},
                {"redirect": {"port": 15001}}]}},
            {"rule": {"chain": "local", "comment": "rule 1: cgroup=a", "expr": [group, {"return": null}]}},
            {"rule": {"chain": "quic", "expr": [
                {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "sport"}}, "right": 443}},
                {"counter": {"packets": 2, "bytes": 2400}}]}},
        ]})
    }

    #[test]
    fn a_table_of_ours_is_read() {
        let table = table();
        assert!(is_about_forwarded(&table));
        assert_eq!(redirect_port(&table), Some(15001));
        assert_eq!(first_port(&table), Some(15001));
        assert_eq!(excepted_user(&table), Some(64999));
        let groups = rules_of_groups(&table);
        assert_eq!(groups, [("rule 1: cgroup=a".to_owned(), true)].into());
        assert!(changes_destinations(&table));
        assert_eq!(quic_bytes(&table), Some(2400));
    }

    #[test]
    fn redirects_pass_a_gate_or_none() {
        assert_eq!(redirects(&table()), (false, true));
        let gate = json!({"match": {"op": "==", "left": {"meta": {"key": "nfproto"}}, "right": "@alive_1"}});
        let gated =
            json!({"rule": {"chain": "local", "expr": [gate, {"redirect": {"port": 15002}}]}});
        let mut both = table();
        both["nftables"]
            .as_array_mut()
            .expect("entries")
            .push(gated.clone());
        assert_eq!(redirects(&both), (true, true));
        assert_eq!(redirects(&json!({"nftables": [gated]})), (true, false));
        assert_eq!(redirects(&json!({})), (false, false));
    }

    #[test]
    fn only_chains_that_translate_before_ours_are_others() {
        let chain = |family, table, kind, hook, prio| json!({"chain": {"family": family, "table": table, "name": hook, "type": kind, "hook": hook, "prio": prio}});
        let listed = json!({"nftables": [
            chain("ip", "nat", "nat", "output", -100),
            chain("ip", "nat", "nat", "postrouting", 100),
            chain("ip", "late", "nat", "output", -90),
            chain("ip", "filter", "filter", "output", -100),
            chain("inet", "refrain", "nat", "output", -100),
        ]});
        let found = other_chains(&listed);
        let named: Vec<_> = found.iter().map(|chain| chain.table.as_str()).collect();
        assert_eq!(named, ["nat"]);
        let listed = json!({"nftables": [
            chain("inet", "filter", "filter", "input", 0),
            chain("inet", "filter", "filter", "forward", 0),
            chain("bridge", "filter", "filter", "input", 0),
            chain("inet", "refrain", "filter", "input", 150),
        ]});
        let named: Vec<_> = input_chains(&listed)
            .into_iter()
            .map(|chain| chain.name)
            .collect();
        assert_eq!(named, ["input"]);
    }

    #[test]
    fn redirected_connections_have_interfaces_and_ports() {
        let rule = |right: Value, port: u16| {
            json!({"rule": {"chain": "forwarded", "expr": [
            {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": right}},
            {"redirect": {"port": port}}]}})
        };
        let any = json!({"rule": {"chain": "forwarded", "expr": [{"redirect": {"port": 15003}}]}});
        let table = json!({"nftables": [
            rule(json!({"set": ["lan", "wlan"]}), 15001), rule(json!("lan"), 15001), any,
            {"rule": {"chain": "forwarded", "expr": [{"return": null}]}},
        ]});
        let found: Vec<_> = redirected_from_others(&table).into_iter().collect();
        let expected =
            [(None, 15003), (Some("lan"), 15001), (Some("wlan"), 15001)].map(|(name, port)| {
                Redirected {
                    interface: name.map(str::to_owned),
                    port,
                }
            });
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in any::<String>()) {
            let value = serde_json::from_str(&text).unwrap_or(json!({"nftables": [{"rule": {"expr": [text]}}]}));
            let _ = (redirect_port(&value), first_port(&value), excepted_user(&value), rules_of_groups(&value));
            let _ = (quic_bytes(&value), other_chains(&value), changes_destinations(&value), is_about_forwarded(&value));
            let _ = (redirects(&value), input_chains(&value), redirected_from_others(&value));
        }
    }
}
