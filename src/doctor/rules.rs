//! The firewall's rules of interception that are loaded, and those of the file.

use refrain_gateway::config::Config;

use super::{Finding, context::Context};
use crate::{
    intercept::{Gateway, Loaded, control_groups::ControlGroups},
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
        Ok(None) => return vec![none_loaded(context, !rules.is_empty())],
        Err(error) if rules.is_empty() => return vec![Finding::skipped(error)],
        Err(error) => {
            return vec![Finding::problem(
                error,
                "fix this, then `refrain intercept on`",
            )];
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
    if let Some(config) = context
        .config()
        .filter(|config| !config.intercept.is_empty())
    {
        findings.extend(differences(config, &loaded));
    }
    findings
}

fn none_loaded(context: &Context, is_configured: bool) -> Finding {
    let advice = format!(
        "refrain intercept on --config {}, or `systemctl enable --now refrain-intercept`",
        context.file_in_command()
    );
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

/// Rules of the file that are not loaded, and others that are.
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
    let mut has: Vec<_> = loaded.rules.iter().map(|rule| rule.rule.as_str()).collect();
    let mut findings = Vec::new();
    for rule in config.intercept.iter().map(ToString::to_string) {
        match has.iter().position(|other| is_same(&rule, other)) {
            Some(at) => drop(has.remove(at)),
            // Those of control groups that do not exist are not to be loaded.
            None if loadable.iter().any(|other| is_same(&rule, other)) => {
                findings.push(Finding::problem(
                    format!("a rule of the file is not loaded: {rule}"),
                    "load the rules again: `refrain intercept on`, or `systemctl reload refrain-intercept`",
                ));
            }
            None => {}
        }
    }
    let others = has.into_iter().map(|rule| {
        Finding::note(format!("a loaded rule is not in the file: {rule}"))
            .advise("unless --rule gave it, load the rules again")
    });
    findings.extend(others);
    findings
}

/// Whether a rule is the one of a comment, which has only the beginning of a long one.
fn is_same(rule: &str, comment: &str) -> bool {
    match comment.strip_suffix("...") {
        Some(beginning) => rule.starts_with(beginning),
        None => rule == comment,
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
    use refrain_gateway::intercept::rule::InterceptRule;

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
