//! Two links, joined by lanes that deliver at once, each perhaps with a history of its own.

use std::{collections::BTreeMap, time::Duration};

use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{
    Event, FlowId, LaneId, Link, LinkConfig, Mode, Moment, Role, counters::LayerCounters,
    effort::Written, hello::Hello, predictions::history::HistoryConfig,
};

use crate::memory::Memory;

/// Both ends and a clock.
pub(crate) struct Pair {
    pub now: Moment,
    pub near: Link,
    pub far: Link,
    pub near_events: Vec<Event>,
    pub far_events: Vec<Event>,
    pub near_memory: Memory,
    pub far_memory: Memory,
    /// Whether the far end's writer has what is confirmed right away.
    pub confirms_ahead: bool,
    /// Bytes near → far and far → near, lane by lane.
    pub carried: BTreeMap<LaneId, (Vec<u8>, Vec<u8>)>,
}

impl Pair {
    pub(crate) fn new(lanes: usize) -> Self {
        Self::with_config(
            lanes,
            LinkConfig::with_cache(CacheGeometry::new(4 << 20).expect("valid")),
        )
    }

    pub(crate) fn with_config(lanes: usize, config: LinkConfig) -> Self {
        Self::between(lanes, config.clone(), config)
    }

    /// The near end has a history and predicts; the far one is in mode `receiver`.
    pub(crate) fn with_history(lanes: usize, history: HistoryConfig) -> Self {
        let far = LinkConfig {
            mode: Mode::Receiver,
            ..LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"))
        };
        let near = LinkConfig {
            history: Some(history),
            ..far.clone()
        };
        Self::between(lanes, near, far)
    }

    pub(crate) fn between(lanes: usize, near: LinkConfig, far: LinkConfig) -> Self {
        let mut pair = Self {
            now: Moment::default(),
            near: Link::new(Role::Near, 1, near),
            far: Link::new(Role::Far, 2, far),
            near_events: Vec::new(),
            far_events: Vec::new(),
            near_memory: Memory::default(),
            far_memory: Memory::default(),
            confirms_ahead: true,
            carried: BTreeMap::new(),
        };
        for _ in 0..lanes {
            pair.dial();
            pair.settle();
        }
        pair
    }

    pub(crate) fn dial(&mut self) -> LaneId {
        let lane = self.near.dial_lane(self.now).expect("a number is left");
        let mut bytes = Vec::new();
        self.near.poll_transmit(self.now, lane, &mut bytes);
        let (hello, read) = Hello::read(&bytes).expect("a hello").expect("whole");
        assert_eq!(self.far.accept_lane(self.now, &hello), Ok(lane));
        self.far
            .receive(self.now, lane, &bytes[read..])
            .expect("no fault");
        self.carried.insert(lane, Default::default());
        lane
    }

    /// Brings up a lane whose hellos are altered on their way.
    pub(crate) fn greet(&mut self, near: impl Fn(&mut Vec<u8>), far: impl Fn(&mut Vec<u8>)) {
        let lane = self.near.dial_lane(self.now).expect("a number is left");
        let mut bytes = Vec::new();
        self.near.poll_transmit(self.now, lane, &mut bytes);
        near(&mut bytes);
        let (hello, _) = Hello::read(&bytes).expect("a hello").expect("whole");
        assert_eq!(self.far.accept_lane(self.now, &hello), Ok(lane));
        bytes.clear();
        self.far.poll_transmit(self.now, lane, &mut bytes);
        far(&mut bytes);
        self.near
            .receive(self.now, lane, &bytes)
            .expect("the answer");
        self.carried.insert(lane, Default::default());
        self.settle();
    }

    /// Carries everything that either end has to say, until both are silent and nothing is
    /// due soon.
    pub(crate) fn settle(&mut self) {
        loop {
            self.carry();
            let due = [self.near.poll_timeout(), self.far.poll_timeout()];
            let soon = self.now + Duration::from_millis(200);
            let Some(due) = due.into_iter().flatten().min().filter(|&due| due <= soon) else {
                return;
            };
            self.now = self.now.max(due);
            self.near.handle_timeout(self.now);
            self.far.handle_timeout(self.now);
        }
    }

    /// Carries everything that either end has to say at this moment.
    pub(crate) fn carry(&mut self) {
        loop {
            let asked = [
                self.near_memory.serve(&mut self.near),
                self.far_memory.serve(&mut self.far),
            ];
            let mut silent = !asked.contains(&true);
            let lanes: Vec<LaneId> = self.carried.keys().copied().collect();
            for lane in lanes {
                let mut bytes = Vec::new();
                self.near.poll_transmit(self.now, lane, &mut bytes);
                silent &= bytes.is_empty();
                self.far.receive(self.now, lane, &bytes).expect("no fault");
                self.near.transmitted(self.now, lane, Written::default());
                self.carried.get_mut(&lane).expect("known").0.extend(&bytes);

                bytes.clear();
                self.far.poll_transmit(self.now, lane, &mut bytes);
                silent &= bytes.is_empty();
                self.near.receive(self.now, lane, &bytes).expect("no fault");
                self.far.transmitted(self.now, lane, Written::default());
                self.carried.get_mut(&lane).expect("known").1.extend(&bytes);
            }
            self.near_events
                .extend(std::iter::from_fn(|| self.near.poll_event()));
            self.far_events
                .extend(std::iter::from_fn(|| self.far.poll_event()));
            if silent {
                return;
            }
        }
    }

    pub(crate) fn open(&mut self, target: &str) -> FlowId {
        let flow = self
            .near
            .open_flow(self.now, target, false)
            .expect("the link is up");
        self.settle();
        self.far.accept_flow(flow, false);
        self.settle();
        flow
    }

    /// Sends `bytes` near → far on `flow` and returns what arrived.
    pub(crate) fn send(&mut self, flow: FlowId, bytes: &[u8]) -> Vec<u8> {
        let (mut sent, mut arrived, mut buffer) = (0, Vec::new(), Vec::new());
        while sent < bytes.len() {
            sent += self.near.write(flow, &bytes[sent..]);
            self.settle();
            take_all(&mut self.far, flow, &mut buffer);
            self.far.taken(flow, buffer.len());
            arrived.extend_from_slice(&buffer);
            self.settle();
        }
        arrived
    }

    /// A flow that the near end opens to `target`, and that brings `content` from there; gives
    /// what arrived. Both ends finish.
    pub(crate) fn fetch(&mut self, target: &str, content: &[u8]) -> Vec<u8> {
        let flow = self.open(target);
        let arrived = self.bring(flow, content);
        self.end(flow);
        arrived
    }

    /// Both ends finish.
    pub(crate) fn end(&mut self, flow: FlowId) {
        self.far.finish(flow);
        self.near.finish(flow);
        self.settle();
        assert!(self.near.take_end(flow), "the end of it");
        self.far.take_end(flow);
        self.settle();
    }

    /// Sends `bytes` far → near on `flow` and returns what arrived.
    pub(crate) fn bring(&mut self, flow: FlowId, bytes: &[u8]) -> Vec<u8> {
        let (mut sent, mut arrived, mut buffer) = (0, Vec::new(), Vec::new());
        while self.far.is_open(flow) {
            let written = match self.confirms_ahead {
                true => self.far.write_and_confirm(self.now, flow, &bytes[sent..]),
                false => self.far.write(flow, &bytes[sent..]),
            };
            sent += written;
            self.carry();
            // A writer that can go on does so before anything else becomes due.
            if sent == bytes.len() || written == 0 {
                self.settle();
            }
            take_all(&mut self.near, flow, &mut buffer);
            self.near.taken(flow, buffer.len());
            arrived.extend_from_slice(&buffer);
            if sent == bytes.len() && buffer.is_empty() {
                break;
            }
        }
        self.settle();
        arrived
    }

    /// What the far end has sent on an open flow, whether it has come or not.
    pub(crate) fn far_sent(&self, flow: FlowId) -> LayerCounters {
        sent_on(&self.far, self.now, flow)
    }

    pub(crate) fn link_bytes_sent(&self) -> u64 {
        self.near.status(self.now).counters.sent.link_bytes
    }
}

/// What a link has sent on an open flow, whether it has come or not.
pub(crate) fn sent_on(link: &Link, now: Moment, flow: FlowId) -> LayerCounters {
    let flows = link.status(now).flows;
    let open = flows.iter().find(|status| status.id == flow);
    open.expect("an open flow").sent
}

pub(crate) fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    (0..len)
        .map(|_| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        })
        .collect()
}

pub(crate) fn transmit(link: &mut Link, now: Moment, lane: LaneId) -> Vec<u8> {
    let mut bytes = Vec::new();
    link.poll_transmit(now, lane, &mut bytes);
    bytes
}

/// Takes all that came on a flow, in exchange for what `buffer` has.
pub(crate) fn take_all(link: &mut Link, flow: FlowId, buffer: &mut Vec<u8>) {
    buffer.clear();
    let mut piece = Vec::new();
    loop {
        link.take_ready(flow, &mut piece);
        if piece.is_empty() {
            return;
        }
        buffer.append(&mut piece);
    }
}

/// What version 2 says behind version 1 is left out: capabilities, and a window of 128 MiB.
pub(crate) fn of_version_1(hello: &mut Vec<u8>) {
    const CAPABILITIES_BYTES: usize = 1 + 4;
    hello.truncate(hello.len() - CAPABILITIES_BYTES);
    hello[9] = 1;
    hello[11] -= CAPABILITIES_BYTES as u8;
}
