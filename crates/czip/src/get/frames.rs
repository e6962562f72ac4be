//! Frames of the chunks that are missing: fetched but for those that are here, checked as they arrive,
//! and taken apart.
//!
//! A frame's base is made of its chunks, where they are here, and they all are in the end: so no frame
//! is fetched as a base alone. Frames are worked on in rounds, so that what is held of them is bounded;
//! most archives have one.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use super::{GetError, Getting, Kind, Phase, report::Origin};
use crate::{
    cache::short_name,
    format::{ChunkName, Stream, part::StoredFrame},
};

/// Missing chunks of a round.
const ROUND_CHUNKS: u64 = 1 << 18;

/// A frame, by its stream and number.
type FrameKey = (Stream, u64);

/// A frame that has missing chunks.
struct Wanted {
    key: FrameKey,
    frame: StoredFrame,
    chunks: Vec<Slot>,
    /// Where it comes from.
    origin: Origin,
    is_here: bool,
}

impl Wanted {
    fn range(&self) -> Range<u64> {
        self.frame.range()
    }
}

/// A chunk in a frame.
#[derive(Clone, Copy)]
struct Slot {
    chunk: u64,
    name: ChunkName,
    bytes: u32,
    /// Where in the plain frame it begins.
    offset: u32,
    /// Where in the stream's unique bytes it belongs.
    at: u64,
}

/// Where a round begins: a row of a stream's lengths.
#[derive(Default)]
struct Cursor {
    stream: usize,
    row: usize,
}

/// Frames that are worked on together.
struct Round {
    /// In the order in which they end in the archive.
    wanted: Vec<Wanted>,
    bases: HashMap<FrameKey, Vec<Slot>>,
}

impl Getting<'_> {
    /// Fetches all chunks that are missing.
    pub(super) fn fetch_chunks(&mut self) -> Result<(), GetError> {
        let mut cursor = Cursor::default();
        while self.presence.missing() > 0 {
            let rounds = self.presence.missing().div_ceil(ROUND_CHUNKS) as usize;
            let keys = self.next_round(&mut cursor)?;
            let round = self.round(keys)?;
            self.fetch_round(&round, rounds)?;
        }
        Ok(())
    }

    /// The frames of the next missing chunks.
    fn next_round(&self, cursor: &mut Cursor) -> Result<Vec<FrameKey>, GetError> {
        let mut keys = HashSet::new();
        let mut missing = 0;
        while let Some(&stream) = Stream::ALL.get(cursor.stream) {
            let rows = self.archive.root().stream(stream).lengths.rows();
            while let Some(row) = rows.get(cursor.row) {
                if missing >= ROUND_CHUNKS {
                    return Ok(keys.into_iter().collect());
                }
                let places = self.archive.chunk_places(stream, cursor.row)?;
                for (chunk, (_, place)) in (row.before[0]..).zip(places) {
                    if !self.presence.has(stream, chunk) {
                        keys.insert((stream, place.frame));
                        missing += 1;
                    }
                }
                cursor.row += 1;
            }
            *cursor = Cursor {
                stream: cursor.stream + 1,
                row: 0,
            };
        }
        Ok(keys.into_iter().collect())
    }

    /// What the table says of frames; what it takes for that is fetched if it is not here.
    fn round(&mut self, keys: Vec<FrameKey>) -> Result<Round, GetError> {
        self.fetch_frame_parts(keys.iter().copied())?;
        let mut frames = HashMap::new();
        let mut bases = HashMap::new();
        for (stream, number) in keys {
            let frame = self.archive.frame_row(stream, number)?;
            if let Some(base) = frame.base {
                bases.insert((stream, base), Vec::new());
            }
            let wanted = Wanted {
                key: (stream, number),
                frame,
                chunks: Vec::new(),
                origin: Origin::Server,
                is_here: false,
            };
            frames.insert((stream, number), wanted);
        }
        self.fill(&mut frames, &mut bases)?;
        let mut wanted: Vec<Wanted> = frames.into_values().collect();
        wanted.sort_unstable_by_key(|wanted| (wanted.range().end, wanted.range().start));
        for wanted in &mut wanted {
            if let Some(origin) = self.put_stored(wanted.key, &wanted.frame)? {
                wanted.origin = origin;
                wanted.is_here = true;
            }
        }
        Ok(Round { wanted, bases })
    }

    /// Says which chunks are in frames: of wanted ones the missing, of bases all.
    fn fill(
        &self,
        frames: &mut HashMap<FrameKey, Wanted>,
        bases: &mut HashMap<FrameKey, Vec<Slot>>,
    ) -> Result<(), GetError> {
        for stream in Stream::ALL {
            let rows = self.archive.root().stream(stream).lengths.rows();
            for (row, length_row) in rows.iter().enumerate() {
                let [first, mut at, ..] = length_row.before;
                let places = self.archive.chunk_places(stream, row)?;
                let mut names = None;
                for (index, (bytes, place)) in places.into_iter().enumerate() {
                    let key = (stream, place.frame);
                    let chunk = first + index as u64;
                    let wanted = frames.get_mut(&key);
                    let wanted = wanted.filter(|_| !self.presence.has(stream, chunk));
                    let base = bases.get_mut(&key);
                    if wanted.is_some() || base.is_some() {
                        let names = match &names {
                            Some(names) => names,
                            None => names.insert(self.archive.chunk_names(stream, row)?),
                        };
                        let slot = Slot {
                            chunk,
                            name: names[index],
                            bytes,
                            offset: place.offset,
                            at,
                        };
                        if let Some(wanted) = wanted {
                            wanted.chunks.push(slot);
                        }
                        if let Some(base) = base {
                            base.push(slot);
                        }
                    }
                    at += u64::from(bytes);
                }
            }
        }
        for slots in bases.values_mut() {
            slots.sort_unstable_by_key(|slot| (slot.offset, slot.bytes));
        }
        Ok(())
    }

    fn fetch_round(&mut self, round: &Round, rounds: usize) -> Result<(), GetError> {
        let all = round.wanted.iter();
        let (here, arriving): (Vec<_>, Vec<_>) = all.partition(|wanted| wanted.is_here);
        let mut later = Vec::new();
        for wanted in here {
            self.take_apart(wanted, round, &mut later)?;
        }
        let ranges: Vec<_> = arriving.iter().map(|wanted| wanted.range()).collect();
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut done = 0;
        let mut arriving = arriving.into_iter().peekable();
        let kind: Kind = |report| &mut report.frames;
        self.fetch(&ranges, rounds, kind, &mut |getting, end| {
            while let Some(wanted) = arriving.next_if(|wanted| wanted.range().end <= end) {
                getting.take_apart(wanted, round, &mut later)?;
                done += u64::from(wanted.frame.stored_bytes);
            }
            getting.go_on(Phase::Frames, done, total)
        })?;
        self.take_apart_later(later, round)
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
            if let Some(wrong) = self.take_chunks(wanted, &plain)? {
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
            Some(base) => match self.rebuilt(stream, &round.bases[&(stream, base)])? {
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
            Ok(plain) => self.take_chunks(wanted, &plain)?,
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
    fn rebuilt(&self, stream: Stream, slots: &[Slot]) -> Result<Option<Vec<u8>>, GetError> {
        let mut plain = Vec::new();
        for slot in slots {
            let is_next = slot.offset as usize == plain.len();
            if !is_next || !self.presence.has(stream, slot.chunk) {
                return Ok(None);
            }
            let begin = plain.len();
            plain.resize(begin + slot.bytes as usize, 0);
            let source = self.archive.source();
            source.read_chunk(&mut plain[begin..], stream, slot.at)?;
        }
        Ok((!plain.is_empty()).then_some(plain))
    }

    /// Puts the chunks of a plain frame where they belong, up to one that is not what it should be.
    fn take_chunks(&mut self, wanted: &Wanted, plain: &[u8]) -> Result<Option<GetError>, GetError> {
        let (stream, _) = wanted.key;
        let is_encrypted = self.archive.header().encryption.is_some();
        for slot in &wanted.chunks {
            let begin = slot.offset as usize;
            let chunk = plain.get(begin..begin + slot.bytes as usize);
            // Where nothing names chunks, the frame's digest and its key have to do.
            let naming = self.naming.as_ref();
            let is_right = |chunk: &&[u8]| naming.is_none_or(|it| it.name(chunk) == slot.name);
            let Some(chunk) = chunk.filter(is_right) else {
                let chunk = slot.chunk;
                return Ok(Some(GetError::Chunk { stream, chunk }));
            };
            if self.presence.has(stream, slot.chunk) {
                continue;
            }
            self.put(stream, slot.chunk, slot.at, chunk)?;
            self.report.chunks_from(wanted.origin).add(chunk.len());
            if let (false, Origin::Server, Some(cache)) = (is_encrypted, wanted.origin, &self.cache)
            {
                cache.add(slot.name, chunk);
            }
        }
        Ok(None)
    }
}
