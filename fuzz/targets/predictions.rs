//! Two ends that predict to each other, and what a hostile one says in between: no panic, bounds
//! hold, and no wrong byte but by a confirmation that was made up.
//!
//! Input: flags (1: aligned, 2: mode `receiver` alone), then steps of two bytes: what happens, and
//! a detail. Where nothing was made up, neither end finds fault with the other, and all bytes
//! arrive in the end.
#![no_main]

use std::{collections::VecDeque, time::Duration};

use libfuzzer_sys::fuzz_target;
use refrain_codec::{
    chunk::{hash::ChunkHasher, stream::ChunkBounds},
    geometry::{CACHE_BYTES_MIN, CacheGeometry},
    marker::PackMask,
};
use refrain_proto::{
    Event, FlowId, LaneId, Link, LinkConfig, Mode, Moment, Role,
    frame::{ConfirmFrame, Frame, Offer, OfferFrame, OfferList},
    hello::Hello,
    limits::{OFFERED_BYTES_LINK, OFFERS_LINK_MAX},
    predictions::history::{
        Found, FoundChunk, HistoryConfig, HistoryPlace, HistoryRequest, Predict, Wanted,
    },
    terms::{Hint, OfferKey, RunDigest, Signature},
};

/// The chunks of either end's history, of which each follows the one before.
const KNOWN: [&[u8]; 4] = [&[1; 100], &[2; 70], b"refrain\n", &[7; 300]];

/// Bytes that a flow takes in each direction: less than any credit.
const WRITTEN_BYTES_MAX: usize = 40 << 10;

/// Ends that say nothing for longer would take the lane for dead.
const SILENCE_MS_MAX: u64 = 2000;

fuzz_target!(|input: &[u8]| {
    let Some((&flags, steps)) = input.split_first() else {
        return;
    };
    let mut pair = Pair::new(flags);
    let (steps, _) = steps.as_chunks::<2>();
    for &[what, detail] in steps {
        if pair.step(what, detail).is_none() {
            return;
        }
        pair.check();
    }
    if !pair.is_hostile {
        pair.settle();
    }
});

/// The near end and the far one, by 0 and 1, on one lane with one flow.
struct Pair {
    links: [Link; 2],
    lane: LaneId,
    flow: FlowId,
    now: Moment,
    elapsed_ms: u64,
    /// What each history was asked.
    asked: [VecDeque<Wanted>; 2],
    /// By the end that wrote, and by the one that read.
    written: [Vec<u8>; 2],
    arrived: [Vec<u8>; 2],
    /// Something was made up, and a confirmation at this end.
    is_hostile: bool,
    is_misled: [bool; 2],
}

impl Pair {
    fn new(flags: u8) -> Self {
        let history = HistoryConfig {
            predict: if flags & 1 != 0 {
                Predict::Aligned
            } else {
                Predict::Window
            },
            mask: PackMask::with_bits(6).expect("6 to 15"),
            bounds: ChunkBounds::new(64, 1024).expect("valid bounds"),
            ..HistoryConfig::default()
        };
        let geometry = CacheGeometry::new(CACHE_BYTES_MIN).expect("a valid size");
        let config = LinkConfig {
            history: Some(history),
            mode: if flags & 2 != 0 {
                Mode::Receiver
            } else {
                Mode::Auto
            },
            ..LinkConfig::with_cache(geometry)
        };
        let mut near = Link::new(Role::Near, 1, config.clone());
        let mut far = Link::new(Role::Far, 2, config);
        let now = Moment::default();
        let lane = near.dial_lane(now).expect("a number is left");
        let mut bytes = Vec::new();
        near.poll_transmit(now, lane, &mut bytes);
        let (hello, read) = Hello::read(&bytes).expect("a hello").expect("whole");
        far.accept_lane(now, &hello).expect("a first lane");
        far.receive(now, lane, &bytes[read..]).expect("no fault");
        bytes.clear();
        far.poll_transmit(now, lane, &mut bytes);
        near.receive(now, lane, &bytes).expect("no fault");
        let flow = near.open_flow(now, "a:1", false).expect("the link is up");
        let mut pair = Self {
            links: [near, far],
            lane,
            flow,
            now,
            elapsed_ms: 0,
            asked: Default::default(),
            written: Default::default(),
            arrived: Default::default(),
            is_hostile: false,
            is_misled: [false; 2],
        };
        pair.carry(0).expect("no fault");
        pair.links[1].accept_flow(flow, false);
        pair.carry(1).expect("no fault");
        pair
    }

    /// Nothing if the lane has ended.
    fn step(&mut self, what: u8, detail: u8) -> Option<()> {
        let end = usize::from(detail & 1);
        let detail = detail >> 1;
        match what % 12 {
            0..=2 => self.write(end, detail),
            3 | 4 => return self.carry(end),
            5 => self.answer(end, usize::from(detail % 4) + 1),
            6 if self.elapsed_ms < SILENCE_MS_MAX => self.later(detail.into()),
            6 => {}
            7 => return self.made_up(end, |pair, out| pair.offers(detail, out)),
            8 => {
                self.is_misled[end] = true;
                return self.made_up(end, |pair, out| pair.confirmation(end, detail, out));
            }
            9 => {
                let (below, offset) = (u64::from(detail % 8), u64::from(detail / 8) * 100);
                let flow = self.flow;
                let frame = Frame::Withdrawn {
                    flow,
                    below,
                    offset,
                };
                return self.made_up(end, |_, out| frame.write(out));
            }
            10 => {
                let (flow, by_sender) = (self.flow, detail & 1 != 0);
                let by = 50 * (i64::from(detail / 4) - 16);
                let frame = match detail & 3 {
                    0 | 1 => Frame::Driven { flow, by_sender },
                    2 => Frame::Moved { flow, by },
                    _ => Frame::Dispersion {
                        flow,
                        level: detail,
                    },
                };
                return self.made_up(end, |_, out| frame.write(out));
            }
            _ => self.links[end].finish(self.flow),
        }
        Some(())
    }

    fn write(&mut self, end: usize, detail: u8) {
        let chunk = KNOWN[usize::from(detail % 4)];
        let part = match detail / 4 % 4 {
            0 => &chunk[..chunk.len() / 2],
            1 => &chunk[chunk.len() / 2..],
            _ => chunk,
        };
        for _ in 0..=detail / 16 {
            if self.written[end].len() < WRITTEN_BYTES_MAX {
                let link = &mut self.links[end];
                let taken = match detail % 2 {
                    0 => link.write_and_confirm(self.now, self.flow, part),
                    _ => link.write(self.flow, part),
                };
                self.written[end].extend(&part[..taken]);
            }
        }
    }

    /// Carries what `end` has to say to the other, and reads there what has come.
    fn carry(&mut self, end: usize) -> Option<()> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            self.links[end].poll_transmit(self.now, self.lane, &mut bytes);
            if bytes.is_empty() {
                return Some(());
            }
            self.receive(1 - end, &bytes)?;
        }
    }

    fn receive(&mut self, end: usize, bytes: &[u8]) -> Option<()> {
        let link = &mut self.links[end];
        let received = link.receive(self.now, self.lane, bytes);
        assert!(received.is_ok() || self.is_hostile, "{received:?}");
        received.ok()?;
        while let Some(event) = link.poll_event() {
            assert!(
                self.is_hostile || !matches!(event, Event::FlowReset(..)),
                "{event:?}"
            );
        }
        let mut buffer = Vec::new();
        link.take_ready(self.flow, &mut buffer);
        link.taken(self.flow, buffer.len());
        link.take_end(self.flow);
        self.arrived[end].extend(buffer);
        Some(())
    }

    /// A history answers some of what it was asked.
    fn answer(&mut self, end: usize, count: usize) {
        let (link, asked) = (&mut self.links[end], &mut self.asked[end]);
        while let Some(request) = link.poll_history() {
            asked.extend(match request {
                HistoryRequest::Open { wanted, .. } | HistoryRequest::Read { wanted, .. } => {
                    Some(wanted)
                }
                HistoryRequest::Learn { follow, .. } => follow,
                HistoryRequest::Begin { .. }
                | HistoryRequest::End { .. }
                | HistoryRequest::Forget { .. } => None,
            });
        }
        for wanted in asked.drain(..count.min(asked.len())) {
            let mut bytes_left = wanted.bytes_max;
            let chunks = KNOWN.iter().take(wanted.chunks_max).map_while(|&chunk| {
                bytes_left = bytes_left.checked_sub(chunk.len())?;
                Some(FoundChunk {
                    digest: ChunkHasher::default().digest(chunk),
                    bytes: chunk.into(),
                })
            });
            let found = Found {
                chunks: chunks.collect(),
                next: Some(HistoryPlace([0; 3])),
            };
            link.history_answered(wanted.flow, wanted.request, found);
        }
    }

    fn later(&mut self, ms: u64) {
        self.elapsed_ms += ms;
        self.now = self.now + Duration::from_millis(ms);
        for link in &mut self.links {
            if link.poll_timeout().is_some_and(|due| due <= self.now) {
                link.handle_timeout(self.now);
            }
        }
    }

    /// A frame that the other end never wrote comes to `end`.
    fn made_up(&mut self, end: usize, write: impl FnOnce(&Self, &mut Vec<u8>)) -> Option<()> {
        self.is_hostile = true;
        let mut bytes = Vec::new();
        write(self, &mut bytes);
        self.receive(end, &bytes)
    }

    fn offers(&self, detail: u8, out: &mut Vec<u8>) {
        let key = OfferKey::agreed(1, 2);
        let offer = |number: u8| {
            let chunk = KNOWN[usize::from(number % 4)];
            Offer {
                len: chunk.len() as u32,
                hint: Hint::of(chunk),
                signature: match detail & 1 {
                    0 => key.sign(&key.hash(chunk)),
                    _ => Signature([number; 8]),
                },
            }
        };
        let mut list = Vec::new();
        Frame::Offer(OfferFrame {
            flow: self.flow,
            withdrawn_below: u64::from(detail / 2 % 4),
            start: (detail & 8 != 0).then(|| u64::from(detail / 16) * 50),
            offers: OfferList::write((0..detail / 16).map(offer), &mut list),
        })
        .write(out);
    }

    fn confirmation(&self, end: usize, detail: u8, out: &mut Vec<u8>) {
        let key = OfferKey::agreed(1, 2);
        let (first, count) = (u64::from(detail % 4), u64::from(detail / 4 % 4));
        let run = KNOWN.iter().cycle().skip(first as usize);
        let run: Vec<&[u8]> = run.take(count as usize).copied().collect();
        let hashes: Vec<_> = run.iter().map(|chunk| key.hash(chunk)).collect();
        let plain = run.concat();
        let offset = self.arrived[end].len() as u64;
        Frame::Confirm(ConfirmFrame {
            flow: self.flow,
            first,
            count: if detail & 16 == 0 {
                count.max(1)
            } else {
                u64::MAX
            },
            len: (plain.len() as u64).max(1),
            offset: (detail & 32 != 0).then_some(offset),
            digest: RunDigest::of(offset + u64::from(detail >> 6), hashes.iter()),
        })
        .write(out);
    }

    fn check(&self) {
        for (end, link) in self.links.iter().enumerate() {
            let status = link.status(self.now);
            assert!(status.offered_bytes_held <= OFFERED_BYTES_LINK);
            assert!(status.offers_kept <= OFFERS_LINK_MAX);
            let whole = &self.written[1 - end];
            assert!(self.is_misled[end] || whole.starts_with(&self.arrived[end]));
        }
    }

    /// Nothing was made up: all that was written arrives.
    fn settle(&mut self) {
        for _ in 0..400 {
            for end in [0, 1] {
                self.carry(end).expect("no fault");
                self.answer(end, usize::MAX);
            }
            if (0..2).all(|end| self.arrived[end].len() == self.written[1 - end].len()) {
                return self.check();
            }
            self.later(5);
        }
        panic!("what was written did not arrive");
    }
}
