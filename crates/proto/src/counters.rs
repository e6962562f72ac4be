//! What users see is counted where it happens (`docs/architecture.md`, 24), so that simulator
//! and gateway agree.

use serde::{Deserialize, Serialize};

/// A counter: a field of the structs below, which only grows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    /// Its name among the fields.
    pub field: &'static str,
    /// Its meaning, in lines.
    pub help: &'static [&'static str],
    /// Its name in `/metrics`, if it is there.
    pub metric: Option<&'static str>,
}

/// Counters that can be summed and listed.
pub trait Count {
    /// Adds `other` to this.
    fn add(&mut self, other: &Self);

    /// Calls `visit` with each counter and its value. `own` describes this one, if it is one.
    fn each(&self, own: Counter, visit: &mut dyn FnMut(Counter, u64));
}

impl Count for u64 {
    fn add(&mut self, other: &Self) {
        *self += other;
    }

    fn each(&self, own: Counter, visit: &mut dyn FnMut(Counter, u64)) {
        visit(own, *self);
    }
}

/// Defines structs of counters: each field with its meaning, and its name in `/metrics`, if it has one.
macro_rules! counters {
    ($($(#[doc = $about:literal])+ pub struct $name:ident {
        $($(#[doc = $help:literal])+ $(#[serde($serde:ident)])? $field:ident: $type:ty $(= $metric:literal)?,)*
    })*) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[doc = $help])+ $(#[serde($serde)])? pub $field: $type,)*
        }

        impl Count for $name {
            fn add(&mut self, other: &Self) {
                $(self.$field.add(&other.$field);)*
            }

            fn each(&self, _own: Counter, visit: &mut dyn FnMut(Counter, u64)) {
                $(self.$field.each(
                    Counter {
                        field: stringify!($field),
                        help: &[$($help),+],
                        metric: [$($metric,)?].first().copied(),
                    },
                    visit,
                );)*
            }
        }
    )*};
}

counters! {
    /// The counters of a link.
    pub struct LinkCounters {
        /// Data that this end sent.
        sent: DirectionCounters,
        /// Data that this end received.
        received: DirectionCounters,
        /// Events.
        events: EventCounters,
        /// Waits of this end's sending.
        waits: WaitCounters,
    }

    /// One direction of a link.
    pub struct DirectionCounters {
        /// Bytes by layer, counted where the receiver is known to have them, or has them.
        layers: LayerCounters,
        /// Bytes of the lanes' TCP connections, TLS included.
        /// In an engine, the bytes inside of their encryption.
        link_bytes: u64 = "refrain_link_bytes_total",
        /// Predictions, as this end counts them.
        predictions: PredictionCounters,
    }

    /// Bytes of one direction, layer by layer: each layer's saving is the difference between
    /// two neighbours.
    ///
    /// ```text
    /// app_bytes ── predictions ─▶ − confirmed_bytes ── Max-Match ─▶ stream_bytes
    ///     ── zstd ─▶ packed_bytes ── framing ─▶ link_bytes
    /// ```
    pub struct LayerCounters {
        /// Plain bytes of applications.
        app_bytes: u64 = "refrain_app_bytes_total",
        /// Plain bytes that confirmed predictions replaced.
        confirmed_bytes: u64 = "refrain_prediction_saved_bytes_total",
        /// Bytes that tokens replace.
        region_bytes: u64,
        /// Tokens and literals, before zstd.
        stream_bytes: u64,
        /// Tokens and literals, after zstd.
        packed_bytes: u64,
        /// Frames of blocks and of confirmations, headers included.
        block_bytes: u64,
        /// Blocks.
        blocks: u64 = "refrain_blocks_total",
        /// Blocks outside of the cache.
        bypassed_blocks: u64 = "refrain_bypassed_blocks_total",
    }

    /// Predictions on one direction of a flow, or of all flows, as one end counts them.
    pub struct PredictionCounters {
        /// Offers made, or taken.
        offers: u64,
        /// Plain bytes that were predicted.
        offered_bytes: u64 = "refrain_predicted_bytes_total",
        /// Bytes of the offers' frames.
        offer_frame_bytes: u64,
        /// Offers confirmed.
        confirmed: u64,
        /// Plain bytes of them.
        confirmed_bytes: u64,
        /// Plain bytes of right predictions that came too late, at the receiver.
        /// Counted when the offer can no longer be confirmed.
        overtaken_bytes: u64 = "refrain_predictions_overtaken_bytes_total",
        /// Plain bytes of predictions that were not used, at the receiver.
        wasted_bytes: u64 = "refrain_predictions_wasted_bytes_total",
        /// Bytes that the sender hashed for right predictions.
        hashed_true_bytes: u64 = "refrain_predictions_hashed_true_bytes_total",
        /// Bytes that the sender hashed for wrong predictions.
        hashed_false_bytes: u64 = "refrain_predictions_hashed_false_bytes_total",
    }

    /// Data carried both ways, as one end counts it.
    pub struct Carried {
        /// Data that this end sent.
        sent: CarriedBytes,
        /// Data that this end received.
        received: CarriedBytes,
    }

    /// Data carried in one direction.
    pub struct CarriedBytes {
        /// Plain bytes of applications.
        app_bytes: u64,
        /// Bytes of their frames on the link, before encryption.
        link_bytes: u64,
    }

    /// How long the sending of flows waited, in microseconds, summed over flows.
    pub struct WaitCounters {
        /// For readers at the other end.
        reader_us: u64,
        /// For credit of the link's window.
        credit_us: u64,
        /// For the sockets of the lanes.
        link_us: u64,
        /// For this end's processor.
        processor_us: u64,
    }

    /// Events of a link's lanes, flows and predictions.
    pub struct EventCounters {
        /// Lanes that came up and were lost.
        lanes_lost: u64 = "refrain_lanes_lost_total",
        /// Flows that were opened, by either end.
        flows_opened: u64 = "refrain_flows_opened_total",
        /// Flows that ended with a reset.
        flows_reset: u64 = "refrain_flows_reset_total",
        /// Holes that were made in the log of the data that this end sends.
        holes_made: u64 = "refrain_holes_made_total",
        /// Received chunks that the store was too slow to learn.
        unlearnt_chunks: u64 = "refrain_chunks_not_learnt_total",
        /// Wrong confirmations. Each reset its flow.
        misconfirmed: u64 = "refrain_confirmations_refused_total",
        /// How often this end took over to drive a flow that it sends on.
        flows_driven: u64 = "refrain_flows_driven_by_sender_total",
        /// Further lanes that directions of flows took because loss held theirs up.
        #[serde(skip)]
        strands_added: u64,
        /// Dead lanes whose blocks both ends agree about.
        #[serde(skip)]
        lanes_settled: u64,
    }
}

impl LayerCounters {
    pub(crate) fn count_confirmed(&mut self, plain: u64, frame: usize) {
        self.app_bytes += plain;
        self.confirmed_bytes += plain;
        self.block_bytes += frame as u64;
    }

    /// What matching saved, net of its tokens.
    #[must_use]
    pub fn matching_saved_bytes(&self) -> i64 {
        self.app_bytes as i64 - self.confirmed_bytes as i64 - self.stream_bytes as i64
    }

    /// What zstd saved of what matching left.
    #[must_use]
    pub fn second_stage_saved_bytes(&self) -> i64 {
        self.stream_bytes as i64 - self.packed_bytes as i64
    }
}
