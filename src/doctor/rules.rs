//! The firewall's rules of interception that are loaded, and those of the file.

use refrain_gateway::{
    config::Config,
    intercept::{rule::InterceptRule, table::script},
};

use super::{Finding, answers, context::Context, keeper};
use crate::{
    intercept::{Gateway, Loaded, control_groups::ControlGroups, lock},
    table::count,
};

/// The rules that are loaded, and those of the file.
pub(super) fn rules(context: &Context) -> Vec<Finding> {
    let rules = context.config().map_or(&[][..], |config| &config.intercept);
    if !context.is_root {
        return vec![
            Finding::skipped("only root can read the firewall").advise("run this as root"),
        ];
    }
    let table = match context.table() {
        Ok(Some(table)) => table,
        // Of that, `answers` reports the rules.
        Ok(None) if answers::are_needed(context) => return Vec::new(),
        Ok(None) => return vec![none_loaded(context, !rules.is_empty())],
        Err(error) if rules.is_empty() => return vec![Finding::skipped(error)],
        Err(error) => {
            return vec![Finding::problem(error, "fix this, then load the rules")];
        }
    };
    let loaded = Loaded::read(table);
    let shown = loaded.rules.iter().map(|rule| {
        Finding::ok(format!(
            "rule {}: {}, {}",
            rule.number,
            count(rule.connections, "connection", "connections"),
            rule.rule
        ))
    });
    let mut findings: Vec<_> = shown.collect();
    if loaded.gate.is_some() {
        findings.extend(keeper::lack(&command_to_load(context)));
    }
    if let Some(config) = context
        .config()
        .filter(|config| !config.intercept.is_empty())
    {
        findings.extend(differences(config, &loaded));
    }
    findings
}

fn command_to_load(context: &Context) -> String {
    format!(
        "refrain intercept on --config {}, or `systemctl enable --now refrain-intercept`",
        context.file_in_command()
    )
}

fn none_loaded(context: &Context, is_configured: bool) -> Finding {
    // Of another gateway, or one that has not loaded them again yet.
    let advice = keeper::before(&command_to_load(context));
    match (is_configured, context.intercepting().next()) {
        (true, _) => Finding::problem(
            "the file has rules, and none are loaded: connections go direct",
            advice,
        ),
        (false, Some(_)) => {
            Finding::note("a near end takes redirected connections, and no rules are loaded")
                .advise(advice)
        }
        (false, None) => Finding::ok("none are loaded"),
    }
}

/// Rules of the file that are not loaded, and others that are. Names of servers are the near end's part: a change of
/// them needs no other rules.
fn differences(config: &Config, loaded: &Loaded) -> Vec<Finding> {
    let Ok(groups) = ControlGroups::of(&config.intercept) else {
        return Vec::new();
    };
    let gateway = Gateway {
        port: 1,
        user: 1,
        gets_dns: false,
    };
    let script = groups.script(&config.intercept, &gateway);
    let loadable: Vec<_> = script.lines().filter_map(rule_in).collect();
    let of_file: Vec<_> = config.intercept.iter().map(ToString::to_string).collect();
    let loaded: Vec<_> = loaded.rules.iter().map(|rule| rule.rule.as_str()).collect();
    let missing = of_file.iter().filter(|rule| {
        // Those of control groups that do not exist are not to be loaded.
        let is_loadable = loadable.iter().any(|other| is_same(rule, other));
        is_loadable && !loaded.iter().any(|other| is_same_to_kernel(rule, other))
    });
    let missing = missing.map(|rule| {
        let text = format!("a rule of the file is not loaded: {rule}");
        Finding::problem(text, advice_to_load_again())
    });
    let others = loaded.iter().filter(|other| {
        let mut of_file = of_file.iter();
        !of_file.any(|rule| is_same_to_kernel(rule, other))
    });
    let others = others.map(|rule| {
        Finding::note(format!("a loaded rule is not in the file: {rule}"))
            .advise(format!("unless --rule gave it, {}", advice_to_load_again()))
    });
    missing.chain(others).collect()
}

fn advice_to_load_again() -> String {
    let signal =
        lock::keeper().map_or_else(String::new, |process| format!(", or `kill -HUP {process}`"));
    format!("load the rules again: `systemctl reload refrain-intercept`{signal}")
}

/// Whether a rule is the one of a comment, which has only the beginning of a long one.
fn is_same(rule: &str, comment: &str) -> bool {
    match comment.strip_suffix("...") {
        Some(beginning) => rule.starts_with(beginning),
        None => rule == comment,
    }
}

/// The same for the kernel, which knows no names of servers and does nothing else by them.
fn is_same_to_kernel(rule: &str, comment: &str) -> bool {
    match (rule.parse(), comment.parse()) {
        (Ok(rule), Ok(other)) => in_kernel(rule) == in_kernel(other),
        // A long one.
        _ => is_same(&without_names(rule), &without_names(comment)),
    }
}

/// The lines of the script for this rule.
fn in_kernel(rule: InterceptRule) -> Vec<String> {
    let gateway = Gateway {
        port: 1,
        user: 1,
        gets_dns: false,
    };
    let script = script(&[rule], &gateway, &|path| Some((1, path.to_owned())));
    let lines = script
        .lines()
        .map(|line| match line.split_once(" comment \"rule ") {
            Some((line, _)) => line.to_owned(),
            None => line.to_owned(),
        });
    lines.collect()
}

/// The text of a rule without its names. Their word may be cut.
fn without_names(rule: &str) -> String {
    let words: Vec<_> = rule.split(' ').collect();
    let Some(at) = words.iter().position(|word| word.starts_with("name=")) else {
        return rule.to_owned();
    };
    let others = [&words[..at], &words[at + 1..]].concat().join(" ");
    match words[at].ends_with("...") {
        true => others + "...",
        false => others,
    }
}

/// The text of a rule in a line of the script.
fn rule_in(line: &str) -> Option<&str> {
    let (_, comment) = line.split_once(" comment \"rule ")?;
    let (_, rule) = comment.strip_suffix('"')?.split_once(": ")?;
    Some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_of(texts: &[&str]) -> Vec<InterceptRule> {
        texts
            .iter()
            .map(|text| text.parse().expect("a rule"))
            .collect()
    }

    #[test]
    fn a_long_rule_is_known_by_its_beginning() {
        assert!(is_same("port=80", "port=80") && is_same("port=80,81", "port=80,..."));
        assert!(!is_same("port=80", "port=8") && !is_same("port=80", "port=81..."));
    }

    #[test]
    fn a_change_of_names_changes_nothing_in_the_kernel() {
        let cut = |rule: &str, bytes: usize| format!("{}...", &rule[..bytes]);
        let one = "port=443 dst=10.0.0.0/8 name=a.example action=direct";
        let of_other_name = "port=443 dst=10.0.0.0/8 name=b.example,*.c.example action=pass";
        assert!(is_same_to_kernel(one, of_other_name));
        for bytes in [8, 20, one.len() - 20, one.len() - 3] {
            assert!(is_same_to_kernel(one, &cut(one, bytes)), "{bytes}");
        }
        let names = cut(of_other_name, of_other_name.len() - 20);
        assert!(is_same_to_kernel(one, &names), "{names}");
        for other in [
            "port=444 dst=10.0.0.0/8 name=a.example action=direct",
            "port=443 dst=10.0.0.0/8 action=direct",
            "port=443 dst=10.0.0.0/8",
            "port=443 name=a.example action=direct",
            "port=443 dst=10.0.0.0/8 name=a.example on_failure=reset",
            "port=443 dst=10.0.0.0/8 cgroup=a.slice name=a.example",
            "port=443 dst=10.1...",
            "port=443 dst=10.1.0.0/16 name=a.exam...",
        ] {
            assert!(!is_same_to_kernel(one, other), "{other}");
        }
    }

    #[test]
    fn rules_are_found_in_the_script_that_loads_them() {
        let rules = rules_of(&["port=80 dst=10.0.0.0/8,fd00::/8", "port=443 action=reject"]);
        let groups = ControlGroups::of(&rules).expect("none");
        let script = groups.script(
            &rules,
            &Gateway {
                port: 1,
                user: 1,
                gets_dns: false,
            },
        );
        let mut found: Vec<_> = script.lines().filter_map(rule_in).collect();
        found.sort();
        found.dedup();
        let written: Vec<_> = rules.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(written.iter().all(|rule| found.contains(&rule.as_str())));
        for line in [
            "",
            " comment \"rule",
            " comment \"rule 1\"",
            "comment \"rule 1: a",
        ] {
            assert_eq!(rule_in(line), None);
        }
    }
}
