//! One thread, a byte at a time: what everybody begins with, and what the others are measured
//! against (HARENS, section IV: *a naive C++ implementation*).

use std::{io::Read, ops::ControlFlow, time::Instant};

use refrain_codec::{
    chunk::{
        chunking::{Chunking, ChunkingMethod},
        fixed::FixedChunks,
        stream::StreamChunks,
    },
    marker::FindAnchors,
    reference::rolling::{RollingModp, RollingPack},
};

use crate::{
    batch::Failure,
    cut::bounds,
    hash_match::Shards,
    input::{Content, Found, Input, find, read_full},
    options::BulkOptions,
    outcome::{Failed, Outcome, Progress},
    scan::anchor_distance,
    tally::Tally,
};

/// Read at once: what stays in the processor's nearest memory.
const PIECE_BYTES: usize = 64 << 10;

enum Cutter {
    Fixed(FixedChunks),
    Anchors(Box<StreamChunks<Box<dyn FindAnchors>>>),
}

impl Cutter {
    fn new(chunking: Chunking) -> Self {
        let distance = anchor_distance(chunking);
        let finder: Box<dyn FindAnchors> = match chunking.method() {
            ChunkingMethod::Fixed => {
                return Self::Fixed(FixedChunks::new(chunking.average_bytes().into()));
            }
            ChunkingMethod::Modp => Box::new(RollingModp::new(distance)),
            ChunkingMethod::Pack => Box::new(RollingPack::new(distance)),
        };
        Self::Anchors(Box::new(StreamChunks::by(finder, bounds(chunking))))
    }
}

pub(crate) fn run(
    inputs: Vec<Input>,
    options: &BulkOptions,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Outcome {
    let begun = Instant::now();
    let mut naive = Naive {
        options,
        cutter: Cutter::new(options.chunking),
        shards: Shards::new(options.cache_bytes, options.chunking.min_bytes()),
        tally: Tally::new(progress),
    };
    let mut found = find(inputs);
    while !naive.tally.is_cut_short
        && let Some(found) = found.next()
    {
        match found {
            Ok(found) => naive.file(found),
            Err(failure) => naive.tally.failure(&failure),
        }
    }
    Outcome {
        redundancy: naive.tally.redundancy,
        elapsed: begun.elapsed(),
        stages: None,
        is_cut_short: naive.tally.is_cut_short,
        gpus: Vec::new(),
        gpu_failure: None,
    }
}

struct Naive<'a> {
    options: &'a BulkOptions,
    cutter: Cutter,
    shards: Shards,
    tally: Tally<'a>,
}

impl Naive<'_> {
    fn file(&mut self, mut found: Found) {
        let file;
        let (content, expected): (&mut dyn Read, Option<u64>) = match &mut found.content {
            Content::File(opened, bytes) => {
                file = opened;
                (&mut (&**file).take(*bytes), Some(*bytes))
            }
            Content::Stream(stream) => (stream, None),
        };
        let mut piece = vec![0; PIECE_BYTES];
        let (mut unfinished, mut chunks) = (Vec::new(), Vec::new());
        let mut read_bytes = 0;
        let failed = loop {
            let (count, error) = read_full(content, &mut piece);
            let piece = &piece[..count];
            read_bytes += count as u64;
            unfinished.extend_from_slice(piece);
            match &mut self.cutter {
                Cutter::Fixed(cutter) => cutter.feed(piece, &mut chunks),
                Cutter::Anchors(cutter) => cutter.feed(piece, &mut chunks),
            }
            self.chunks(&mut unfinished, &mut chunks);
            self.tally.tell(None);
            if count < PIECE_BYTES || error.is_some() || self.tally.is_cut_short {
                break error.map(Failed::Unread);
            }
        };
        match &mut self.cutter {
            Cutter::Fixed(cutter) => cutter.finish(&mut chunks),
            Cutter::Anchors(cutter) => cutter.finish(&mut chunks),
        }
        self.chunks(&mut unfinished, &mut chunks);
        self.tally.redundancy.files += 1;
        let is_short = expected.is_some_and(|bytes| read_bytes < bytes);
        let failed = failed.or(is_short.then_some(Failed::Shrunk));
        if let Some(failed) = failed
            && !self.tally.is_cut_short
        {
            let path = found.path;
            self.tally.failure(&Failure { path, failed });
        }
    }

    /// Hashes and looks up the chunks that `unfinished` begins with.
    fn chunks(&mut self, unfinished: &mut Vec<u8>, chunks: &mut Vec<std::ops::Range<u64>>) {
        let mut end = 0;
        for chunk in chunks.drain(..) {
            let bytes = (chunk.end - chunk.start) as usize;
            let hash = self.options.hasher.hash(&unfinished[end..end + bytes]);
            end += bytes;
            let is_repeat = self.shards.is_repeat(&hash, bytes as u32);
            self.tally.redundancy.count(bytes, is_repeat);
        }
        unfinished.drain(..end);
    }
}
