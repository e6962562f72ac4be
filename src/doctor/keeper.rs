//! The process that keeps the rules.

use super::Finding;
use crate::intercept::lock;

/// A finding if the process that loaded the rules was killed.
pub(super) fn lack(command: &str) -> Option<Finding> {
    const TEXT: &str = "the process that loaded them has ended: if another program removes them, nothing loads them again, \
                        and open connections may wait without an error";
    let is_kept = lock::keeper().is_some();
    (!is_kept).then(|| Finding::problem(TEXT, command))
}

/// The advice to load rules, after the end of the process that keeps others: a second one refuses to.
pub(super) fn before(advice: &str) -> String {
    match lock::keeper() {
        Some(_) => format!("refrain intercept off, then {advice}"),
        None => advice.to_owned(),
    }
}
