//! Parts of the table: read when something in them is asked for, and kept.

use std::{any::Any, sync::Arc};

use quick_cache::{Weighter, sync::Cache};
use zeroize::{Zeroize, Zeroizing};

use super::{Archive, ReadError, Source};
use crate::{
    crypt::{FrameKey, Place},
    format::{
        ChunkName, FormatError, Portion, Stream, Violation, digest,
        header::Profile,
        part::{self, ChunkPlace, LengthPart, PartKind, Run, StoredFrame},
        root::{PartList, PartPlace, PartRow, digest_bytes},
    },
    method::unpack_part,
};

/// A part by its kind, stream and row; the weave index is no stream's.
pub(crate) type PartKey = (PartKind, Option<Stream>, usize);

pub(super) type PartCache = Cache<PartKey, Arc<dyn Part>, PartWeight>;

/// A part that was read.
pub(super) trait Part: Any + Send + Sync {
    /// Bytes that it takes in memory.
    fn bytes(&self) -> usize;
}

impl<T: Send + Sync + 'static> Part for Vec<T> {
    fn bytes(&self) -> usize {
        size_of_val(&self[..])
    }
}

impl Part for LengthPart {
    fn bytes(&self) -> usize {
        self.starts.bytes() + self.places.bytes()
    }
}

/// A run of references, with its numbers and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReferenceRun {
    /// Where in the stream it begins.
    pub(super) start: u64,
    /// Its bytes.
    pub(super) bytes: u64,
    /// Where in the stream's unique bytes its first chunk begins.
    pub(super) unique_start: u64,
    /// Bytes after which it begins anew: those of one chunk that is repeated, else all of it.
    pub(super) period: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PartWeight;

impl Weighter<PartKey, Arc<dyn Part>> for PartWeight {
    fn weight(&self, _: &PartKey, part: &Arc<dyn Part>) -> u64 {
        part.bytes() as u64 + 128
    }
}

/// What the table says of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) stream: Stream,
    pub(crate) number: u64,
    pub(crate) name: ChunkName,
    /// Plain.
    pub(crate) bytes: u32,
    pub(crate) frame: u64,
    /// Where in the frame's plain bytes it begins.
    pub(crate) offset: u32,
    /// Where in the stream's unique bytes it begins.
    pub(crate) at: u64,
}

impl Chunk {
    /// Its bytes of a plain frame, if that has so many.
    pub(crate) fn of<'a>(&self, plain: &'a [u8]) -> Option<&'a [u8]> {
        let begin = self.offset as usize;
        plain.get(begin..begin.checked_add(self.bytes as usize)?)
    }
}

/// A chunk of a stream, or a part of it, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) chunk: u64,
    /// Where in the chunk.
    pub(super) within: u32,
    pub(super) frame: u64,
    /// Where in the frame's plain bytes.
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

/// What a length part says of a chunk in it; `before` is what all parts before it come to.
fn chunk_of(
    part: &LengthPart,
    before: &[u64; 6],
    within: usize,
    stream: Stream,
    name: ChunkName,
) -> Chunk {
    let number = before[0] + within as u64;
    let place = part.place(within, number);
    let begin = part.starts[within];
    Chunk {
        stream,
        number,
        name,
        bytes: part.starts[within + 1] - begin,
        frame: place.frame,
        offset: place.offset,
        at: before[1] + u64::from(begin),
    }
}

const WRONG_PART: FormatError = FormatError::Invalid(Violation::PartAndRoot);

fn has_digest(bytes: &[u8], place: &PartPlace, kind: PartKind) -> bool {
    digest::<20>(bytes).starts_with(&place.digest[..digest_bytes(kind)])
}

impl<S: Source> Archive<S> {
    /// The plain bytes of a part, checked.
    pub(crate) fn part_bytes(
        &self,
        kind: PartKind,
        stream: Option<Stream>,
        row: usize,
    ) -> Result<Vec<u8>, ReadError> {
        let place = &self.list(kind, stream).rows()[row].place;
        let damaged = || FormatError::Digest(Portion::Part(kind));
        let sealed = self.sealed_place(kind, stream, row);
        self.read_sound(place.offset, place.stored_bytes, |stored| {
            let mut stored = self.checked_part((kind, stream, row), stored)?;
            if let Some(sealed) = sealed {
                let private = &self.unlocked.as_ref().ok_or(ReadError::Locked)?.private;
                stored = private.open_part(sealed, stored).map_err(|_| damaged())?;
            }
            let plain = unpack_part(&stored, place.plain_bytes as usize).map_err(|_| damaged())?;
            if kind == PartKind::Keys {
                stored.zeroize();
            }
            match sealed.is_some() || has_digest(&plain, place, kind) {
                true => Ok(plain),
                false => Err(damaged().into()),
            }
        })
    }

    /// All parts of the table.
    pub(crate) fn parts(&self) -> impl Iterator<Item = PartKey> + '_ {
        let lists = Stream::ALL
            .into_iter()
            .flat_map(|stream| PartKind::OF_STREAMS.map(|kind| (kind, Some(stream))));
        lists
            .chain([(PartKind::WeaveIndex, None)])
            .flat_map(|(kind, stream)| {
                let rows = 0..self.list(kind, stream).rows().len();
                rows.map(move |row| (kind, stream, row))
            })
    }

    /// Whether a part is what it should be: as stored, where nothing opens it.
    pub(crate) fn check_part(&self, (kind, stream, row): PartKey) -> Result<(), ReadError> {
        let place = &self.list(kind, stream).rows()[row].place;
        let is_public = matches!(kind, PartKind::Chunks | PartKind::Frames);
        match self.is_locked() && !is_public {
            true => self.read_sound(place.offset, place.stored_bytes, |stored| {
                self.checked_part((kind, stream, row), stored)
            }),
            false => self.part_bytes(kind, stream, row),
        }
        .map(drop)
    }

    /// A part as stored: checked if it is sealed, for which no key is needed.
    fn checked_part(
        &self,
        (kind, stream, row): PartKey,
        stored: Vec<u8>,
    ) -> Result<Vec<u8>, ReadError> {
        let place = &self.list(kind, stream).rows()[row].place;
        let is_sealed = self.sealed_place(kind, stream, row).is_some();
        match !is_sealed || has_digest(&stored, place, kind) {
            true => Ok(stored),
            false => Err(FormatError::Digest(Portion::Part(kind)).into()),
        }
    }

    /// What a part is sealed for, if it is.
    fn sealed_place(&self, kind: PartKind, stream: Option<Stream>, row: usize) -> Option<Place> {
        self.header.encryption?;
        Place::of(kind, stream, row)
    }

    pub(crate) fn list(&self, kind: PartKind, stream: Option<Stream>) -> &PartList {
        match stream {
            Some(stream) => self.root.stream(stream).list(kind),
            None => &self.root.weave_index,
        }
    }

    fn part<T: Part>(
        &self,
        key: PartKey,
        read: impl FnOnce(&PartRow) -> Result<T, ReadError>,
    ) -> Result<Arc<T>, ReadError> {
        let (kind, stream, row) = key;
        let row = &self.list(kind, stream).rows()[row];
        let part: Arc<dyn Any + Send + Sync> = self
            .parts
            .get_or_insert_with(&key, || read(row).map(|part| Arc::new(part) as _))?;
        Ok(part.downcast().expect("the key says its kind"))
    }

    /// The names in a part of the table: those of the chunks that the row counts.
    ///
    /// # Errors
    /// If the part cannot be read, or is damaged.
    ///
    /// # Panics
    /// If the root has no such row.
    pub fn chunk_names(&self, stream: Stream, row: usize) -> Result<Vec<ChunkName>, ReadError> {
        let place = self.root.stream(stream).chunks.rows()[row].place;
        let bytes = self.part_bytes(PartKind::Chunks, Some(stream), row)?;
        Ok(part::parse_names(&bytes, place.items as usize)?)
    }

    /// The name of a chunk.
    ///
    /// # Errors
    /// If there is no such chunk, or the table is damaged.
    pub fn name(&self, stream: Stream, number: u64) -> Result<ChunkName, ReadError> {
        let list = &self.root.stream(stream).chunks;
        let (row, within) = list.item(number).ok_or(WRONG_PART)?;
        let key = (PartKind::Chunks, Some(stream), row);
        Ok(self.part(key, |_| self.chunk_names(stream, row))?[within])
    }

    /// What a row of frame parts says.
    pub(crate) fn frame_rows(
        &self,
        stream: Stream,
        row: usize,
    ) -> Result<Vec<StoredFrame>, ReadError> {
        let bytes = self.part_bytes(PartKind::Frames, Some(stream), row)?;
        let row = &self.root.stream(stream).frames.rows()[row];
        let place = &row.place;
        let frames = part::parse_frames(
            &bytes,
            place.items as usize,
            row.before[0],
            row.before[1],
            self.header.profile == Profile::Small,
            self.stored_frame_bytes_max(),
        )?;
        let end = frames
            .last()
            .map_or(0, |frame| frame.offset + u64::from(frame.stored_bytes));
        match end <= self.header.archive_bytes {
            true => Ok(frames),
            false => Err(FormatError::Truncated(Portion::Frames).into()),
        }
    }

    /// How many frames of `stream` were compressed against a base; all its frame parts are read for it.
    ///
    /// # Errors
    /// If they cannot be, or are damaged.
    pub fn frames_with_base(&self, stream: Stream) -> Result<u64, ReadError> {
        if self.header.profile == Profile::Shared {
            return Ok(0);
        }
        let rows = 0..self.root.stream(stream).frames.rows().len();
        rows.map(|row| {
            let frames = self.frame_rows(stream, row)?;
            Ok(frames.iter().filter(|frame| frame.base.is_some()).count() as u64)
        })
        .sum()
    }

    /// What the table says of a frame.
    ///
    /// # Errors
    /// If there is no such frame, or the table is damaged.
    pub fn frame_row(&self, stream: Stream, number: u64) -> Result<StoredFrame, ReadError> {
        let list = &self.root.stream(stream).frames;
        let item = list.item(number);
        let (row, within) = item.ok_or(FormatError::Invalid(Violation::NoSuchFrame))?;
        let key = (PartKind::Frames, Some(stream), row);
        Ok(self.part(key, |_| self.frame_rows(stream, row))?[within])
    }

    /// The key of a frame, if the archive is encrypted.
    pub(super) fn frame_key(
        &self,
        stream: Stream,
        number: u64,
    ) -> Result<Option<FrameKey>, ReadError> {
        if self.header.encryption.is_none() {
            return Ok(None);
        }
        let list = &self.root.stream(stream).keys;
        let (row, within) = list.item(number).ok_or(ReadError::Locked)?;
        let key = (PartKind::Keys, Some(stream), row);
        let keys = self.part(key, |key_row| {
            let bytes = Zeroizing::new(self.part_bytes(PartKind::Keys, Some(stream), row)?);
            let (keys, rest) = bytes.as_chunks();
            match keys.len() == key_row.place.items as usize && rest.is_empty() {
                true => Ok(keys.iter().copied().map(FrameKey).collect::<Vec<_>>()),
                false => Err(WRONG_PART.into()),
            }
        })?;
        Ok(Some(keys[within].clone()))
    }

    /// The part that has the lengths of the chunks in `row`.
    fn lengths(&self, stream: Stream, row: usize) -> Result<Arc<LengthPart>, ReadError> {
        let lists = self.root.stream(stream);
        self.part((PartKind::Lengths, Some(stream), row), |length_row| {
            let place = &length_row.place;
            let bytes = self.part_bytes(PartKind::Lengths, Some(stream), row)?;
            let frame_bytes_max = match self.header.profile {
                Profile::Small => Some(self.header.frame_bytes_max),
                Profile::Shared => None,
            };
            let count = place.items as usize;
            let chunk_bytes_max = self.header.chunk_bytes_max;
            let part = LengthPart::parse(&bytes, count, chunk_bytes_max, frame_bytes_max)?;
            let expected = lists.lengths.after(row)[1] - length_row.before[1];
            match part.starts.last().map(|&end| u64::from(end)) == Some(expected) {
                true => Ok(part),
                false => Err(WRONG_PART.into()),
            }
        })
    }

    /// All that the table says of the chunks in `row`.
    pub(crate) fn row_chunks(&self, stream: Stream, row: usize) -> Result<Vec<Chunk>, ReadError> {
        let before = &self.root.stream(stream).lengths.rows()[row].before;
        let names = self.chunk_names(stream, row)?;
        let part = self.lengths(stream, row)?;
        let chunks = names.into_iter().enumerate();
        let chunks = chunks.map(|(within, name)| chunk_of(&part, before, within, stream, name));
        Ok(chunks.collect())
    }

    /// All that the table says of a chunk.
    pub(super) fn chunk(&self, stream: Stream, number: u64) -> Result<Chunk, ReadError> {
        let list = &self.root.stream(stream).lengths;
        let (row, within) = list.item(number).ok_or(WRONG_PART)?;
        let part = self.lengths(stream, row)?;
        let name = self.name(stream, number)?;
        let before = &list.rows()[row].before;
        Ok(chunk_of(&part, before, within, stream, name))
    }

    /// How long the chunks in `row` are, and where they lie.
    pub(crate) fn chunk_places(
        &self,
        stream: Stream,
        row: usize,
    ) -> Result<Vec<(u32, ChunkPlace)>, ReadError> {
        let first = self.root.stream(stream).lengths.rows()[row].before[0];
        let part = self.lengths(stream, row)?;
        let chunks = (first..).zip(part.starts.windows(2)).enumerate();
        let places =
            chunks.map(|(within, (number, ends))| (ends[1] - ends[0], part.place(within, number)));
        Ok(places.collect())
    }

    /// Where chunk `number` begins in the unique bytes of its stream; `number` may be one too many.
    fn unique_start(&self, stream: Stream, number: u64) -> Result<u64, ReadError> {
        let list = &self.root.stream(stream).lengths;
        let Some(row) = list.find(0, number) else {
            return Ok(list.total(1));
        };
        let before = list.rows()[row].before;
        if before[0] == number {
            return Ok(before[1]);
        }
        let part = self.lengths(stream, row)?;
        Ok(before[1] + u64::from(part.starts[(number - before[0]) as usize]))
    }

    /// How long a chunk is.
    pub(super) fn chunk_bytes(&self, stream: Stream, number: u64) -> Result<u64, ReadError> {
        Ok(self.unique_start(stream, number + 1)? - self.unique_start(stream, number)?)
    }

    /// The chunk that holds `at` of the stream's unique bytes, from there on.
    pub(super) fn piece(&self, stream: Stream, at: u64) -> Result<Piece, ReadError> {
        let list = &self.root.stream(stream).lengths;
        let row = list.find(1, at).ok_or(WRONG_PART)?;
        let before = list.rows()[row].before;
        let part = self.lengths(stream, row)?;
        let within = (at - before[1]) as u32;
        let chunk = part.starts.partition_point(|&start| start <= within) - 1;
        let skipped = within - part.starts[chunk];
        let number = before[0] + chunk as u64;
        let place = part.place(chunk, number);
        Ok(Piece {
            chunk: number,
            within: skipped,
            frame: place.frame,
            offset: place.offset + skipped,
            bytes: part.starts[chunk + 1] - within,
        })
    }

    /// The run that holds `at` of the stream.
    pub(super) fn run_at(&self, stream: Stream, at: u64) -> Result<ReferenceRun, ReadError> {
        let list = &self.root.stream(stream).references;
        let row = list.find(2, at).ok_or(WRONG_PART)?;
        let key = (PartKind::References, Some(stream), row);
        let runs = self.part(key, |_| self.runs(stream, row))?;
        let run = runs.partition_point(|run| run.start <= at) - 1;
        Ok(runs[run])
    }

    fn runs(&self, stream: Stream, row: usize) -> Result<Vec<ReferenceRun>, ReadError> {
        let lists = self.root.stream(stream);
        let PartRow { place, before } = lists.references.rows()[row];
        let after = lists.references.after(row);
        let bytes = self.part_bytes(PartKind::References, Some(stream), row)?;
        let chunks = lists.chunks.items();
        let parsed = part::parse_runs(&bytes, place.items as usize, before[3], chunks)?;
        let (mut references, mut start, mut next) = (before[1], before[2], before[3]);
        let mut runs = Vec::with_capacity(parsed.len());
        for run in parsed {
            let count = run.count();
            let (first_chunk, chunks) = match run {
                Run::New { .. } => (next, count),
                Run::Copy { distance, .. } => (next - 1 - distance, count),
                Run::Repeat { distance, .. } => (next - 1 - distance, 1),
            };
            let unique_start = self.unique_start(stream, first_chunk)?;
            let period = self.unique_start(stream, first_chunk + chunks)? - unique_start;
            let bytes = match run {
                Run::Repeat { .. } => period.checked_mul(count),
                _ => Some(period),
            };
            if let Run::New { .. } = run {
                next += count;
            }
            let end = bytes.and_then(|bytes| start.checked_add(bytes));
            references = references.saturating_add(count);
            let (Some(bytes), Some(end)) = (bytes, end) else {
                return Err(WRONG_PART.into());
            };
            runs.push(ReferenceRun {
                start,
                bytes,
                unique_start,
                period,
            });
            start = end;
        }
        match [references, start, next] == after[1..4] {
            true => Ok(runs),
            false => Err(WRONG_PART.into()),
        }
    }

    /// The restart point at or before `at` of the plain content, and the next one, or the end.
    pub(super) fn stretch_at(&self, at: u64) -> Result<([u64; 5], [u64; 5]), ReadError> {
        let list = &self.root.weave_index;
        let row = list.find(1, at).ok_or(WRONG_PART)?;
        let five = |sums: [u64; 6]| [sums[1], sums[2], sums[3], sums[4], sums[5]];
        let end = five(list.after(row));
        let points = self.part((PartKind::WeaveIndex, None, row), |index_row| {
            let place = &index_row.place;
            let bytes = self.part_bytes(PartKind::WeaveIndex, None, row)?;
            let start = five(index_row.before);
            let count = place.items as usize;
            Ok(part::parse_points(&bytes, count, &start, &end)?)
        })?;
        let point = points.partition_point(|point| point[0] <= at) - 1;
        let next = points.get(point + 1).copied().unwrap_or(end);
        Ok((points[point], next))
    }
}
