//! Arbitrary bytes on a lane, after a hello, to the far end of a link: no panic, no more
//! memory than the link may have, and whatever it answers can be read.
//!
//! Offers are agreed on both ways: the far end heeds them, and makes them of a history in which
//! every target has one beginning.
//!
//! Input: how many bytes come at a time (one byte, 0 for all at once), then the lane's bytes.
//! A misbehaving peer computes the checks of its blocks, so this one does too: literal blocks
//! get the check that they need.
#![no_main]

use std::{num::NonZeroUsize, time::Duration};

use libfuzzer_sys::fuzz_target;
use refrain_codec::{
    check,
    chunk::{hash::ChunkHasher, stream::ChunkBounds},
    geometry::{CACHE_BYTES_MIN, CacheGeometry},
};
use refrain_proto::{
    Event, FlowId, LaneId, Link, LinkConfig, Moment, Role,
    frame::{Frame, Stream},
    hello::Hello,
    limits::{CREDIT_FLOOR_BYTES, OFFERED_BYTES_LINK, OFFERS_LINK_MAX, WINDOW_BYTES_MAX},
    predictions::history::{Found, FoundChunk, HistoryConfig, HistoryRequest, Wanted},
    terms::{OfferKey, OfferTerms, RunDigest},
};

/// The two caches, their tables, and zstd's four contexts.
const LINK_BYTES_MAX: usize = 16 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((&piece, bytes)) = input.split_first() else {
        return;
    };
    let bytes = with_checks(bytes);
    let piece = NonZeroUsize::new(piece.into()).map_or(bytes.len().max(1), NonZeroUsize::get);
    let mut far = FarEnd::new();
    for bytes in bytes.chunks(piece) {
        if !far.take(bytes) {
            break;
        }
    }
});

/// One lane of the far end, and the gateway that serves it: it reaches every target, reads
/// what comes and echoes it.
struct FarEnd {
    link: Link,
    lane: LaneId,
    now: Moment,
    buffer: Vec<u8>,
}

impl FarEnd {
    fn new() -> Self {
        let geometry = CacheGeometry::new(CACHE_BYTES_MIN).expect("a valid size");
        let history = HistoryConfig {
            bounds: ChunkBounds::new(64, 1024).expect("valid bounds"),
            ..HistoryConfig::default()
        };
        let config = LinkConfig {
            history: Some(history),
            ..LinkConfig::with_cache(geometry)
        };
        let mut link = Link::new(Role::Far, 2, config);
        let now = Moment::default();
        let hello = Hello {
            send_cache_bytes: CACHE_BYTES_MIN as u64,
            receive_cache_bytes: CACHE_BYTES_MIN as u64,
            takes_offers: true,
            offers: Some(OfferTerms::default()),
            counts_confirmations: true,
            window_bytes: Some(WINDOW_BYTES_MAX),
            has_long_span: true,
            speaks_tls_to_targets: true,
            ..Hello::of_lane(1, None, 0)
        };
        let lane = link.accept_lane(now, &hello).expect("a first lane");
        Self {
            link,
            lane,
            now,
            buffer: Vec::new(),
        }
    }

    /// Says whether the lane goes on.
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.now = self.now + Duration::from_millis(3);
        let is_alive = self.link.receive(self.now, self.lane, bytes).is_ok();
        while let Some(event) = self.link.poll_event() {
            match event {
                Event::FlowOffered { flow, .. } if flow.0 % 8 == 6 => {
                    self.link.refuse_flow(flow, 1, "not today");
                }
                Event::FlowOffered { flow, .. } => self.link.accept_flow(flow, false),
                Event::Readable(flow) => self.echo(flow),
                _ => {}
            }
        }
        while let Some(request) = self.link.poll_history() {
            if let Some(wanted) = wanted_of(&request) {
                self.link
                    .history_answered(wanted.flow, wanted.request, known(wanted));
            }
        }
        if self.link.poll_timeout().is_some_and(|due| due <= self.now) {
            self.link.handle_timeout(self.now);
        }
        self.answer();
        let status = self.link.status(self.now);
        assert!(status.allocated_bytes <= LINK_BYTES_MAX);
        assert!(status.offered_bytes_held <= OFFERED_BYTES_LINK);
        assert!(!is_alive || status.offers_kept <= OFFERS_LINK_MAX);
        is_alive
    }

    fn echo(&mut self, flow: FlowId) {
        self.link.take_ready(flow, &mut self.buffer);
        assert!(self.buffer.len() as u64 <= WINDOW_BYTES_MAX + CREDIT_FLOOR_BYTES);
        self.link.taken(flow, self.buffer.len());
        self.link.write(flow, &self.buffer);
        if self.link.take_end(flow) {
            self.link.finish(flow);
        }
    }

    fn answer(&mut self) {
        let mut out = Vec::new();
        self.link.poll_transmit(self.now, self.lane, &mut out);
        let mut rest = &out[..];
        if let Ok(Some((_, read))) = Hello::read(rest) {
            rest = &rest[read..];
        }
        while !rest.is_empty() {
            let (_, read) = Frame::read(rest)
                .expect("frames that can be read")
                .expect("whole frames");
            rest = &rest[read..];
        }
    }
}

/// The chunks of the far end's history.
const KNOWN: [&[u8]; 3] = [&[1; 100], &[2; 70], b"refrain\n"];

fn wanted_of(request: &HistoryRequest) -> Option<Wanted> {
    match request {
        HistoryRequest::Open { wanted, .. } | HistoryRequest::Read { wanted, .. } => Some(*wanted),
        HistoryRequest::Learn { follow, .. } => *follow,
        HistoryRequest::Begin { .. }
        | HistoryRequest::End { .. }
        | HistoryRequest::Forget { .. } => None,
    }
}

/// What is known of any flow.
fn known(wanted: Wanted) -> Found {
    let hasher = ChunkHasher::default();
    let chunks = KNOWN.iter().map(|&chunk| FoundChunk {
        digest: hasher.digest(chunk),
        bytes: chunk.into(),
    });
    Found {
        chunks: chunks.take(wanted.chunks_max).collect(),
        next: None,
    }
}

/// The lane's bytes, each block of literals with the check of its bytes and its number, and each
/// confirmation with what it takes to be right as a flow's first.
fn with_checks(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let key = OfferKey::agreed(1, 2);
    let mut number = 0;
    while let Ok(Some((mut frame, read))) = Frame::read(bytes) {
        if let Frame::Block(block) = &mut frame {
            let Stream { compressed, bytes } = block.literals;
            if !compressed && block.tokens.bytes.is_empty() {
                block.check = check(number, bytes);
            }
            number += 1;
        }
        if let Frame::Confirm(confirm) = &mut frame {
            let run = KNOWN.iter().skip(confirm.first.min(3) as usize);
            let run: Vec<&[u8]> = run.take(confirm.count.min(3) as usize).copied().collect();
            let hashes: Vec<_> = run.iter().map(|chunk| key.hash(chunk)).collect();
            let plain = run.concat();
            confirm.len = (plain.len() as u64).max(1);
            confirm.digest = RunDigest::of(0, hashes.iter());
        }
        frame.write(&mut out);
        bytes = &bytes[read..];
    }
    out.extend_from_slice(bytes);
    out
}
