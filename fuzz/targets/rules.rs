//! A rule as a user writes it, and a flow it is asked about: what parses writes itself as a rule
//! that says the same. So does a rule of interception.
//!
//! Input: the rule, the host that a client asked for and the resolved address, a line each.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::intercept::rule::InterceptRule;
use refrain_gateway::rules::{AllowRules, ExcludeRules, Rule};

fuzz_target!(|text: &str| {
    if let Ok(rule) = text.parse::<InterceptRule>() {
        assert_eq!(rule.to_string().parse().as_ref(), Ok(&rule));
    }
    let mut lines = text.split('\n');
    let Some(Ok(rule)) = lines.next().map(str::parse::<Rule>) else {
        return;
    };
    assert_eq!(rule.to_string().parse().as_ref(), Ok(&rule));

    let allow = AllowRules::new(vec![rule.clone()]);
    assert!(!allow.describe().is_empty());
    let (Some(requested_host), Some(Ok(resolved))) = (lines.next(), lines.next().map(str::parse))
    else {
        return;
    };
    let allowed = allow.allows(requested_host, resolved);
    let excluded = ExcludeRules::new(vec![rule]).excludes(
        requested_host,
        Some(resolved.ip()),
        resolved.port(),
    );
    assert_eq!(allowed, excluded);
});
