//! What users see of a link.

use std::time::Duration;

use refrain_codec::{MissedRepeats, geometry::CacheGeometry};

use super::{Caches, Link};
use crate::{
    counters::{LayerCounters, LinkCounters, PredictionCounters},
    effort::{Effort, EffortReason},
    flow::Flow,
    format::Compressed,
    frame::{FlowId, LaneId},
    limited::LimitedBy,
    moment::Moment,
    predictions::link_history::LinkHistory,
    targets::TargetCounts,
    traffic::TrafficClass,
};

/// A link as it stands.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// Lanes alive.
    pub lanes: Vec<LaneStatus>,
    /// Open flows.
    pub flows: Vec<FlowStatus>,
    /// What this end sent.
    pub sent: DirectionStatus,
    /// What this end received.
    pub received: DirectionStatus,
    /// What it counted, its open flows included.
    pub counters: LinkCounters,
    /// What was carried, by target and class. What crossed it is as in `sent` and `received`.
    pub targets: TargetCounts,
    /// Present effort of this end's sender.
    pub effort: Effort,
    /// Why it is that.
    pub effort_reason: EffortReason,
    /// Smoothed round trip, once measured.
    pub round_trip: Option<Duration>,
    /// Holes that this end's log has now.
    pub holes: usize,
    /// Plain bytes that this end's receivers hold for what they offered.
    pub offered_bytes_held: u64,
    /// Offers that this end's senders keep.
    pub offers_kept: usize,
    /// Memory of caches, tables and second stage, in bytes.
    pub allocated_bytes: usize,
}

/// One direction of a link as it stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectionStatus {
    /// Size of the cache, 0 until it was agreed.
    pub cache_bytes: u64,
    /// How much of it is filled.
    pub cache_filled_bytes: u64,
    /// Log bytes that are not known to be applied; senders only.
    pub outstanding_bytes: u64,
}

/// A lane as it stands.
#[derive(Clone, Copy, Debug)]
pub struct LaneStatus {
    /// Its number.
    pub id: LaneId,
    /// Whether it carries flows.
    pub is_up: bool,
    /// Whether loss held it up within the last seconds.
    pub is_held_up: bool,
    /// Bytes sent, inside of its encryption.
    pub sent_bytes: u64,
    /// Bytes received, inside of its encryption.
    pub received_bytes: u64,
}

/// The treatment of flows by their link now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSetting {
    /// Size of the cache of the direction that this end sends, 0 without one.
    pub sent_cache_bytes: u64,
    /// The same for the direction that it receives.
    pub received_cache_bytes: u64,
    /// Whether the other end uses predictions of this one; `None` if this one has no history.
    pub offers_heeded: Option<bool>,
    /// Present effort of this end's sender.
    pub effort: Effort,
    /// Why it is that.
    pub effort_reason: EffortReason,
}

/// A flow as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatus {
    /// Its number.
    pub id: FlowId,
    /// Its link.
    pub link: LinkSetting,
    /// The lane that it sends on next.
    pub lane: LaneId,
    /// `host:port`.
    pub target: String,
    /// Whether this end opened it.
    pub opened_here: bool,
    /// How long it is open.
    pub age: Duration,
    /// How its blocks are treated on the way out.
    pub class: TrafficClass,
    /// What this end sent.
    pub sent: LayerCounters,
    /// What this end received.
    pub received: LayerCounters,
    /// How its blocks were treated on the way in.
    pub received_class: TrafficClass,
    /// The part of it that does not compress.
    pub received_compressed: Compressed,
    /// The part of the bytes that this end sent that does not compress.
    pub sent_compressed: Compressed,
    /// Repeats that this end would have found in a larger cache.
    pub missed: MissedRepeats,
    /// What this end's sending waited for.
    pub limited_by: LimitedBy,
    /// What was predicted of what this end sends, if offers were made.
    pub send_predictions: Option<FlowPredictions>,
    /// What this end predicts of what it receives, if it predicts.
    pub receive_predictions: Option<FlowPredictions>,
}

/// Predictions on one direction of a flow, as one of its ends sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPredictions {
    /// What was offered, confirmed and wasted.
    pub counters: PredictionCounters,
    /// How often chains break, 0 to 255.
    pub dispersion: u8,
    /// Whether the sender drives the flow, since they break so often.
    pub by_sender: bool,
}

impl Link {
    /// Whether the other end heeds what this one predicts, once a lane is up; `None` if this one has
    /// no history.
    #[must_use]
    pub fn offers_heeded(&self) -> Option<bool> {
        self.history.as_ref().map(|history| history.key().is_some())
    }

    /// What was counted: by flows that are over, and by those that are open.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        let mut counters = self.counters;
        self.flows
            .values()
            .for_each(|flow| flow.count(&mut counters));
        counters.sent.layers = self.caches.sender.delivered();
        counters.events.unlearnt_chunks =
            self.history.as_ref().map_or(0, |history| history.unlearnt);
        counters
    }

    /// What was carried, by target and class.
    #[must_use]
    pub fn targets(&self) -> &TargetCounts {
        &self.targets
    }

    /// The link as it stands.
    #[must_use]
    pub fn status(&self, now: Moment) -> LinkStatus {
        let (mut sent, mut received) = <(DirectionStatus, DirectionStatus)>::default();
        let Caches {
            sender, receiver, ..
        } = &self.caches;
        let setting = self.setting();
        sent.cache_bytes = setting.sent_cache_bytes;
        sent.cache_filled_bytes = sender.cache_filled_bytes().min(sent.cache_bytes);
        sent.outstanding_bytes = sender.books().outstanding_bytes();
        received.cache_bytes = setting.received_cache_bytes;
        received.cache_filled_bytes = receiver.cache_filled_bytes().min(received.cache_bytes);
        let holes = sender.books().holes();
        let allocated_bytes = sender.allocated_bytes() + receiver.allocated_bytes();
        LinkStatus {
            lanes: self
                .lanes
                .iter()
                .map(|(&id, lane)| LaneStatus {
                    id,
                    is_up: lane.is_up,
                    is_held_up: lane.is_held_up(now),
                    sent_bytes: lane.sent_bytes,
                    received_bytes: lane.received_bytes,
                })
                .collect(),
            flows: self
                .flows
                .iter()
                .map(|(&id, flow)| self.flow_status(now, id, flow))
                .collect(),
            sent,
            received,
            counters: self.counters(),
            targets: self.targets.clone(),
            effort: setting.effort,
            effort_reason: setting.effort_reason,
            round_trip: self.round_trip,
            holes,
            offered_bytes_held: self.history.as_ref().map_or(0, LinkHistory::held_bytes),
            offers_kept: self.offers_kept,
            allocated_bytes,
        }
    }

    fn setting(&self) -> LinkSetting {
        let bytes =
            |cache: Option<CacheGeometry>| cache.map_or(0, |cache| cache.cache_bytes() as u64);
        LinkSetting {
            sent_cache_bytes: bytes(self.caches.send_geometry),
            received_cache_bytes: bytes(self.caches.receive_geometry),
            offers_heeded: self.offers_heeded(),
            effort: self.effort.effort(),
            effort_reason: self.effort.reason(),
        }
    }

    /// A flow as it stands. It need not be in the table any more.
    pub(super) fn flow_status(&self, now: Moment, id: FlowId, flow: &Flow) -> FlowStatus {
        let (send, receive) = (&flow.send, &flow.receive);
        FlowStatus {
            id,
            link: self.setting(),
            lane: send.lane,
            target: flow.target.clone(),
            opened_here: flow.opened_here,
            age: now.since(flow.opened_at),
            class: send.class,
            sent: send.counters,
            received: receive.counters,
            received_class: receive.class,
            received_compressed: receive.compressed,
            sent_compressed: send.compressed,
            missed: send.missed,
            limited_by: send.limits.counted(now, self.smoothed_round_trip()),
            send_predictions: send
                .expectations
                .as_ref()
                .map(|expectations| FlowPredictions {
                    counters: expectations.counters,
                    dispersion: send.dispersion,
                    by_sender: send.by_sender,
                }),
            receive_predictions: receive
                .predictions
                .as_ref()
                .map(|predictions| FlowPredictions {
                    counters: predictions.counters,
                    dispersion: predictions.dispersion(),
                    by_sender: predictions.is_by_sender(),
                }),
        }
    }
}
