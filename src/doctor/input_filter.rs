//! Firewall rules of others for packets to this machine: redirected connections of other machines are such packets.
//!
//! The rules are followed as far as they are understood. A rule with anything else in it is passed over, so the result is
//! a guess.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Finding,
    context::Context,
    firewall::{self, Redirected, entries, parts},
    interception::{OTHERS_MAX, list, loaded},
};

/// Jumps that are followed.
const JUMPS_MAX: usize = 8;

/// The end of a packet's way through a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    Drop,
}

/// The tables that seem to drop connections which the rules redirect.
pub(super) fn input_filter(context: &Context) -> Vec<Finding> {
    let Some(redirected) = loaded(context).map(firewall::redirected_from_others) else {
        return Vec::new();
    };
    if redirected.is_empty() {
        return Vec::new();
    }
    let Some(chains) = list(&["chains"]) else {
        return Vec::new();
    };
    let others = firewall::input_chains(&chains);
    let notes = others.iter().take(OTHERS_MAX).filter_map(|chain| {
        let table = list(&["table", &chain.family, &chain.table])?;
        let dropped = redirected.iter();
        let dropped: Vec<_> = dropped
            .filter(|one| drops(&table, &chain.name, one))
            .collect();
        (!dropped.is_empty()).then(|| {
            let name = format!("{} {} {}", chain.family, chain.table, chain.name);
            note(&name, &dropped)
        })
    });
    notes.collect()
}

fn note(chain: &str, dropped: &[&Redirected]) -> Finding {
    let ports: BTreeSet<_> = dropped.iter().map(|one| one.port.to_string()).collect();
    let ports = ports.into_iter().collect::<Vec<_>>().join(", ");
    let interfaces = dropped.iter().filter_map(|one| one.interface.as_deref());
    let interfaces: BTreeSet<_> = interfaces.collect();
    let interfaces = interfaces.into_iter().collect::<Vec<_>>().join(", ");
    let (from, matched) = match interfaces.is_empty() {
        true => ("other machines".to_owned(), String::new()),
        false => (interfaces.clone(), format!("iifname {{ {interfaces} }} ")),
    };
    Finding::note(format!(
        "chain {chain} filters packets to this machine, and seems to drop redirected connections, which then hang: it must \
         accept TCP to the near end's ports ({ports}) from {from}"
    ))
    .advise(format!(
        "unless it does: nft insert rule {chain} {matched}tcp dport {{ {ports} }} accept"
    ))
}

/// Whether this chain of a table drops such a connection.
fn drops(table: &Value, chain: &str, connection: &Redirected) -> bool {
    let policy = entries(table, "chain").find(|entry| entry["name"] == chain);
    let is_dropped = policy.is_some_and(|entry| entry["policy"] == "drop");
    match follow(table, chain, connection, JUMPS_MAX) {
        Some(verdict) => verdict == Verdict::Drop,
        None => is_dropped,
    }
}

/// None if no rule decides.
fn follow(table: &Value, chain: &str, connection: &Redirected, jumps: usize) -> Option<Verdict> {
    let rules = entries(table, "rule").filter(|rule| rule["chain"] == chain);
    for rule in rules.filter(|rule| is_about(rule, connection)) {
        let has = |verdict| parts(rule).any(|part| part.get(verdict).is_some());
        if has("accept") {
            return Some(Verdict::Accept);
        }
        if has("drop") || has("reject") {
            return Some(Verdict::Drop);
        }
        if has("return") {
            return None;
        }
        for way in ["jump", "goto"] {
            let target = parts(rule).find_map(|part| part[way]["target"].as_str());
            let Some(target) = target.filter(|_| jumps > 0) else {
                continue;
            };
            let verdict = follow(table, target, connection, jumps - 1);
            if verdict.is_some() || way == "goto" {
                return verdict;
            }
        }
    }
    None
}

/// Whether a rule is understood, and matches the first packet of such a connection.
fn is_about(rule: &Value, connection: &Redirected) -> bool {
    let is_of = |part: &Value, key| part["match"]["left"]["payload"]["field"] == key;
    let has_port = parts(rule).any(|part| is_of(part, "dport"));
    // Of addresses, only those that are accepted, or that are named with the port, are likely those of clients.
    let is_of_clients = has_port || parts(rule).any(|part| part.get("accept").is_some());
    parts(rule).all(|part| match part.get("match") {
        Some(_) if is_of(part, "saddr") => is_of_clients,
        Some(found) => matches(found, connection).unwrap_or(false),
        None => {
            let understood = [
                "counter", "log", "accept", "drop", "reject", "return", "jump", "goto",
            ];
            understood.iter().any(|known| part.get(known).is_some())
        }
    })
}

/// None if it is not understood.
fn matches(found: &Value, connection: &Redirected) -> Option<bool> {
    let (left, right) = (&found["left"], &found["right"]);
    let is_equal = match found["op"].as_str()? {
        "==" | "in" => true,
        "!=" => false,
        _ => return None,
    };
    let key = ["meta", "ct"].map(|kind| left[kind]["key"].as_str());
    let payload = &left["payload"];
    let field = (payload["protocol"].as_str(), payload["field"].as_str());
    let has = match (key, field) {
        ([Some("iifname" | "iif"), None], _) => match &connection.interface {
            Some(interface) => has_text(right, interface)?,
            // Any but this one.
            None => has_text(right, "lo")? != is_equal,
        },
        ([Some("l4proto"), None], _)
        | (_, (Some("ip"), Some("protocol")) | (Some("ip6"), Some("nexthdr"))) => {
            has_text(right, "tcp")?
        }
        ([Some("nfproto"), None], _) => return Some(true),
        ([None, Some("state")], _) => has_text(right, "new")?,
        // As the kernel calls redirected connections.
        ([None, Some("status")], _) => has_text(right, "dnat")?,
        (_, (Some("tcp" | "th"), Some("dport"))) => has_port(right, connection.port)?,
        (_, (Some("udp"), _)) => return Some(false),
        _ => return None,
    };
    Some(has == is_equal)
}

/// The values of one side of a match.
fn values(right: &Value) -> Vec<&Value> {
    match (right["set"].as_array(), right.as_array()) {
        (Some(values), _) | (None, Some(values)) => values.iter().collect(),
        (None, None) => vec![right],
    }
}

fn has_text(right: &Value, text: &str) -> Option<bool> {
    let is_it = |value: &Value| {
        // A named set.
        let value = value.as_str().filter(|value| !value.starts_with('@'))?;
        Some(match value.strip_suffix('*') {
            Some(beginning) => text.starts_with(beginning),
            None => text == value,
        })
    };
    let found: Option<Vec<_>> = values(right).into_iter().map(is_it).collect();
    Some(found?.contains(&true))
}

fn has_port(right: &Value, port: u16) -> Option<bool> {
    let is_it = |value: &Value| match value["range"].as_array().map(Vec::as_slice) {
        Some([first, last]) => Some((first.as_u64()?..=last.as_u64()?).contains(&port.into())),
        _ => Some(value.as_u64()? == u64::from(port)),
    };
    let found: Option<Vec<_>> = values(right).into_iter().map(is_it).collect();
    Some(found?.contains(&true))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn is(left: Value, right: Value) -> Value {
        json!({"match": {"op": "==", "left": left, "right": right}})
    }

    fn iifname(right: Value) -> Value {
        is(json!({"meta": {"key": "iifname"}}), right)
    }

    fn dport(right: Value) -> Value {
        is(
            json!({"payload": {"protocol": "tcp", "field": "dport"}}),
            right,
        )
    }

    fn saddr() -> Value {
        let net = json!({"prefix": {"addr": "10.88.0.0", "len": 16}});
        is(
            json!({"payload": {"protocol": "ip", "field": "saddr"}}),
            net,
        )
    }

    fn state(right: Value) -> Value {
        json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": right}})
    }

    /// Whether an input chain with these rules drops a connection that came in by `lan`.
    fn drops_with(policy: &str, rules: &[Value]) -> bool {
        let mut all = vec![
            json!({"chain": {"name": "input", "hook": "input", "policy": policy}}),
            json!({"rule": {"chain": "of_lan", "expr": [dport(json!({"set": [22, {"range": [15001, 15014]}]})), {"accept": null}]}}),
        ];
        let rules = rules
            .iter()
            .map(|expr| json!({"rule": {"chain": "input", "expr": expr}}));
        all.extend(rules);
        let connection = Redirected {
            interface: Some("lan".to_owned()),
            port: 15001,
        };
        drops(&json!({"nftables": all}), "input", &connection)
    }

    #[test]
    fn rules_are_followed_as_far_as_they_are_understood() {
        let (accept, drop) = (json!({"accept": null}), json!({"drop": null}));
        let of_this = [iifname(json!("lan")), dport(json!(15001))];
        let rule = |parts: &[Value], verdict: &Value| {
            Value::Array([parts, std::slice::from_ref(verdict)].concat())
        };
        for (policy, rules, expected) in [
            ("accept", vec![], false),
            ("drop", vec![], true),
            ("drop", vec![rule(&of_this, &accept)], false),
            ("drop", vec![rule(&[iifname(json!("la*"))], &accept)], false),
            (
                "drop",
                vec![rule(&[iifname(json!({"set": ["lo", "wan"]}))], &accept)],
                true,
            ),
            ("drop", vec![rule(&[dport(json!(15002))], &accept)], true),
            (
                "drop",
                vec![rule(&[state(json!(["established", "related"]))], &accept)],
                true,
            ),
            ("drop", vec![rule(&[saddr()], &accept)], false),
            (
                "drop",
                vec![rule(&[], &json!({"jump": {"target": "of_lan"}}))],
                false,
            ),
            (
                "drop",
                vec![rule(&[], &json!({"jump": {"target": "input"}}))],
                true,
            ),
            // Known to nobody.
            ("drop", vec![rule(&[json!({"xt": null})], &accept)], true),
            ("accept", vec![rule(&of_this, &drop)], true),
            (
                "accept",
                vec![rule(&of_this, &accept), rule(&[], &drop)],
                false,
            ),
            (
                "accept",
                vec![rule(&[], &json!({"reject": {"type": "tcp reset"}}))],
                true,
            ),
            (
                "accept",
                vec![rule(&[], &json!({"return": null})), rule(&[], &drop)],
                false,
            ),
            (
                "accept",
                vec![rule(&[state(json!("invalid"))], &drop)],
                false,
            ),
            // Of an attacker, or of the clients.
            ("accept", vec![rule(&[saddr()], &drop)], false),
            (
                "accept",
                vec![rule(&[saddr(), dport(json!(15001))], &drop)],
                true,
            ),
        ] {
            assert_eq!(drops_with(policy, &rules), expected, "{policy} {rules:?}");
        }
    }

    proptest! {
        #[test]
        fn anything_is_survived(text in any::<String>(), number in any::<u64>()) {
            let values = [json!(text), json!(number), json!([text]), json!({"set": [{"range": [number]}]})];
            for right in values {
                for part in [iifname(right.clone()), dport(right.clone()), json!({"jump": {"target": "input"}}), right] {
                    drops_with("drop", &[json!([part])]);
                    drops_with(&text, &[json!([part])]);
                }
            }
        }
    }
}
