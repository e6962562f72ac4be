//! Parts of the table: read when something in them is asked for, and kept.

use std::sync::Arc;

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

pub(super) type PartCache = Cache<PartKey, Arc<Part>, PartWeight>;

/// A part that was read.
#[derive(Debug)]
pub(super) enum Part {
    Names(Vec<ChunkName>),
    Frames(Vec<StoredFrame>),
    Keys(Vec<FrameKey>),
    Lengths(LengthPart),
    References(Vec<ReferenceRun>),
    Points(Vec<[u64; 5]>),
}

/// A run of references, with its numbers and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReferenceRun {
    /// Where in the stream it begins.
    pub(super) start: u64,
    /// Its bytes.
    pub(super) bytes: u64,
    /// Its first chunk.
    pub(super) first_chunk: u64,
    /// Where in the stream's unique bytes that begins.
    pub(super) unique_start: u64,
    /// Bytes after which it begins anew: those of one chunk that is repeated, else all of it.
    pub(super) period: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PartWeight;

impl Weighter<PartKey, Arc<Part>> for PartWeight {
    fn weight(&self, _: &PartKey, part: &Arc<Part>) -> u64 {
        let bytes = match &**part {
            Part::Names(names) => size_of_val(&names[..]),
            Part::Frames(frames) => size_of_val(&frames[..]),
            Part::Keys(keys) => size_of_val(&keys[..]),
            Part::Lengths(part) => size_of_val(&part.starts[..]) + size_of_val(&part.places[..]),
            Part::References(runs) => size_of_val(&runs[..]),
            Part::Points(points) => size_of_val(&points[..]),
        };
        bytes as u64 + 128
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

    /// A part as stored: checked if it is sealed, for which no key is needed.
    fn stored_part(
        &self,
        kind: PartKind,
        stream: Option<Stream>,
        row: usize,
    ) -> Result<Vec<u8>, ReadError> {
        let place = &self.list(kind, stream).rows()[row].place;
        self.read_sound(place.offset, place.stored_bytes, |stored| {
            self.checked_part((kind, stream, row), stored)
        })
    }

    /// All parts of the table.
    pub(crate) fn parts(&self) -> impl Iterator<Item = PartKey> + '_ {
        use PartKind::{Chunks, Frames, Keys, Lengths, References, WeaveIndex};
        let lists = Stream::ALL.into_iter().flat_map(|stream| {
            [Chunks, Frames, Lengths, References, Keys].map(|kind| (kind, Some(stream)))
        });
        lists
            .chain([(WeaveIndex, None)])
            .flat_map(|(kind, stream)| {
                let rows = 0..self.list(kind, stream).rows().len();
                rows.map(move |row| (kind, stream, row))
            })
    }

    /// Whether a part is what it should be: as stored, where nothing opens it.
    pub(crate) fn check_part(&self, (kind, stream, row): PartKey) -> Result<(), ReadError> {
        let is_public = matches!(kind, PartKind::Chunks | PartKind::Frames);
        match self.is_locked() && !is_public {
            true => self.stored_part(kind, stream, row),
            false => self.part_bytes(kind, stream, row),
        }
        .map(drop)
    }

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

    fn part(
        &self,
        key: PartKey,
        read: impl FnOnce(&PartRow) -> Result<Part, ReadError>,
    ) -> Result<Arc<Part>, ReadError> {
        let (kind, stream, row) = key;
        let row = &self.list(kind, stream).rows()[row];
        self.parts
            .get_or_insert_with(&key, || read(row).map(Arc::new))
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
        let row = list.find(0, number).ok_or(WRONG_PART)?;
        let key = (PartKind::Chunks, Some(stream), row);
        let part = self.part(key, |_| self.chunk_names(stream, row).map(Part::Names))?;
        let Part::Names(names) = &*part else {
            unreachable!("the key says its kind");
        };
        Ok(names[(number - list.rows()[row].before[0]) as usize])
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
        let Some(row) = list.find(0, number) else {
            return Err(FormatError::Invalid(Violation::NoSuchFrame).into());
        };
        let key = (PartKind::Frames, Some(stream), row);
        let part = self.part(key, |_| self.frame_rows(stream, row).map(Part::Frames))?;
        let Part::Frames(frames) = &*part else {
            unreachable!("the key says its kind");
        };
        Ok(frames[(number - list.rows()[row].before[0]) as usize])
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
        let row = list.find(0, number).ok_or(ReadError::Locked)?;
        let key = (PartKind::Keys, Some(stream), row);
        let part = self.part(key, |key_row| {
            let bytes = Zeroizing::new(self.part_bytes(PartKind::Keys, Some(stream), row)?);
            let (keys, rest) = bytes.as_chunks();
            match keys.len() == key_row.place.items as usize && rest.is_empty() {
                true => Ok(Part::Keys(keys.iter().copied().map(FrameKey).collect())),
                false => Err(WRONG_PART.into()),
            }
        })?;
        let Part::Keys(keys) = &*part else {
            unreachable!("the key says its kind");
        };
        let within = number - list.rows()[row].before[0];
        Ok(Some(keys[within as usize].clone()))
    }

    /// The part that has the lengths of the chunks in `row`.
    fn lengths(&self, stream: Stream, row: usize) -> Result<Arc<Part>, ReadError> {
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
            match part
                .starts
                .last()
                .is_some_and(|&end| u64::from(end) == expected)
            {
                true => Ok(Part::Lengths(part)),
                false => Err(WRONG_PART.into()),
            }
        })
    }

    /// All that the table says of the chunks in `row`.
    pub(crate) fn row_chunks(&self, stream: Stream, row: usize) -> Result<Vec<Chunk>, ReadError> {
        let [first, mut at, ..] = self.root.stream(stream).lengths.rows()[row].before;
        let names = self.chunk_names(stream, row)?;
        let places = self.chunk_places(stream, row)?;
        let chunks = (first..).zip(names).zip(places);
        let chunks = chunks.map(|((number, name), (bytes, place))| {
            let before = at;
            at += u64::from(bytes);
            Chunk {
                stream,
                number,
                name,
                bytes,
                frame: place.frame,
                offset: place.offset,
                at: before,
            }
        });
        Ok(chunks.collect())
    }

    /// All that the table says of a chunk.
    pub(super) fn chunk(&self, stream: Stream, number: u64) -> Result<Chunk, ReadError> {
        let (bytes, place) = self.chunk_place(stream, number)?;
        Ok(Chunk {
            stream,
            number,
            name: self.name(stream, number)?,
            bytes,
            frame: place.frame,
            offset: place.offset,
            at: self.unique_start(stream, number)?,
        })
    }

    /// How long the chunks in `row` are, and where they lie.
    pub(crate) fn chunk_places(
        &self,
        stream: Stream,
        row: usize,
    ) -> Result<Vec<(u32, ChunkPlace)>, ReadError> {
        let first = self.root.stream(stream).lengths.rows()[row].before[0];
        let part = self.lengths(stream, row)?;
        let Part::Lengths(part) = &*part else {
            unreachable!("the key says its kind");
        };
        let bytes = part.starts.windows(2).map(|ends| ends[1] - ends[0]);
        let alone = (first..).map(|frame| ChunkPlace { frame, offset: 0 });
        Ok(match part.places.is_empty() {
            true => bytes.zip(alone).collect(),
            false => bytes.zip(part.places.iter().copied()).collect(),
        })
    }

    /// How long a chunk is, and where it lies.
    fn chunk_place(&self, stream: Stream, number: u64) -> Result<(u32, ChunkPlace), ReadError> {
        let list = &self.root.stream(stream).lengths;
        let row = list.find(0, number).ok_or(WRONG_PART)?;
        let within = (number - list.rows()[row].before[0]) as usize;
        let part = self.lengths(stream, row)?;
        let Part::Lengths(part) = &*part else {
            unreachable!("the key says its kind");
        };
        let bytes = part.starts[within + 1] - part.starts[within];
        let alone = ChunkPlace {
            frame: number,
            offset: 0,
        };
        Ok((bytes, part.places.get(within).copied().unwrap_or(alone)))
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
        let Part::Lengths(part) = &*part else {
            unreachable!("the key says its kind");
        };
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
        let Part::Lengths(part) = &*part else {
            unreachable!("the key says its kind");
        };
        let within = (at - before[1]) as u32;
        let chunk = part.starts.partition_point(|&start| start <= within) - 1;
        let skipped = within - part.starts[chunk];
        let place = match part.places.get(chunk) {
            Some(&place) => place,
            None => ChunkPlace {
                frame: before[0] + chunk as u64,
                offset: 0,
            },
        };
        Ok(Piece {
            chunk: before[0] + chunk as u64,
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
        let part = self.part(key, |_| self.runs(stream, row).map(Part::References))?;
        let Part::References(runs) = &*part else {
            unreachable!("the key says its kind");
        };
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
                first_chunk,
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
        let part = self.part((PartKind::WeaveIndex, None, row), |index_row| {
            let place = &index_row.place;
            let bytes = self.part_bytes(PartKind::WeaveIndex, None, row)?;
            let start = five(index_row.before);
            let points = part::parse_points(&bytes, place.items as usize, &start, &end)?;
            Ok(Part::Points(points))
        })?;
        let Part::Points(points) = &*part else {
            unreachable!("the key says its kind");
        };
        let point = points.partition_point(|point| point[0] <= at) - 1;
        let next = points.get(point + 1).copied().unwrap_or(end);
        Ok((points[point], next))
    }
}
