//! What several links carried together.

use std::collections::BTreeMap;

use refrain_proto::{link::LinkStatus, targets::TargetCounts};
use serde::{Deserialize, Serialize};

use super::{Direction, Peer};
use crate::{keys::PublicKey, wire::WireCounts};

/// What one link or several have counted; it says nothing of caches.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Total {
    /// What this end sent.
    pub sent: Direction,
    /// What this end received.
    pub received: Direction,
    /// By peer, a row with counters alone.
    #[serde(skip)]
    pub by_peer: BTreeMap<String, Peer>,
    /// By target and class.
    #[serde(skip)]
    pub targets: TargetCounts,
}

impl Total {
    /// Of one link, with what its connections carried.
    pub(crate) fn of(peer: &PublicKey, link: &LinkStatus, wire: &WireCounts) -> Total {
        let counted = Peer::counted(link, wire);
        Total {
            sent: counted.sent,
            received: counted.received,
            by_peer: [(peer.to_string(), counted)].into(),
            targets: link.targets.clone(),
        }
    }

    /// Adds what others counted.
    pub(crate) fn add(&mut self, other: &Total) {
        self.sent.add(&other.sent);
        self.received.add(&other.received);
        self.targets.add(&other.targets);
        for (peer, counted) in &other.by_peer {
            self.by_peer.entry(peer.clone()).or_default().add(counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A total each of whose counters differs from all others, and from 0.
    fn with_counters(first: u64) -> Total {
        fn number_all(value: &mut Value, next: &mut u64) {
            match value.as_object_mut() {
                Some(fields) => fields
                    .values_mut()
                    .for_each(|field| number_all(field, next)),
                None => {
                    *value = json!(*next);
                    *next = *next * 3 + 1;
                }
            }
        }
        let mut total = serde_json::to_value(Total::default()).expect("numbers");
        number_all(&mut total, &mut { first });
        serde_json::from_value(total).expect("the same fields")
    }

    #[test]
    fn each_counter_of_a_sum_is_the_sum_of_that_counter() {
        fn assert_sums(sum: &Value, one: &Value, other: &Value) {
            match sum.as_object() {
                Some(fields) => {
                    for (name, field) in fields {
                        assert_sums(field, &one[name], &other[name]);
                    }
                }
                None => assert_eq!(sum.as_u64(), Some(number(one) + number(other))),
            }
        }
        fn number(value: &Value) -> u64 {
            value.as_u64().expect("a counter")
        }
        let (one, other) = (with_counters(1), with_counters(2));
        let mut sum = one.clone();
        sum.add(&other);
        let json = |total: &Total| serde_json::to_value(total).expect("numbers");
        assert_sums(&json(&sum), &json(&one), &json(&other));
    }
}
