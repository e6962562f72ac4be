//! The rows that ecosystems give.

use serde::{Deserialize, Serialize};

/// A row of the page: a version, the next one, and that again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub name: String,
    pub steps: [Bytes; 3],
    /// How its content was checked.
    pub checked: String,
    pub in_the_way: String,
}

/// What a step moved, in both directions together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Bytes {
    pub app: u64,
    pub link: u64,
    /// Flows that were reset; clients may do so themselves.
    pub resets: u64,
}

/// What a row says but for its figures.
#[derive(Clone, Copy)]
pub(super) struct Title<'a> {
    pub name: &'a str,
    pub checked: &'a str,
    pub in_the_way: &'a str,
}

impl Bytes {
    /// What was added since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            app: self.app - before.app,
            link: self.link - before.link,
            resets: self.resets - before.resets,
        }
    }

    /// What the link was spared; less than nothing if it carried more than applications did.
    pub(super) fn saved_percent(self) -> f64 {
        match self.app {
            0 => 0.0,
            app => 100.0 * (1.0 - self.link as f64 / app as f64),
        }
    }
}
