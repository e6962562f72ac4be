//! The blocks that columns are given: a direction's bytes that came within 10 ms, at most 64 KiB.
//!
//! EndRE aggregates packets in the same way (section 9.1), since a program at the ends sees what its socket has: 10 ms of a
//! connection, not single packets.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use refrain_capture::{Direction, Flow, FlowNumber, Sink, Time};
use serde::Serialize;

use crate::protocol::Protocol;

/// The time of a block at most.
const BLOCK_NANOS: u64 = 10_000_000;

/// The bytes of a block at most.
pub const BLOCK_BYTES_MAX: usize = 64 << 10;

/// More bytes are not held, even if the capture's clock stands still.
const HELD_BYTES_MAX: usize = 256 << 20;

/// Memory of blocks that is used again.
const SPARE_MAX: usize = 64;

/// More groups than these share the last one.
const GROUPS_MAX: usize = 1 << 16;

/// The number of a [`Group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNumber(pub u32);

/// Connections that a report sums up.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Group {
    /// The machine that opens the connections.
    pub client: IpAddr,
    /// The machine that they lead to.
    pub server: IpAddr,
    /// The server's port.
    pub port: u16,
    /// Their protocol.
    pub protocol: Protocol,
    /// The server's name, if the client's first bytes have one.
    pub site: Option<String>,
}

/// A connection as blocks know it.
#[derive(Clone, Copy, Debug)]
pub struct BlockFlow {
    /// Its number.
    pub number: FlowNumber,
    /// The end that opened it.
    pub client: SocketAddr,
    /// The other one.
    pub server: SocketAddr,
    /// Where it is counted.
    pub group: GroupNumber,
    /// The protocol of its group.
    pub protocol: Protocol,
    /// The round trip that its handshake took, if the capture has that.
    pub round_trip: Option<Duration>,
}

/// An event of the capture, for columns.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// Bytes of a connection, which it sent one after the other.
    Block {
        /// The connection.
        flow: BlockFlow,
        /// The sender.
        direction: Direction,
        /// When the first of its bytes was captured.
        at: Time,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Bytes of a connection as they were captured. They are in a block as well, later.
    Bytes {
        /// The connection.
        flow: BlockFlow,
        /// The sender.
        direction: Direction,
        /// When they were captured.
        at: Time,
        /// The bytes of a segment.
        bytes: &'a [u8],
    },
    /// Nothing more comes of a connection.
    Closed(BlockFlow, Time),
}

/// Where blocks go.
pub trait Steps {
    /// Takes the next one.
    fn step(&mut self, step: Step<'_>);
}

/// Finds the server's name in a client's first bytes.
pub type SiteOf = fn(&[u8]) -> Option<String>;

/// Turns streams into blocks.
pub struct Blocks<S> {
    steps: S,
    site_of: SiteOf,
    flows: HashMap<FlowNumber, State>,
    /// Directions with bytes, by when the first of these came.
    begun: VecDeque<(Time, FlowNumber, Direction)>,
    groups: HashMap<Group, GroupNumber>,
    list: Vec<Group>,
    /// Connections with bytes, by group.
    flow_counts: Vec<u64>,
    now: Time,
    held_bytes: usize,
    spare: Vec<Vec<u8>>,
}

struct State {
    ends: Flow,
    round_trip: Option<Duration>,
    /// Once its first bytes have come.
    flow: Option<BlockFlow>,
    halves: [Half; 2],
}

#[derive(Default)]
struct Half {
    at: Time,
    bytes: Vec<u8>,
    /// Whether `begun` has it.
    is_listed: bool,
}

impl<S: Steps> Blocks<S> {
    /// None so far. `site_of` finds the server's name in a client's first bytes.
    pub fn new(steps: S, site_of: SiteOf) -> Self {
        Self {
            steps,
            site_of,
            flows: HashMap::new(),
            begun: VecDeque::new(),
            groups: HashMap::new(),
            list: Vec::new(),
            flow_counts: Vec::new(),
            now: Time::default(),
            held_bytes: 0,
            spare: Vec::new(),
        }
    }

    /// The last blocks are given; returns where they went, and all groups by number with their connections.
    pub fn finish(mut self) -> (S, Vec<Group>, Vec<u64>) {
        self.flush_before(Time(u64::MAX));
        (self.steps, self.list, self.flow_counts)
    }

    /// Gives all blocks that began so long before `now`.
    fn flush_before(&mut self, now: Time) {
        while let Some(&(at, ..)) = self.begun.front()
            && at.0.saturating_add(BLOCK_NANOS) <= now.0
        {
            self.flush_first();
        }
    }

    fn flush_first(&mut self) {
        let Some((_, flow, direction)) = self.begun.pop_front() else {
            return;
        };
        if let Some(state) = self.flows.get_mut(&flow) {
            state.halves[direction as usize].is_listed = false;
            self.give(flow, direction);
        }
    }

    fn give(&mut self, flow: FlowNumber, direction: Direction) {
        let Some(state) = self.flows.get_mut(&flow) else {
            return;
        };
        let half = &mut state.halves[direction as usize];
        let mut bytes = std::mem::take(&mut half.bytes);
        let at = half.at;
        self.held_bytes -= bytes.len();
        if let Some(flow) = state.flow.filter(|_| !bytes.is_empty()) {
            self.steps.step(Step::Block {
                flow,
                direction,
                at,
                bytes: &bytes,
            });
        }
        if self.spare.len() < SPARE_MAX && bytes.capacity() > 0 {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    fn group(&mut self, group: Group) -> GroupNumber {
        if let Some(&number) = self.groups.get(&group) {
            return number;
        }
        let number = GroupNumber(self.list.len().min(GROUPS_MAX - 1) as u32);
        if self.list.len() < GROUPS_MAX {
            self.list.push(group.clone());
            self.flow_counts.push(0);
            self.groups.insert(group, number);
        }
        number
    }
}

impl<S: Steps> Sink for Blocks<S> {
    fn opened(&mut self, flow: FlowNumber, ends: &Flow) {
        let state = State {
            ends: *ends,
            round_trip: None,
            flow: None,
            halves: Default::default(),
        };
        self.flows.insert(flow, state);
    }

    fn round_trip(&mut self, flow: FlowNumber, round_trip: Duration) {
        if let Some(state) = self.flows.get_mut(&flow) {
            state.round_trip = Some(round_trip);
        }
    }

    fn came(&mut self, flow: FlowNumber, direction: Direction, at: Time, bytes: &[u8]) {
        // A clock that goes backwards stands still here.
        self.now = self.now.max(at);
        let now = self.now;
        self.flush_before(now);
        let Some(state) = self.flows.get(&flow) else {
            return;
        };
        if let Some(flow) = state.flow {
            return self.add(flow, direction, now, bytes);
        }
        let Flow { client, server, .. } = state.ends;
        let round_trip = state.round_trip;
        let protocol = Protocol::of(bytes, server.port());
        let group = self.group(Group {
            client: client.ip(),
            server: server.ip(),
            port: server.port(),
            protocol,
            site: match direction {
                Direction::Up => (self.site_of)(bytes),
                Direction::Down => None,
            },
        });
        let opened = BlockFlow {
            number: flow,
            client,
            server,
            group,
            protocol,
            round_trip,
        };
        self.flow_counts[group.0 as usize] += 1;
        if let Some(state) = self.flows.get_mut(&flow) {
            state.flow = Some(opened);
        }
        self.add(opened, direction, now, bytes);
    }

    fn missed(&mut self, _: FlowNumber, _: Direction, _: u64) {}

    fn closed(&mut self, flow: FlowNumber) {
        self.give(flow, Direction::Up);
        self.give(flow, Direction::Down);
        if let Some(flow) = self.flows.remove(&flow).and_then(|state| state.flow) {
            self.steps.step(Step::Closed(flow, self.now));
        }
    }
}

impl<S: Steps> Blocks<S> {
    fn add(&mut self, flow: BlockFlow, direction: Direction, at: Time, bytes: &[u8]) {
        self.steps.step(Step::Bytes {
            flow,
            direction,
            at,
            bytes,
        });
        let flow = flow.number;
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(state) = self.flows.get_mut(&flow) else {
                return;
            };
            let half = &mut state.halves[direction as usize];
            if half.bytes.is_empty() {
                half.at = at;
                if half.bytes.capacity() == 0 {
                    half.bytes = self.spare.pop().unwrap_or_default();
                }
            }
            let room = BLOCK_BYTES_MAX - half.bytes.len();
            let (part, after) = rest.split_at(room.min(rest.len()));
            half.bytes.extend_from_slice(part);
            self.held_bytes += part.len();
            rest = after;
            if half.bytes.len() == BLOCK_BYTES_MAX {
                self.give(flow, direction);
            } else if !half.is_listed {
                half.is_listed = true;
                self.begun.push_back((half.at, flow, direction));
            }
        }
        while self.held_bytes > HELD_BYTES_MAX {
            self.flush_first();
        }
    }
}
