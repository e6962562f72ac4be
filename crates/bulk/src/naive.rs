//! One thread, a byte at a time: what everybody begins with, and what the others are measured
//! against (HARENS, section IV: *a naive C++ implementation*).

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    path::Path,
    sync::Arc,
    time::Instant,
};

use refrain_codec::{
    chunk::chunking::{Chunking, ChunkingMethod},
    reference::rolling::RollingFinder,
    simd::Backend,
};

use crate::{
    cut::Ends,
    hash_match::Shards,
    input::{Content, Found, Input, find, read_full},
    options::BulkOptions,
    outcome::{Failed, Failure, Outcome},
    scan::anchor_distance,
    sink::Chunks,
    tally::Tally,
};

/// Read at once: what stays in the processor's nearest memory.
const PIECE_BYTES: usize = 64 << 10;

/// What finds anchors a byte at a time; fixed chunks ask for none.
fn finder(chunking: Chunking) -> RollingFinder {
    let distance = anchor_distance(chunking);
    match chunking.method() {
        ChunkingMethod::Modp | ChunkingMethod::Fixed => RollingFinder::modp(distance),
        ChunkingMethod::Pack => RollingFinder::pack(distance),
    }
}

pub(crate) fn run(inputs: Vec<Input>, options: &BulkOptions, tally: Tally<'_>) -> Outcome {
    let begun = Instant::now();
    let mut naive = Naive {
        options,
        ends: Ends::new(
            options.chunking,
            finder(options.chunking),
            Backend::PORTABLE,
        ),
        shards: Shards::new(options.cache_bytes, options.chunking.min_bytes()),
        unfinished: Vec::new(),
        found: Vec::new(),
        tally,
    };
    let mut found = find(inputs);
    while !naive.tally.is_cut_short
        && let Some(found) = found.next()
    {
        match found {
            Ok(found) => naive.found(found),
            Err(failure) => naive.tally.failure(&failure),
        }
    }
    naive.tally.redundancy.forgotten_chunks = naive.shards.forgotten();
    Outcome {
        redundancy: naive.tally.redundancy,
        elapsed: begun.elapsed(),
        stages: Vec::new(),
        is_cut_short: naive.tally.is_cut_short,
        gpus: Vec::new(),
        gpu_failure: None,
    }
}

struct Naive<'o, 't> {
    options: &'o BulkOptions,
    ends: Ends<RollingFinder>,
    shards: Shards,
    /// Bytes of the file that no chunk was found for yet.
    unfinished: Vec<u8>,
    /// Chunks in front of them, in the offsets of the file; empty between pieces.
    found: Vec<Range<u64>>,
    tally: Tally<'t>,
}

impl Naive<'_, '_> {
    fn found(&mut self, found: Found) {
        let Found { item, content } = found;
        let path = item.path.clone();
        match content {
            Content::Nothing => self.tally.begin(item),
            Content::Stream(mut stream) => {
                self.tally.begin(item);
                let (_, error) = self.content(&mut stream);
                self.end(path, error.map(Failed::Unread));
            }
            Content::File(written) => match File::open(&path) {
                Ok(file) => {
                    self.tally.begin(item);
                    let failed = match self.content(&mut (&file).take(written.bytes)) {
                        (_, Some(error)) => Some(Failed::Unread(error)),
                        (bytes, None) if bytes < written.bytes => Some(Failed::Shrunk),
                        _ => written.has_changed(&file).then_some(Failed::Changed),
                    };
                    self.end(path, failed);
                }
                Err(error) => self.tally.failure(&Failure::of(path, error)),
            },
        }
    }

    /// Takes all of a file, and says how many bytes came, and why no more.
    fn content(&mut self, content: &mut dyn Read) -> (u64, Option<io::Error>) {
        let mut piece = vec![0; PIECE_BYTES];
        let mut read_bytes = 0;
        loop {
            let (count, error) = read_full(content, &mut piece);
            let piece = &piece[..count];
            read_bytes += count as u64;
            self.unfinished.extend_from_slice(piece);
            self.ends.feed(piece, &mut self.found);
            self.chunks();
            self.tally.tell(None);
            if count < PIECE_BYTES || error.is_some() || self.tally.is_cut_short {
                return (read_bytes, error);
            }
        }
    }

    fn end(&mut self, path: Arc<Path>, failed: Option<Failed>) {
        self.ends.finish(&mut self.found);
        self.chunks();
        if !self.tally.is_cut_short {
            let failure = failed.map(|failed| Failure::of(path, failed));
            self.tally.end(failure);
        }
    }

    /// Hashes and looks up the chunks that were found.
    fn chunks(&mut self) {
        let mut end = 0;
        let (mut ranges, mut digests) = (Vec::new(), Vec::new());
        for chunk in self.found.drain(..) {
            let bytes = (chunk.end - chunk.start) as usize;
            let range = end..end + bytes;
            end += bytes;
            let digest = self.options.hasher.digest(&self.unfinished[range.clone()]);
            let is_repeat = self.shards.is_repeat(&digest, bytes as u32);
            self.tally.redundancy.count(bytes, is_repeat);
            ranges.push(range);
            digests.push(digest);
        }
        self.tally.chunks(&Chunks {
            bytes: &self.unfinished,
            ranges: &ranges,
            digests: &digests,
        });
        self.unfinished.drain(..end);
    }
}
