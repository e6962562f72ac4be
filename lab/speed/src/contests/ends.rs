//! Both ends of a link in this process, each an engine of its own, and how long each works.
//!
//! What one end sends is given to the other at once. The clock sees the calls of an engine and
//! nothing else: no sockets, no TLS, no store. What applications and the history do is done
//! between them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use refrain_codec::chunk::{
    hash::{ChunkDigest, ChunkHasher},
    stream::StreamChunks,
};
use refrain_proto::{
    Event, FlowId, LaneId, Link, LinkConfig, Moment, Role,
    hello::Hello,
    predictions::history::{Found, FoundChunk, HistoryPlace, HistoryRequest, Wanted},
};

use super::{BLOCK_BYTES, walk::read};

/// A near end that receives and a far end that sends.
pub(super) struct Ends {
    near: Timed,
    far: Timed,
    history: History,
    lane: LaneId,
    now: Moment,
    /// Bytes from the far end to the near one.
    pub link_bytes: usize,
}

/// How long the ends worked for a transfer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub sender: Duration,
    pub receiver: Duration,
}

/// An engine and the time spent in it.
struct Timed {
    link: Link,
    spent: Duration,
}

impl Timed {
    fn new(link: Link) -> Self {
        Self {
            link,
            spent: Duration::ZERO,
        }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut Link) -> T) -> T {
        let start = Instant::now();
        let result = call(&mut self.link);
        self.spent += start.elapsed();
        result
    }
}

impl Ends {
    /// Both ends by `config`; the near one expects that what it receives is `known`, as it came
    /// once before.
    pub(super) fn new(config: LinkConfig, known: &[u8]) -> Self {
        let of_far = LinkConfig {
            history: None,
            ..config.clone()
        };
        let mut near = Link::new(Role::Near, 1, config);
        let mut far = Link::new(Role::Far, 2, of_far);
        let now = Moment::default();
        let lane = near.dial_lane(now).expect("a first lane");
        let mut bytes = Vec::new();
        near.poll_transmit(now, lane, &mut bytes);
        let (hello, _) = Hello::read(&bytes).expect("a hello").expect("whole");
        far.accept_lane(now, &hello).expect("a first lane");
        bytes.clear();
        far.poll_transmit(now, lane, &mut bytes);
        near.receive(now, lane, &bytes).expect("its answer");
        Self {
            near: Timed::new(near),
            far: Timed::new(far),
            history: History::of(known),
            lane,
            now,
            link_bytes: 0,
        }
    }

    /// Moves `content` on a flow of its own.
    ///
    /// # Panics
    /// If other bytes arrive.
    pub(super) fn transfer(&mut self, content: &[u8]) -> Spent {
        (self.near.spent, self.far.spent) = (Duration::ZERO, Duration::ZERO);
        let now = self.now;
        let flow = self
            .near
            .call(|link| link.open_flow(now, "content:1", false));
        let mut transfer = Transfer {
            flow: flow.expect("the link is up"),
            content,
            came: 0,
            ended: false,
        };
        let mut sent = 0;
        self.exchange(&mut transfer);
        while !transfer.ended {
            let block = &content[sent..content.len().min(sent + BLOCK_BYTES)];
            // Where the copy from a socket would have left it.
            read(block);
            let taken = self.far.call(|link| link.write(transfer.flow, block));
            sent += taken;
            if taken > 0 && sent == content.len() {
                self.far.call(|link| link.finish(transfer.flow));
            }
            if !self.exchange(&mut transfer) && taken == 0 {
                self.advance();
            }
        }
        assert_eq!(transfer.came, content.len(), "all bytes come");
        self.near.call(|link| link.finish(transfer.flow));
        self.exchange(&mut transfer);
        Spent {
            sender: self.far.spent,
            receiver: self.near.spent,
        }
    }

    /// Lets both ends say what they have to say; whether that was anything.
    fn exchange(&mut self, transfer: &mut Transfer<'_>) -> bool {
        let (now, lane) = (self.now, self.lane);
        let mut any = false;
        loop {
            let mut down = Vec::new();
            self.far.call(|link| {
                while let Some(event) = link.poll_event() {
                    if let Event::FlowOffered { flow, .. } = event {
                        link.accept_flow(flow, false);
                    }
                }
                link.poll_transmit(now, lane, &mut down);
            });
            self.link_bytes += down.len();
            self.near.call(|link| {
                link.receive(now, lane, &down).expect("no fault");
            });
            self.read_and_remember(transfer);
            let mut up = Vec::new();
            self.near
                .call(|link| link.poll_transmit(now, lane, &mut up));
            self.far.call(|link| {
                link.receive(now, lane, &up).expect("no fault");
            });
            if down.is_empty() && up.is_empty() {
                return any;
            }
            any = true;
        }
    }

    /// What the near end's application and its history do.
    fn read_and_remember(&mut self, transfer: &mut Transfer<'_>) {
        let mut buffer = Vec::new();
        let flow = transfer.flow;
        let ended = self.near.call(|link| {
            while link.poll_event().is_some() {}
            let mut piece = Vec::new();
            loop {
                link.take_ready(flow, &mut piece);
                if piece.is_empty() {
                    break;
                }
                buffer.append(&mut piece);
            }
            link.taken(flow, buffer.len());
            link.take_end(flow)
        });
        let came = transfer.came + buffer.len();
        assert!(
            transfer.content.get(transfer.came..came) == Some(&buffer[..]),
            "the same bytes come"
        );
        (transfer.came, transfer.ended) = (came, transfer.ended | ended);
        while let Some(request) = self.near.call(Link::poll_history) {
            if let Some((wanted, found)) = self.history.answer(&request) {
                self.near
                    .call(|link| link.history_answered(wanted.flow, wanted.request, found));
            }
        }
    }

    /// Goes on to when an end wants to be called.
    fn advance(&mut self) {
        for end in [&mut self.near, &mut self.far] {
            if let Some(due) = end.link.poll_timeout() {
                self.now = self.now.max(due);
                let now = self.now;
                end.call(|link| link.handle_timeout(now));
            }
        }
    }
}

/// A flow under way.
struct Transfer<'a> {
    flow: FlowId,
    content: &'a [u8],
    came: usize,
    ended: bool,
}

/// A history of one flow, which learns nothing more.
struct History {
    chunks: Vec<FoundChunk>,
    /// Of each chunk.
    numbers: HashMap<ChunkDigest, usize>,
}

impl History {
    fn of(known: &[u8]) -> Self {
        let (mut cutter, mut ranges) = (StreamChunks::default(), Vec::new());
        cutter.feed(known, &mut ranges);
        cutter.finish(&mut ranges);
        let chunks = ranges.into_iter().map(|range| {
            let bytes = &known[range.start as usize..range.end as usize];
            FoundChunk {
                digest: ChunkHasher::default().digest(bytes),
                bytes: bytes.into(),
            }
        });
        let chunks: Vec<_> = chunks.collect();
        let digests = chunks.iter().map(|chunk| chunk.digest);
        Self {
            numbers: digests.zip(0..).collect(),
            chunks,
        }
    }

    fn answer(&self, request: &HistoryRequest) -> Option<(Wanted, Found)> {
        match *request {
            HistoryRequest::Open { wanted, .. } => Some((wanted, self.read(0, wanted))),
            HistoryRequest::Read {
                from: HistoryPlace([number, ..]),
                wanted,
            } => Some((wanted, self.read(number as usize, wanted))),
            HistoryRequest::Learn {
                digest,
                follow: Some(wanted),
                ..
            } => {
                let number = self.numbers.get(&digest);
                let found = number.map(|number| self.read(number + 1, wanted));
                Some((wanted, found.unwrap_or_default()))
            }
            _ => None,
        }
    }

    fn read(&self, number: usize, wanted: Wanted) -> Found {
        let mut bytes = 0;
        let chunks = self.chunks[number..].iter().take(wanted.chunks_max);
        let chunks = chunks.take_while(|chunk| {
            bytes += chunk.bytes.len();
            bytes <= wanted.bytes_max
        });
        let chunks: Vec<_> = chunks.cloned().collect();
        let next = number + chunks.len();
        Found {
            next: (next < self.chunks.len()).then_some(HistoryPlace([next as u64, 0, 0])),
            chunks,
        }
    }
}
