//! Frames of the chunks that are missing: fetched but for those that are here, checked as they arrive,
//! and taken apart.
//!
//! A frame's base is made of its chunks, where they are here, and they all are in the end: so no frame
//! is fetched as a base alone.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use super::{
    GetError, Getting, Kind, Phase,
    chunks::{Cursor, ROUND_CHUNKS},
    report::Origin,
};
use crate::{
    archive::Chunk,
    cache::short_name,
    format::{Stream, part::StoredFrame},
};

/// A frame, by its stream and number.
type FrameKey = (Stream, u64);

/// A frame that is wanted, for its missing chunks or as it is.
pub(super) struct Wanted {
    pub(super) key: FrameKey,
    pub(super) frame: StoredFrame,
    /// Where it comes from.
    origin: Origin,
    is_here: bool,
}

impl Wanted {
    /// A frame that is not here.
    pub(super) fn new(key: FrameKey, frame: StoredFrame) -> Self {
        Self {
            key,
            frame,
            origin: Origin::Server,
            is_here: false,
        }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.frame.range()
    }
}

/// Frames that are worked on together.
struct Round {
    /// In the order in which they end in the archive.
    wanted: Vec<Wanted>,
    /// All chunks of them and of their bases, in order.
    chunks: HashMap<FrameKey, Vec<Chunk>>,
}

impl Getting<'_> {
    /// Fetches all chunks that are missing: those that edges have by name, and the others in their frames.
    pub(super) fn fetch_chunks(&mut self) -> Result<(), GetError> {
        let mut cursor = Cursor::default();
        loop {
            let mut missing = self.next_missing(&mut cursor)?;
            if missing.is_empty() {
                return Ok(());
            }
            if let Some(named) = self.named {
                self.ask_all(named, &missing)?;
            }
            // Frames of the round before may have had chunks of this one.
            let rounds = (self.presence.missing as usize).div_ceil(ROUND_CHUNKS);
            missing.retain(|chunk| self.is_missing(chunk));
            if missing.is_empty() {
                continue;
            }
            let round = self.round(&missing)?;
            self.fetch_round(&round, rounds)?;
        }
    }

    /// What the table says of the frames of these chunks; what it takes for that is fetched if it is not here.
    fn round(&mut self, missing: &[Chunk]) -> Result<Round, GetError> {
        let keys = missing.iter().map(|chunk| (chunk.stream, chunk.frame));
        let mut keys: HashSet<FrameKey> = keys.collect();
        self.fetch_frame_parts(keys.iter().copied())?;
        let mut wanted = Vec::with_capacity(keys.len());
        for &key in &keys {
            wanted.push(Wanted::new(key, self.archive.frame_row(key.0, key.1)?));
        }
        let base = |wanted: &Wanted| wanted.frame.base.map(|base| (wanted.key.0, base));
        keys.extend(wanted.iter().filter_map(base));
        let chunks = self.chunks_in(&keys)?;
        wanted.sort_unstable_by_key(|wanted| (wanted.range().end, wanted.range().start));
        for wanted in &mut wanted {
            if let Some(origin) = self.put_stored(wanted.key, &wanted.frame)? {
                wanted.origin = origin;
                wanted.is_here = true;
            }
        }
        Ok(Round { wanted, chunks })
    }

    /// All chunks of frames, by where they begin.
    fn chunks_in(
        &self,
        frames: &HashSet<FrameKey>,
    ) -> Result<HashMap<FrameKey, Vec<Chunk>>, GetError> {
        let mut all: HashMap<FrameKey, Vec<Chunk>> = HashMap::new();
        for stream in Stream::ALL {
            for row in 0..self.archive.root().stream(stream).lengths.rows().len() {
                for chunk in self.archive.row_chunks(stream, row)? {
                    let key = (stream, chunk.frame);
                    if frames.contains(&key) {
                        all.entry(key).or_default().push(chunk);
                    }
                }
            }
        }
        for chunks in all.values_mut() {
            chunks.sort_unstable_by_key(|chunk| (chunk.offset, chunk.bytes));
        }
        Ok(all)
    }

    fn fetch_round(&mut self, round: &Round, rounds: usize) -> Result<(), GetError> {
        let all = round.wanted.iter();
        let (here, arriving): (Vec<_>, Vec<_>) = all.partition(|wanted| wanted.is_here);
        let mut later = Vec::new();
        for wanted in here {
            self.take_apart(wanted, round, &mut later)?;
        }
        self.fetch_frames(arriving, &[], rounds, &mut |getting, wanted| {
            getting.take_apart(wanted, round, &mut later)
        })?;
        self.take_apart_later(later, round)
    }

    /// Fetches frames, which are in the order in which they end, and `rest`. Each frame that has arrived is
    /// given to `take`.
    pub(super) fn fetch_frames<'w>(
        &mut self,
        frames: Vec<&'w Wanted>,
        rest: &[Range<u64>],
        rounds: usize,
        take: &mut dyn FnMut(&mut Self, &'w Wanted) -> Result<(), GetError>,
    ) -> Result<(), GetError> {
        let mut ranges: Vec<_> = frames.iter().map(|wanted| wanted.range()).collect();
        ranges.extend_from_slice(rest);
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut done = 0;
        let mut arriving = frames.into_iter().peekable();
        let kind: Kind = |report| &mut report.frames;
        self.fetch(&ranges, rounds, kind, &mut |getting, end| {
            while let Some(wanted) = arriving.next_if(|wanted| wanted.range().end <= end) {
                take(getting, wanted)?;
                done += u64::from(wanted.frame.stored_bytes);
            }
            getting.go_on(Phase::Frames, done, total)
        })
    }

    /// Those whose base was not here: by now it is, but if frames hold what no chunk does.
    fn take_apart_later(&mut self, later: Vec<&Wanted>, round: &Round) -> Result<(), GetError> {
        let mut left = Vec::new();
        for wanted in later {
            self.take_apart(wanted, round, &mut left)?;
        }
        let of = |wanted: &&Wanted| wanted.frame.base.map(|base| (wanted.key.0, base));
        let needed: HashSet<FrameKey> = left.iter().filter_map(of).collect();
        self.fetch_frame_parts(needed.iter().copied())?;
        let mut bases = Vec::new();
        for (stream, number) in needed {
            let frame = self.archive.frame_row(stream, number)?;
            if self.put_stored((stream, number), &frame)?.is_none() {
                bases.push(frame.range());
            }
        }
        self.fetch(&bases, 1, |report| &mut report.frames, &mut |_, _| Ok(()))?;
        for wanted in left {
            let (stream, number) = wanted.key;
            let plain = self.archive.frame(stream, number)?;
            if let Some(wrong) = self.take_chunks(wanted, round, &plain)? {
                return Err(wrong);
            }
            self.free(wanted);
        }
        Ok(())
    }

    /// The chunks of a frame are here: the frame is not kept as well, unless nothing but it tells which
    /// they are.
    fn free(&self, wanted: &Wanted) {
        if self.naming.is_some() {
            self.archive.source().free(wanted.range());
        }
    }

    /// Takes missing chunks out of a frame that has arrived; or puts it into `later` if its base is not
    /// here, or not all of it.
    fn take_apart<'w>(
        &mut self,
        wanted: &'w Wanted,
        round: &Round,
        later: &mut Vec<&'w Wanted>,
    ) -> Result<(), GetError> {
        let (stream, number) = wanted.key;
        let stored = self.archive.stored_frame(stream, number, &wanted.frame)?;
        let is_encrypted = self.archive.header().encryption.is_some();
        if let (true, Origin::Server, Some(cache)) = (is_encrypted, wanted.origin, &self.cache) {
            // As it is: the cache is not the place for what somebody encrypted.
            cache.add(short_name(wanted.frame.digest), &stored);
        }
        let base = match wanted.frame.base {
            Some(base) => match self.rebuilt(round.chunks.get(&(stream, base)))? {
                Some(plain) => Some(plain),
                None => {
                    later.push(wanted);
                    return Ok(());
                }
            },
            None => None,
        };
        let unpacked = (self.archive).unpack_frame((stream, number), stored, base.as_deref());
        let wrong = match unpacked {
            Ok(plain) => self.take_chunks(wanted, round, &plain)?,
            Err(error) => Some(error.into()),
        };
        match wrong {
            // The base may hold what no chunk does.
            Some(_) if base.is_some() => later.push(wanted),
            Some(error) => return Err(error),
            None => self.free(wanted),
        }
        Ok(())
    }

    /// The plain bytes of a frame that consists of these chunks, if all of them are here.
    fn rebuilt(&self, chunks: Option<&Vec<Chunk>>) -> Result<Option<Vec<u8>>, GetError> {
        let mut plain = Vec::new();
        for chunk in chunks.into_iter().flatten() {
            let begin = plain.len();
            if chunk.offset as usize != begin || self.is_missing(chunk) {
                return Ok(None);
            }
            plain.resize(begin + chunk.bytes as usize, 0);
            let source = self.archive.source();
            source.read_chunk(&mut plain[begin..], chunk.stream, chunk.at)?;
        }
        Ok((!plain.is_empty()).then_some(plain))
    }

    /// Puts the missing chunks of a plain frame where they belong, up to one that is not what it should be.
    fn take_chunks(
        &mut self,
        wanted: &Wanted,
        round: &Round,
        plain: &[u8],
    ) -> Result<Option<GetError>, GetError> {
        let is_encrypted = self.archive.header().encryption.is_some();
        for chunk in &round.chunks[&wanted.key] {
            if !self.is_missing(chunk) {
                continue;
            }
            // Where nothing names chunks, the frame's digest and its key have to do.
            let naming = self.naming.as_ref();
            let is_right = |bytes: &&[u8]| naming.is_none_or(|it| it.name(bytes) == chunk.name);
            let Some(bytes) = chunk.of(plain).filter(is_right) else {
                let (stream, chunk) = (chunk.stream, chunk.number);
                return Ok(Some(GetError::Chunk { stream, chunk }));
            };
            self.put(chunk, bytes)?;
            self.report.chunks_from(wanted.origin).add(bytes.len());
            if let (false, Origin::Server, Some(cache)) = (is_encrypted, wanted.origin, &self.cache)
            {
                cache.add(chunk.name, bytes);
            }
        }
        Ok(None)
    }
}
