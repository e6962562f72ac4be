//! What a link counts: counters never fall, and both ends of a link agree on what crossed it.

use refrain_proto::{
    TrafficClass,
    counters::{LayerCounters, PredictionCounters},
    link::{DirectionStatus, LinkStatus},
    targets::Carried,
};

/// A counter's value, with its name.
type Counter = (String, u64);

/// All counters of a link at one end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Vec<Counter>);

impl Counters {
    /// Each field is named here: one that is new does not compile until it is a counter or not.
    pub(crate) fn of(status: &LinkStatus) -> Self {
        let LinkStatus {
            sent,
            received,
            offers_taken,
            offers_made,
            flows_opened,
            flows_reset,
            strands_added,
            holes_made,
            lanes_lost,
            lanes_settled,
            unlearnt_chunks,
            misconfirmed,
            flows_driven,
            targets,
            // What is now, and may fall.
            lanes: _,
            flows: _,
            offers_heeded: _,
            effort: _,
            effort_reason: _,
            round_trip: _,
            holes: _,
            offered_bytes_held: _,
            offers_kept: _,
            allocated_bytes: _,
        } = status;
        let mut counters = Self::default();
        counters.add_direction("sent", sent);
        counters.add_direction("received", received);
        counters.add_predictions("offers_taken", offers_taken);
        counters.add_predictions("offers_made", offers_made);
        for (name, value) in [
            ("flows_opened", flows_opened),
            ("flows_reset", flows_reset),
            ("strands_added", strands_added),
            ("holes_made", holes_made),
            ("lanes_lost", lanes_lost),
            ("lanes_settled", lanes_settled),
            ("unlearnt_chunks", unlearnt_chunks),
            ("misconfirmed", misconfirmed),
            ("flows_driven", flows_driven),
        ] {
            counters.add("link", name, *value);
        }
        for class in TrafficClass::COUNTED {
            let mut sum = Carried::default();
            let of_class = targets.iter().filter(|(_, of, _)| *of == class);
            of_class.for_each(|(.., carried)| sum.add(&carried));
            let of = format!("{class:?}");
            counters.add(&of, "sent_bytes", sum.sent_bytes);
            counters.add(&of, "sent_link_bytes", sum.sent_link_bytes);
            counters.add(&of, "received_bytes", sum.received_bytes);
            counters.add(&of, "received_link_bytes", sum.received_link_bytes);
        }
        counters
    }

    /// The first counter that is lower than it was `before`, with both values.
    pub(crate) fn fallen_since(&self, before: &Self) -> Option<(String, u64, u64)> {
        let mut pairs = before.0.iter().zip(&self.0);
        let fallen = pairs.find(|((_, before), (_, now))| now < before);
        fallen.map(|((name, before), (_, now))| (name.clone(), *before, *now))
    }

    fn add_direction(&mut self, of: &str, direction: &DirectionStatus) {
        let DirectionStatus {
            layers,
            link_bytes,
            cache_bytes: _,
            cache_filled_bytes: _,
            outstanding_bytes: _,
        } = direction;
        self.add(of, "link_bytes", *link_bytes);
        for (name, value) in layer_counters(layers) {
            self.add(of, name, value);
        }
    }

    fn add_predictions(&mut self, of: &str, counters: &PredictionCounters) {
        let PredictionCounters {
            offers,
            offered_bytes,
            offer_frame_bytes,
            confirmed,
            confirmed_bytes,
            overtaken_bytes,
            wasted_bytes,
            hashed_true_bytes,
            hashed_false_bytes,
        } = *counters;
        for (name, value) in [
            ("offers", offers),
            ("offered_bytes", offered_bytes),
            ("offer_frame_bytes", offer_frame_bytes),
            ("confirmed", confirmed),
            ("confirmed_bytes", confirmed_bytes),
            ("overtaken_bytes", overtaken_bytes),
            ("wasted_bytes", wasted_bytes),
            ("hashed_true_bytes", hashed_true_bytes),
            ("hashed_false_bytes", hashed_false_bytes),
        ] {
            self.add(of, name, value);
        }
    }

    fn add(&mut self, of: &str, name: &str, value: u64) {
        self.0.push((format!("{of}.{name}"), value));
    }
}

/// Whether what was carried by target and class is what was carried.
pub(crate) fn adds_up(status: &LinkStatus) -> bool {
    let mut sum = Carried::default();
    status
        .targets
        .iter()
        .for_each(|(.., carried)| sum.add(&carried));
    let (sent, received) = (&status.sent.layers, &status.received.layers);
    sum == Carried {
        sent_bytes: sent.app_bytes,
        sent_link_bytes: sent.block_bytes,
        received_bytes: received.app_bytes,
        received_link_bytes: received.block_bytes,
    }
}

/// The first counter of what crossed the link on which its ends disagree, with what its sender
/// and its receiver counted.
pub(crate) fn disagreement(
    sent: &LayerCounters,
    received: &LayerCounters,
) -> Option<(&'static str, u64, u64)> {
    let pairs = layer_counters(sent)
        .into_iter()
        .zip(layer_counters(received));
    let mut pairs = pairs.map(|((name, sent), (_, received))| (name, sent, received));
    pairs.find(|(_, sent, received)| sent != received)
}

fn layer_counters(layers: &LayerCounters) -> [(&'static str, u64); 8] {
    let LayerCounters {
        app_bytes,
        confirmed_bytes,
        region_bytes,
        stream_bytes,
        packed_bytes,
        block_bytes,
        blocks,
        bypassed_blocks,
    } = *layers;
    [
        ("app_bytes", app_bytes),
        ("confirmed_bytes", confirmed_bytes),
        ("region_bytes", region_bytes),
        ("stream_bytes", stream_bytes),
        ("packed_bytes", packed_bytes),
        ("block_bytes", block_bytes),
        ("blocks", blocks),
        ("bypassed_blocks", bypassed_blocks),
    ]
}
