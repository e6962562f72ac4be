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
