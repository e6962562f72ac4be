//! Chunks of archives on the origin: out of the folder on disk, or by ranges.
//!
//! Frames are fetched, in few single ranges, checked and taken apart; all chunks of a fetched frame are
//! kept. A frame's base is made of its chunks where they are kept, as a get does.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
};

use bytes::Bytes;

use super::{
    counters::OriginCounters,
    flights::{Flight, Flights},
};
use crate::{
    archive::{Archive, READS_MAX, ReadError, RemoteSource, Source},
    cache::Cache,
    format::{
        ChunkName, FormatError, Stream, Violation, digest, header::Profile, part::StoredFrame,
    },
    remote::Remote,
};

/// Chunks that are brought at once have about so many bytes.
const BROUGHT_BYTES_MAX: u64 = 8 << 20;
/// Frames that are fetched at once have about so many.
const GROUP_BYTES: u64 = 8 << 20;
/// Of an archive with more chunks it is not known which are in a frame, but for those that are wanted.
const CHUNKS_LISTED_MAX: u64 = 1 << 17;
/// Memory for blocks of the table, an archive.
const BLOCKS_BYTES: u64 = 2 << 20;
const BLOCK_BYTES: u64 = 16 << 10;

type OriginArchive = Archive<Box<dyn Source>>;

pub(super) struct Supplies {
    store: Cache,
    flights: Flights,
    counters: Arc<OriginCounters>,
}

impl Supplies {
    pub(super) fn new(store: Cache, counters: Arc<OriginCounters>) -> Self {
        Self {
            store,
            flights: Flights::default(),
            counters,
        }
    }

    pub(super) fn store(&self) -> &Cache {
        &self.store
    }
}

/// What brings the chunks of an archive.
pub(in crate::serve) struct Supply {
    /// The number of the open archive.
    archive: u64,
    source: Arc<RemoteSource>,
    all: Arc<Supplies>,
    /// Chunks of the content by their frames, if they are few enough and share frames.
    by_frame: OnceLock<Vec<(u32, u32)>>,
}

struct Wanted {
    name: ChunkName,
    frame: u64,
    slot: Slot,
}

struct Slot {
    number: u64,
    bytes: u32,
    offset: u32,
}

/// What is brought: the wanted ones, some of which are here.
struct Bringing<'a> {
    archive: &'a OriginArchive,
    wanted: Vec<Wanted>,
    brought: Vec<Option<Bytes>>,
    /// Which of them are in a frame.
    in_frame: HashMap<u64, Vec<usize>>,
}

impl Supply {
    pub(in crate::serve) const SPAN_BYTES: u64 = 4 << 20;

    /// What brings the chunks of the archive at `remote`, and what its table is read of; none if its
    /// server does not send parts of it.
    pub(super) fn new(
        archive: u64,
        remote: Remote,
        all: Arc<Supplies>,
    ) -> Result<(Self, Arc<RemoteSource>), ReadError> {
        let source = RemoteSource::new(remote, BLOCKS_BYTES, BLOCK_BYTES);
        let source = Arc::new(source.map_err(std::io::Error::other)?);
        let supply = Self {
            archive,
            source: source.clone(),
            all,
            by_frame: OnceLock::new(),
        };
        Ok((supply, source))
    }

    /// What it takes in memory.
    pub(in crate::serve) fn weight(&self) -> u64 {
        BLOCKS_BYTES + BLOCK_BYTES + CHUNKS_LISTED_MAX * 8
    }

    /// The plain bytes of chunks of the content, each by its name and number: of the first, and of as many
    /// that follow as are brought at once.
    ///
    /// # Errors
    /// If the archive is damaged, or a chunk that is not kept cannot be fetched.
    pub(in crate::serve) fn bring(
        &self,
        archive: &OriginArchive,
        chunks: &[(ChunkName, u64)],
    ) -> Result<Vec<Bytes>, ReadError> {
        let mut wanted = Vec::new();
        let mut in_frame: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut total = 0;
        for &(name, number) in chunks {
            let (bytes, place) = archive.chunk_place(Stream::Content, number)?;
            total += u64::from(bytes);
            if total > BROUGHT_BYTES_MAX && !wanted.is_empty() {
                break;
            }
            let all = in_frame.entry(place.frame).or_default();
            all.push(wanted.len());
            wanted.push(Wanted {
                name,
                frame: place.frame,
                slot: Slot {
                    number,
                    bytes,
                    offset: place.offset,
                },
            });
        }
        let mut bringing = Bringing {
            archive,
            brought: vec![None; wanted.len()],
            wanted,
            in_frame,
        };
        bringing.look_up(&self.all);
        while !bringing.frames().is_empty() {
            let Some(flight) = self.all.flights.begin(self.archive, &bringing.frames()) else {
                bringing.look_up(&self.all);
                continue;
            };
            // Others may have brought some since the last look.
            bringing.look_up(&self.all);
            self.fetch(&mut bringing, &flight)?;
        }
        let fetched = bringing.brought.into_iter().flatten().collect();
        Ok(fetched)
    }

    /// Fetches those of the wanted chunks that are in the flight's frames.
    fn fetch(&self, bringing: &mut Bringing<'_>, flight: &Flight<'_>) -> Result<(), ReadError> {
        let mut frames = Vec::new();
        for number in bringing.frames().intersection(&flight.frames) {
            frames.push((
                *number,
                bringing.archive.frame_row(Stream::Content, *number)?,
            ));
        }
        frames.sort_unstable_by_key(|(number, frame)| (frame.offset, *number));
        let mut rest = &frames[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let count = rest.iter().take_while(|(_, frame)| {
                let is_first = bytes == 0;
                bytes += u64::from(frame.stored_bytes).max(1);
                is_first || bytes <= GROUP_BYTES
            });
            let (group, behind) = rest.split_at(count.count());
            rest = behind;
            self.fetch_group(bringing, group)?;
        }
        Ok(())
    }

    fn fetch_group(
        &self,
        bringing: &mut Bringing<'_>,
        group: &[(u64, StoredFrame)],
    ) -> Result<(), ReadError> {
        let archive = bringing.archive;
        // Bases: those that can be made of what is kept, and those that have to come too.
        let mut plain: HashMap<u64, Bytes> = HashMap::new();
        let mut rows: HashMap<u64, StoredFrame> = group.iter().copied().collect();
        let bases: BTreeSet<u64> = group.iter().filter_map(|(_, frame)| frame.base).collect();
        for &base in &bases {
            match self.rebuild(archive, base)? {
                Some(bytes) => {
                    plain.insert(base, bytes);
                }
                None => {
                    rows.insert(base, archive.frame_row(Stream::Content, base)?);
                }
            }
        }
        let is_rebuilt: BTreeSet<u64> = plain.keys().copied().collect();
        let mut stored = self.fetch_stored(archive, &rows)?;
        let mut numbers: Vec<u64> = rows.keys().copied().collect();
        numbers.sort_unstable_by_key(|number| (rows[number].base.is_some(), *number));
        for number in numbers {
            let frame = &rows[&number];
            let bytes = stored.remove(&number).expect("it was fetched");
            let unpack = |base: Option<&Bytes>, bytes: Vec<u8>| {
                archive.unpack_frame((Stream::Content, number), bytes, base.map(|base| &base[..]))
            };
            let unpacked = match frame.base {
                None => unpack(None, bytes)?,
                Some(base) => {
                    let violation = Violation::BaseOfBase;
                    let missing = ReadError::from(FormatError::Invalid(violation));
                    let base_bytes = plain.get(&base).ok_or(missing)?;
                    match unpack(Some(base_bytes), bytes.clone()) {
                        Ok(unpacked) if self.is_right(archive, number, &unpacked)? => unpacked,
                        // The base may hold what no chunk does.
                        _ if is_rebuilt.contains(&base) => {
                            let fetched = self.fetch_frame(archive, base)?;
                            let unpacked = unpack(Some(&fetched), bytes)?;
                            plain.insert(base, fetched);
                            unpacked
                        }
                        other => other?,
                    }
                }
            };
            let unpacked = Bytes::from(unpacked);
            self.take_apart(bringing, number, &unpacked)?;
            if bases.contains(&number) && frame.base.is_none() {
                plain.insert(number, unpacked);
            }
        }
        Ok(())
    }

    /// A frame alone, which has no base.
    fn fetch_frame(&self, archive: &OriginArchive, number: u64) -> Result<Bytes, ReadError> {
        let row = archive.frame_row(Stream::Content, number)?;
        let mut stored = self.fetch_stored(archive, &HashMap::from([(number, row)]))?;
        let stored = stored.remove(&number).expect("it was fetched");
        let plain = archive.unpack_frame((Stream::Content, number), stored, None)?;
        Ok(plain.into())
    }

    /// Frames as stored, checked.
    fn fetch_stored(
        &self,
        archive: &OriginArchive,
        rows: &HashMap<u64, StoredFrame>,
    ) -> Result<HashMap<u64, Vec<u8>>, ReadError> {
        let mut arriving: Vec<(u64, Range<u64>, Vec<u8>)> = (rows.iter())
            .map(|(&number, frame)| (number, frame.range(), vec![0; frame.stored_bytes as usize]))
            .collect();
        arriving.sort_unstable_by_key(|(number, range, _)| (range.start, *number));
        let limit = archive.stored_frame_bytes_max();
        let is_right = |(number, _, frame): &(u64, Range<u64>, Vec<u8>)| {
            frame.len() as u64 <= limit && digest(frame) == rows[number].digest
        };
        let mut arrived = HashMap::new();
        let mut reads = 0;
        loop {
            self.fetch_ranges(&mut arriving)?;
            reads += 1;
            let (right, damaged): (Vec<_>, Vec<_>) = arriving.into_iter().partition(is_right);
            arrived.extend(right.into_iter().map(|(number, _, frame)| (number, frame)));
            match damaged.first() {
                None => return Ok(arrived),
                Some((number, ..)) if reads == READS_MAX => {
                    return Err(ReadError::damaged_frame(Stream::Content, *number));
                }
                // Something on the way to here may have damaged them.
                Some((_, range, _)) => {
                    self.source.remote().forget(range.start);
                    arriving = damaged;
                }
            }
        }
    }

    /// Fetches ranges of the archive, which are in order.
    fn fetch_ranges(&self, arriving: &mut [(u64, Range<u64>, Vec<u8>)]) -> Result<(), ReadError> {
        let ranges: Vec<_> = arriving.iter().map(|(_, range, _)| range.clone()).collect();
        let fetched: Result<(), crate::remote::RemoteError> =
            self.source.remote().fetch(&ranges, &mut |offset, bytes| {
                let end = offset + bytes.len() as u64;
                for (_, range, frame) in &mut *arriving {
                    let (from, to) = (range.start.max(offset), range.end.min(end));
                    if from < to {
                        let into = (from - range.start) as usize..(to - range.start) as usize;
                        let of = (from - offset) as usize..(to - offset) as usize;
                        frame[into].copy_from_slice(&bytes[of]);
                    }
                }
                Ok(())
            });
        Ok(fetched.map_err(std::io::Error::other)?)
    }

    /// Keeps the chunks of a plain frame, and takes those that are wanted.
    fn take_apart(
        &self,
        bringing: &mut Bringing<'_>,
        frame: u64,
        plain: &Bytes,
    ) -> Result<(), ReadError> {
        let archive = bringing.archive;
        let damaged = || ReadError::damaged_frame(Stream::Content, frame);
        let mut kept = Vec::new();
        for slot in self.slots(archive, frame)?.unwrap_or_default() {
            let name = archive.name(Stream::Content, slot.number)?;
            if let Some(chunk) = slot.of(plain).filter(|chunk| ChunkName::of(chunk) == name) {
                kept.push((name, plain.slice_ref(chunk)));
            }
        }
        let wanted_here = bringing.in_frame.get(&frame);
        for &index in wanted_here.into_iter().flatten() {
            let (wanted, brought) = (&bringing.wanted[index], &mut bringing.brought[index]);
            if brought.is_some() {
                continue;
            }
            let chunk = wanted.slot.of(plain).ok_or_else(damaged)?;
            if ChunkName::of(chunk) != wanted.name {
                return Err(damaged());
            }
            kept.push((wanted.name, plain.slice_ref(chunk)));
            // A slice would keep all of the frame in memory.
            *brought = Some(Bytes::copy_from_slice(chunk));
            self.all.counters.chunks_fetched.fetch_add(1, Relaxed);
        }
        for (name, chunk) in kept {
            self.all.store.add(name, &chunk);
        }
        self.all.store.flush();
        Ok(())
    }

    /// Whether the chunks of a plain frame, as far as they are known, are in it.
    fn is_right(
        &self,
        archive: &OriginArchive,
        frame: u64,
        plain: &[u8],
    ) -> Result<bool, ReadError> {
        for slot in self.slots(archive, frame)?.unwrap_or_default() {
            let name = archive.name(Stream::Content, slot.number)?;
            if slot
                .of(plain)
                .is_none_or(|chunk| ChunkName::of(chunk) != name)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The plain bytes of a frame that consists of chunks that are kept.
    fn rebuild(&self, archive: &OriginArchive, frame: u64) -> Result<Option<Bytes>, ReadError> {
        let Some(slots) = self.slots(archive, frame)? else {
            return Ok(None);
        };
        let mut plain = Vec::new();
        for slot in slots {
            let name = archive.name(Stream::Content, slot.number)?;
            let is_next = slot.offset as usize == plain.len();
            match self.all.store.find(name).filter(|_| is_next) {
                Some(chunk) => plain.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
        Ok((!plain.is_empty()).then(|| plain.into()))
    }

    /// The chunks of a frame, by where they begin in it; none if that is not known.
    fn slots(&self, archive: &OriginArchive, frame: u64) -> Result<Option<Vec<Slot>>, ReadError> {
        let lengths = &archive.root().stream(Stream::Content).lengths;
        let is_listed = archive.header().profile == Profile::Small
            && lengths.items() <= CHUNKS_LISTED_MAX
            && frame <= u64::from(u32::MAX);
        if !is_listed {
            return Ok(None);
        }
        let by_frame = match self.by_frame.get() {
            Some(by_frame) => by_frame,
            None => {
                let mut by_frame = Vec::new();
                for row in 0..lengths.rows().len() {
                    let first = lengths.rows()[row].before[0];
                    let places = archive.chunk_places(Stream::Content, row)?;
                    for (number, (_, place)) in (first..).zip(places) {
                        if let Ok(frame) = u32::try_from(place.frame) {
                            by_frame.push((frame, number as u32));
                        }
                    }
                }
                by_frame.sort_unstable();
                self.by_frame.get_or_init(|| by_frame)
            }
        };
        let first = by_frame.partition_point(|&(of, _)| u64::from(of) < frame);
        let numbers = by_frame[first..].iter();
        let numbers = numbers.take_while(|&&(of, _)| u64::from(of) == frame);
        let mut slots = Vec::new();
        for &(_, number) in numbers {
            let number = u64::from(number);
            let (bytes, place) = archive.chunk_place(Stream::Content, number)?;
            slots.push(Slot {
                number,
                bytes,
                offset: place.offset,
            });
        }
        slots.sort_unstable_by_key(|slot| (slot.offset, slot.bytes));
        Ok(Some(slots))
    }
}

impl Bringing<'_> {
    /// The frames of those that are missing.
    fn frames(&self) -> BTreeSet<u64> {
        let missing = self.wanted.iter().zip(&self.brought);
        missing
            .filter(|(_, brought)| brought.is_none())
            .map(|(wanted, _)| wanted.frame)
            .collect()
    }

    /// Takes what is kept.
    fn look_up(&mut self, all: &Supplies) {
        for (wanted, brought) in self.wanted.iter().zip(&mut self.brought) {
            if brought.is_none() {
                *brought = all.store.find(wanted.name).map(Bytes::from);
                let found = u64::from(brought.is_some());
                all.counters.chunks_kept.fetch_add(found, Relaxed);
            }
        }
    }
}

impl Slot {
    /// Its bytes of a plain frame, if that has so many.
    fn of<'a>(&self, plain: &'a [u8]) -> Option<&'a [u8]> {
        let begin = self.offset as usize;
        plain.get(begin..begin.checked_add(self.bytes as usize)?)
    }
}
