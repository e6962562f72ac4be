//! One stream of an archive that is being made: cut, named, deduplicated, packed.

use std::{collections::VecDeque, io, ops::Range, sync::Arc};

use refrain_codec::chunk::{hash::ChunkHash, recent::RecentChunks};

use super::{
    CreateError, CreateOptions, SMALL_CHUNK_BYTES,
    frames::FrameMaker,
    packer::{Cohort, Pack, Packer},
    parts::PartSpool,
    references::References,
    row::Row,
    seal::Seal,
};
use crate::{
    archive::Naming,
    chunker::Chunker,
    format::{
        ChunkName, Stream,
        header::Profile,
        part::{self, ChunkPlace, PartKind, encode_lengths, encode_names, ends_part},
    },
    method::Method,
    records::{Entry, Records},
};

/// Bytes that are cut but not yet named: many chunks are hashed at once much faster than one by one.
const UNNAMED_BYTES_MAX: usize = 1 << 20;

/// In the place of a number: an earlier archive has the chunk, and this one does not yet.
const EARLIER: u64 = u64::MAX;

pub(super) struct StreamMaker {
    stream: Stream,
    chunker: Chunker,
    /// Bytes from `unnamed_start` of the stream on.
    unnamed: Vec<u8>,
    unnamed_start: u64,
    /// Where chunks in them end.
    ends: Vec<u64>,
    hashes: Vec<ChunkHash>,
    /// The numbers of chunks, by name.
    numbers: RecentChunks<u64>,
    rows: Records<{ Entry::BYTES }>,
    chunks: PartSpool,
    lengths: PartSpool,
    references: References,
    packer: Packer,
    /// From where on in the stream what was written when, of what is not yet named.
    written: VecDeque<(u64, i64)>,
    /// Of the chunk that was named last.
    cohort: Cohort,
    is_shared: bool,
    naming: Naming,
    /// Chunks in the part of names to come.
    part_chunks: usize,
    /// Bytes of the chunks so far.
    pub(super) bytes: u64,
    /// Bytes of those among them that are no repeats.
    pub(super) unique_bytes: u64,
    pub(super) reference_count: u64,
}

impl StreamMaker {
    pub(super) fn new(stream: Stream, options: &CreateOptions, seal: Option<&Arc<Seal>>) -> Self {
        // Of what is remembered of chunks, nearly all is of content.
        let (chunking, index_bytes) = match stream {
            Stream::Content => (options.chunking, options.index_bytes / 8 * 7),
            _ => (
                options.chunking.at_most(SMALL_CHUNK_BYTES),
                options.index_bytes / 32,
            ),
        };
        let packer = match options.profile {
            Profile::Small => {
                let can_have = options.compression.method() == Method::Zstd;
                Packer::new(options.frame_bytes as usize, options.has_bases && can_have)
            }
            Profile::Shared => Packer::new(0, false),
        };
        let folder = &options.temporary;
        let parts = |kind| PartSpool::new(kind, Some(stream), folder, seal);
        Self {
            stream,
            chunker: Chunker::new(chunking),
            unnamed: Vec::new(),
            unnamed_start: 0,
            ends: Vec::new(),
            hashes: Vec::new(),
            numbers: RecentChunks::within(index_bytes),
            rows: Records::new(folder),
            chunks: parts(PartKind::Chunks),
            lengths: parts(PartKind::Lengths),
            references: References::new(parts(PartKind::References)),
            packer,
            written: VecDeque::new(),
            cohort: Cohort::default(),
            is_shared: options.profile == Profile::Shared,
            naming: seal.map_or(Naming::Plain, |seal| Naming::Keyed(seal.group.clone())),
            part_chunks: 0,
            bytes: 0,
            unique_bytes: 0,
            reference_count: 0,
        }
    }

    /// An earlier archive has a chunk of this name: it is kept apart from others.
    pub(super) fn keep_apart(&mut self, name: ChunkName) {
        let hash = ChunkHash(name.0);
        if self.numbers.find(&hash).is_none() {
            self.numbers.insert(&hash, EARLIER);
        }
    }

    /// Names that found no room, as often as one was forgotten.
    pub(super) fn forgotten(&self) -> u64 {
        self.numbers.forgotten()
    }

    pub(super) fn chunks(&self) -> u64 {
        self.rows.len()
    }

    /// The next bytes of the stream.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        frames: &mut FrameMaker,
    ) -> Result<(), CreateError> {
        self.chunker.feed(bytes, &mut self.ends);
        self.unnamed.extend_from_slice(bytes);
        match self.unnamed.len() >= UNNAMED_BYTES_MAX {
            true => self.name_chunks(frames),
            false => Ok(()),
        }
    }

    /// What comes was written at this time.
    pub(super) fn written(&mut self, mtime: i64) {
        let at = self.unnamed_start + self.unnamed.len() as u64;
        // Members without content are many in some archives.
        self.written.pop_back_if(|(last, _)| *last == at);
        self.written.push_back((at, mtime));
    }

    /// A file, or a member of a container, ends here.
    pub(super) fn boundary(&mut self) {
        self.chunker.boundary(&mut self.ends);
    }

    fn name_chunks(&mut self, frames: &mut FrameMaker) -> Result<(), CreateError> {
        let mut begin = 0;
        let chunks: Vec<Range<usize>> = (self.ends.drain(..))
            .map(|end| {
                let end = (end - self.unnamed_start) as usize;
                std::mem::replace(&mut begin, end)..end
            })
            .collect();
        let unnamed = std::mem::take(&mut self.unnamed);
        let mut hashes = std::mem::take(&mut self.hashes);
        self.naming.name_all(&unnamed, &chunks, &mut hashes);
        for (chunk, ChunkHash(name)) in chunks.into_iter().zip(&hashes) {
            self.date(self.unnamed_start + chunk.start as u64);
            self.add(ChunkName(*name), &unnamed[chunk], frames)?;
        }
        self.hashes = hashes;
        self.unnamed = unnamed;
        self.unnamed.drain(..begin);
        self.unnamed_start += begin as u64;
        Ok(())
    }

    /// Finds when the next chunk to be named was written, by where it begins.
    fn date(&mut self, begin: u64) {
        while let Some((_, mtime)) = self.written.pop_front_if(|(at, _)| *at <= begin) {
            self.cohort.mtime = mtime;
        }
    }

    fn add(
        &mut self,
        name: ChunkName,
        chunk: &[u8],
        frames: &mut FrameMaker,
    ) -> Result<(), CreateError> {
        let bytes = chunk.len() as u32;
        self.bytes += u64::from(bytes);
        self.reference_count += 1;
        let (hash, number) = (ChunkHash(name.0), self.rows.len());
        self.cohort.is_earlier = match self.numbers.find(&hash) {
            Some(earlier) if *earlier == EARLIER => {
                *earlier = number;
                true
            }
            Some(&mut known) => return Ok(self.references.push(known, bytes)?),
            None => {
                self.numbers.insert(&hash, number);
                false
            }
        };
        // Its place is not known yet.
        let place = ChunkPlace::default();
        self.rows.push(Row { name, bytes, place }.to_bytes())?;
        self.references.push(number, bytes)?;
        self.unique_bytes += u64::from(bytes);
        self.part_chunks += 1;
        let ends_part = ends_part(name, number, self.part_chunks);
        if ends_part {
            self.part_chunks = 0;
        }
        if let Some(pack) = self.packer.push(number, chunk, self.cohort) {
            self.frame(pack, self.is_shared && ends_part, frames)?;
        }
        Ok(())
    }

    fn frame(
        &mut self,
        mut pack: Pack,
        ends_part: bool,
        frames: &mut FrameMaker,
    ) -> Result<(), CreateError> {
        let plain = std::mem::take(&mut pack.plain);
        let frame = frames.make(self.stream, plain, pack.base, ends_part)?;
        for &(number, offset) in &pack.chunks {
            let mut row = Row::from_bytes(self.rows.get(number)?);
            row.place = ChunkPlace { frame, offset };
            self.rows.set(number, row.to_bytes())?;
        }
        self.packer.became(&pack, frame);
        Ok(())
    }

    /// The stream ends: what is left goes into frames.
    pub(super) fn end(&mut self, frames: &mut FrameMaker) -> Result<(), CreateError> {
        self.chunker.finish(&mut self.ends);
        self.name_chunks(frames)?;
        while let Some(pack) = self.packer.finish() {
            self.frame(pack, false, frames)?;
        }
        Ok(())
    }

    /// What the table says of its chunks.
    pub(super) fn parts(mut self) -> io::Result<[PartSpool; 3]> {
        let count = self.rows.len();
        let mut rows: Vec<Row> = Vec::new();
        let mut read = 0;
        loop {
            if rows.len() < part::CHUNKS_MAX && read < count {
                let more = (read + 4096).min(count);
                rows.extend(self.rows.read(read..more)?.into_iter().map(Row::from_bytes));
                read = more;
            }
            let first = read - rows.len() as u64;
            let mut numbered = (first..).zip(1..).zip(&rows);
            let end =
                numbered.position(|((number, place), row)| ends_part(row.name, number, place));
            let items = match end {
                Some(last) => last + 1,
                None if rows.is_empty() => break,
                None => rows.len(),
            };
            let part: Vec<Row> = rows.drain(..items).collect();
            let names: Vec<ChunkName> = part.iter().map(|row| row.name).collect();
            let bytes: Vec<u32> = part.iter().map(|row| row.bytes).collect();
            let places: Vec<ChunkPlace> = part.iter().map(|row| row.place).collect();
            let sum = bytes.iter().map(|&bytes| u64::from(bytes)).sum();
            let places = (!self.is_shared).then_some(&places[..]);
            self.chunks.push(items, encode_names(&names), [0; 5])?;
            let encoded = encode_lengths(&bytes, places);
            self.lengths.push(items, encoded, [sum, 0, 0, 0, 0])?;
        }
        Ok([self.chunks, self.lengths, self.references.finish()?])
    }
}
