//! What a link counts: counters never fall, and both ends of a link agree on what crossed it.

use refrain_proto::{
    TrafficClass,
    counters::{Count, Counter, DirectionCounters, LayerCounters, LinkCounters},
    link::LinkStatus,
    targets::{Carried, CarriedBytes},
};

/// All counters of a link at one end, with their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Vec<(String, u64)>);

impl Counters {
    /// Of each counter that there is: a new one is in it by itself.
    pub(crate) fn of(status: &LinkStatus) -> Self {
        let mut counters = Self::default();
        let LinkCounters {
            sent,
            received,
            events,
            waits,
        } = &status.counters;
        counters.add("sent", sent);
        counters.add("received", received);
        counters.add("link", events);
        counters.add("waits", waits);
        for class in TrafficClass::COUNTED {
            let mut sum = Carried::default();
            let of_class = status.targets.iter().filter(|(_, of, _)| *of == class);
            of_class.for_each(|(.., carried)| sum.add(&carried));
            counters.add(&format!("sent {class:?}"), &sum.sent);
            counters.add(&format!("received {class:?}"), &sum.received);
        }
        counters
    }

    /// The first counter that is lower than it was `before`, with both values.
    pub(crate) fn fallen_since(&self, before: &Self) -> Option<(String, u64, u64)> {
        let mut pairs = before.0.iter().zip(&self.0);
        let fallen = pairs.find(|((_, before), (_, now))| now < before);
        fallen.map(|((name, before), (_, now))| (name.clone(), *before, *now))
    }

    fn add(&mut self, of: &str, counters: &impl Count) {
        counters.each(Counter::default(), &mut |counter, value| {
            self.0.push((format!("{of}.{}", counter.field), value));
        });
    }
}

/// Whether what was carried by target and class is what was carried.
pub(crate) fn adds_up(status: &LinkStatus) -> bool {
    let mut sum = Carried::default();
    status
        .targets
        .iter()
        .for_each(|(.., carried)| sum.add(&carried));
    let of = |counted: &DirectionCounters| CarriedBytes {
        app_bytes: counted.layers.app_bytes,
        link_bytes: counted.layers.block_bytes,
    };
    sum == Carried {
        sent: of(&status.counters.sent),
        received: of(&status.counters.received),
    }
}

/// The first counter of what crossed the link on which its ends disagree, with what its sender
/// and its receiver counted.
pub(crate) fn disagreement(
    sent: &LayerCounters,
    received: &LayerCounters,
) -> Option<(&'static str, u64, u64)> {
    let list = |layers: &LayerCounters| {
        let mut list = Vec::new();
        layers.each(Counter::default(), &mut |counter, value| {
            list.push((counter.field, value))
        });
        list
    };
    let pairs = list(sent).into_iter().zip(list(received));
    let mut pairs = pairs.map(|((name, sent), (_, received))| (name, sent, received));
    pairs.find(|(_, sent, received)| sent != received)
}
