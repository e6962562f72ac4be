//! Deadlines: acknowledgements, pings, silence, a full window.

use core::time::Duration;

use super::{Link, WindowWait, lanes::Lane};
use crate::{
    fault::LaneFault,
    frame::{Frame, LaneId},
    limits::{LOSS_REMEMBERED, PATIENCE_TIMES, PING_INTERVAL, PING_INTERVAL_IDLE},
    moment::Moment,
};

/// The round trip that users see: of pings through both programs, TLS and TCP, each of which
/// counts for an eighth of what is known after it.
#[must_use]
pub fn smoothed_round_trip(known: Option<Duration>, latest: Duration) -> Duration {
    known.map_or(latest, |known| (known * 7 + latest) / 8)
}

impl Link {
    /// When [`handle_timeout`](Self::handle_timeout) is to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        let heard_at = self.heard_at();
        let lanes = self.lanes.values().flat_map(|lane| {
            // What was said to be ready to send waits for its transport, not for time.
            let ack_due = lane.ack_due.filter(|_| !lane.transmit_said);
            let ping_due = lane.is_up.then_some(lane.ping_due);
            [ack_due, self.silence_ends(lane, heard_at), ping_due]
                .into_iter()
                .flatten()
        });
        let window = self
            .window_wait
            .filter(|wait| !wait.has_ended)
            .map(|wait| self.window_wait_ends(wait))
            .filter(|_| {
                self.lanes
                    .values()
                    .any(|lane| lane.has_queued_flows() && !lane.transmit_said)
            });
        let wake_ups = self.wake_ups.iter().map(|&(at, _)| at);
        lanes.chain(window).chain(wake_ups).min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.loss_seen_at = self
            .loss_seen_at
            .filter(|&at| now.since(at) < LOSS_REMEMBERED);
        let lanes: Vec<LaneId> = self.lanes.keys().copied().collect();
        for lane in lanes {
            self.lane_timeout(now, lane);
        }
        self.wake_flows(now);
        if let Some(wait) = self.window_wait.filter(|wait| !wait.has_ended)
            && now >= self.window_wait_ends(wait)
        {
            let has_ended = true;
            self.window_wait = Some(WindowWait { has_ended, ..wait });
            self.say_transmit_all();
        }
    }

    /// The answer to a ping: a round trip.
    pub(super) fn pong_came(&mut self, now: Moment, lane: LaneId, nonce: u64) {
        let Some(state) = self.lanes.get_mut(&lane) else {
            return;
        };
        if let Some((_, sent)) = state.ping.take_if(|(expected, _)| *expected == nonce) {
            let round_trip = now.since(sent);
            self.round_trip = Some(smoothed_round_trip(self.round_trip, round_trip));
        }
    }

    fn dead_after(&self) -> Duration {
        self.config
            .dead_after
            .max(4 * self.round_trip.unwrap_or_default())
    }

    /// When anything last came, on any lane.
    pub(super) fn heard_at(&self) -> Moment {
        let heard = self.lanes.values().map(|lane| lane.heard_at);
        heard.max().unwrap_or_default()
    }

    /// When the lane is dead unless something comes. While others bring something the peer
    /// lives, and a lane that loses segment after segment is given as long as its connection
    /// would give it. An idle lane may have been silent for long before it was pinged, so the
    /// answer has its own time.
    fn silence_ends(&self, lane: &Lane, any_heard_at: Moment) -> Option<Moment> {
        let dead_after = self.dead_after();
        let alone = lane.heard_at + PATIENCE_TIMES * dead_after;
        let unheard = alone.min(any_heard_at + dead_after);
        match lane.ping {
            Some((_, sent)) => Some(unheard.max(sent + dead_after * 3 / 4)),
            None => (!lane.is_up).then_some(unheard),
        }
    }

    fn lane_timeout(&mut self, now: Moment, lane: LaneId) {
        let interval = if self.flows.is_empty() {
            PING_INTERVAL_IDLE
        } else {
            PING_INTERVAL
        };
        let Some(state) = self.lanes.get(&lane) else {
            return;
        };
        let silence_ends = self.silence_ends(state, self.heard_at());
        if silence_ends.is_some_and(|ends| ends <= now) {
            self.lane_down(lane, LaneFault::Silent);
            return;
        }
        let Some(state) = self.lanes.get_mut(&lane) else {
            return;
        };
        if state.ack_due.is_some_and(|due| due <= now) {
            self.say_transmit(lane);
        }
        let Some(state) = self.lanes.get_mut(&lane).filter(|state| state.is_up) else {
            return;
        };
        if state.ping_due <= now && state.is_spare {
            self.finish_if_spare(lane);
        }
        let Some(state) = self.lanes.get_mut(&lane) else {
            return;
        };
        if state.ping_due <= now {
            state.ping_due = now + interval;
            if state.ping.is_none() {
                let nonce = now.0.as_micros() as u64;
                state.ping = Some((nonce, now));
                self.send_control(
                    lane,
                    &Frame::Ping {
                        nonce,
                        answer_bytes: 0,
                        padding: &[],
                    },
                );
            }
        }
    }
}
