//! What was carried to and from which target, and of which class.
//!
//! A table of bounded length: where a target has no row and none is left, the one with the fewest
//! bytes goes into the sum of the others. So what carries most keeps its rows, and the sums are whole.

use std::collections::BTreeMap;

pub use crate::counters::{Carried, CarriedBytes};
use crate::{
    counters::Count,
    limits::TARGETS_MAX,
    traffic::{Exclusion, TrafficClass},
};

/// The place that a target names, without the words that may follow it. Those are for the end that connects. Flows to
/// one place share a lane, and are expected to have the same data.
#[must_use]
pub fn place(target: &str) -> &str {
    target.split(' ').next().unwrap_or_default()
}

/// What was carried, by target and class.
#[derive(Clone, Debug, Default)]
pub struct TargetCounts {
    rows: BTreeMap<RowId, Row>,
    by_target: BTreeMap<String, RowId>,
    next: u64,
    /// What has no row.
    others: Classes,
}

/// Number of a row, never used twice in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowId(u64);

#[derive(Clone, Debug)]
struct Row {
    target: String,
    classes: Classes,
}

/// Of one target, or of several: a place for each of [`TrafficClass::COUNTED`].
type Classes = [Carried; TrafficClass::COUNTED.len()];

impl TargetCounts {
    /// The row of `target`, a new one if there is none.
    pub(crate) fn row(&mut self, target: &str) -> RowId {
        let target = place(target);
        if let Some(&row) = self.by_target.get(target) {
            return row;
        }
        if self.rows.len() >= TARGETS_MAX {
            self.evict_smallest();
        }
        let id = RowId(self.next);
        self.next += 1;
        self.by_target.insert(target.to_owned(), id);
        let target = target.to_owned();
        let classes = Classes::default();
        self.rows.insert(id, Row { target, classes });
        id
    }

    /// Counts for `row`, or for the others if it has gone, or there never was one.
    pub(crate) fn count(&mut self, row: Option<RowId>, class: TrafficClass, carried: &Carried) {
        let row = row.and_then(|row| self.rows.get_mut(&row));
        let classes = row.map_or(&mut self.others, |row| &mut row.classes);
        classes[index(class)].add(carried);
    }

    /// Each target and class of which something was carried; the target is `None` for those that
    /// have no row of their own.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, TrafficClass, Carried)> {
        let rows = self.rows.values();
        let rows = rows.map(|row| (Some(row.target.as_str()), &row.classes));
        let all = rows.chain([(None, &self.others)]);
        all.flat_map(|(target, classes)| {
            let classes = TrafficClass::COUNTED.into_iter().zip(classes);
            let counted = classes.filter(|(_, carried)| **carried != Carried::default());
            counted.map(move |(class, carried)| (target, class, *carried))
        })
    }

    /// Adds what another link counted.
    pub fn add(&mut self, other: &Self) {
        for (target, class, carried) in other.iter() {
            let row = target.map(|target| self.row(target));
            self.count(row, class, &carried);
        }
    }

    fn evict_smallest(&mut self) {
        let bytes = |row: &Row| -> u64 { row.classes.iter().map(Carried::bytes).sum() };
        let smallest = self.rows.iter().min_by_key(|(_, row)| bytes(row));
        let Some((&id, _)) = smallest else {
            return;
        };
        if let Some(row) = self.rows.remove(&id) {
            self.by_target.remove(&row.target);
            for (sum, carried) in self.others.iter_mut().zip(&row.classes) {
                sum.add(carried);
            }
        }
    }
}

impl Carried {
    fn bytes(&self) -> u64 {
        self.sent.app_bytes + self.received.app_bytes
    }
}

/// Where a class is counted. What was confirmed before anything was sent counts as ordinary.
fn index(class: TrafficClass) -> usize {
    match class {
        TrafficClass::Unknown | TrafficClass::Ordinary => 0,
        TrafficClass::FullEntropy => 1,
        TrafficClass::Excluded(Exclusion::Rule) => 2,
        TrafficClass::Excluded(Exclusion::Tls) => 3,
        TrafficClass::Excluded(Exclusion::Ssh) => 4,
        TrafficClass::Excluded(Exclusion::Smb) => 5,
        TrafficClass::Excluded(Exclusion::Gssapi) => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(bytes: u64) -> Carried {
        let sent = CarriedBytes {
            app_bytes: bytes,
            link_bytes: bytes / 2,
        };
        Carried {
            sent,
            ..Carried::default()
        }
    }

    fn sum(table: &TargetCounts) -> u64 {
        table
            .iter()
            .map(|(.., carried)| carried.sent.app_bytes)
            .sum()
    }

    fn of(table: &TargetCounts, wanted: Option<&str>) -> u64 {
        let rows = table.iter().filter(|(target, ..)| *target == wanted);
        rows.map(|(.., carried)| carried.sent.app_bytes).sum()
    }

    #[test]
    fn each_class_has_a_place() {
        for (place, class) in TrafficClass::COUNTED.into_iter().enumerate() {
            assert_eq!(index(class), place);
        }
    }

    #[test]
    fn a_table_is_bounded_and_keeps_what_carries_most_and_the_sum() {
        let mut table = TargetCounts::default();
        let large = table.row("large:1");
        table.count(Some(large), TrafficClass::Ordinary, &sent(1000));
        let first = table.row("small-0:1");
        for number in 0..3 * TARGETS_MAX {
            let row = table.row(&format!("small-{number}:1"));
            table.count(Some(row), TrafficClass::FullEntropy, &sent(1));
            assert!(table.rows.len() <= TARGETS_MAX);
            assert_eq!(table.rows.len(), table.by_target.len());
        }
        assert_eq!(sum(&table), 1000 + 3 * TARGETS_MAX as u64);
        assert_eq!(of(&table, Some("large:1")), 1000);
        // What still counts for a row that has gone counts for the others.
        let before = of(&table, None);
        table.count(Some(first), TrafficClass::Ordinary, &sent(7));
        assert_eq!(of(&table, None), before + 7);
        assert_eq!(of(&table, Some("small-0:1")), 0);
    }

    #[test]
    fn words_after_a_place_make_no_row_of_their_own() {
        let mut table = TargetCounts::default();
        let row = table.row("a:1");
        assert_eq!(table.row("a:1 from 10.0.0.1:2"), row);
        table.count(Some(row), TrafficClass::Ordinary, &sent(5));
        assert_eq!(of(&table, Some("a:1")), 5);
    }

    #[test]
    fn tables_add_up_row_by_row() {
        let mut one = TargetCounts::default();
        let mut other = TargetCounts::default();
        for (table, bytes) in [(&mut one, 10), (&mut other, 200)] {
            let row = table.row("a:1");
            let tls = TrafficClass::Excluded(Exclusion::Tls);
            table.count(Some(row), tls, &sent(bytes));
            table.count(None, TrafficClass::Ordinary, &sent(1));
        }
        one.add(&other);
        let rows: Vec<_> = one.iter().collect();
        let tls = TrafficClass::Excluded(Exclusion::Tls);
        assert_eq!(rows[0], (Some("a:1"), tls, sent(210)));
        assert_eq!((rows.len(), of(&one, None)), (2, 2));
    }
}
