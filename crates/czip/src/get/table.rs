//! Parts of the table: those that are known, and those that are fetched.
//!
//! A chunk part is known by its digest: of an earlier get, of the seeds or of the cache. Where it is,
//! its length part can be made of the lengths of the chunks, if the profile is `shared`; and what is
//! said of its frames is not needed. So a row of which all is known costs nothing.

use std::{collections::HashSet, ops::Range};

use super::{GetError, Getting, Phase, local::Local, seeds::Seeds};
use crate::{
    archive::{Archive, PartKey, ReadError},
    cache::Cache,
    format::{
        ChunkName, Stream, digest,
        header::Profile,
        part::{PartKind, encode_lengths, encode_names},
        root::{PartPlace, digest_bytes},
    },
    method::pack_part,
};

/// All frame parts of an archive in profile `small` are fetched along with the rest of the table, if
/// they have no more bytes than these; else later, those that are needed.
const FRAME_PARTS_BYTES_MAX: u64 = 256 << 10;

/// One in so many of the requests that are left is for parts.
const TABLE_SHARE: usize = 3;

/// A part that is fetched.
#[derive(Clone, Copy)]
pub(super) struct Part {
    kind: PartKind,
    /// None of the weave index.
    stream: Option<Stream>,
    row: usize,
    pub(super) place: PartPlace,
}

impl Part {
    /// A part of `stream`.
    pub(super) fn of(archive: &Archive<Local>, stream: Stream, kind: PartKind, row: usize) -> Self {
        Self::at(archive, (kind, Some(stream), row))
    }

    fn at(archive: &Archive<Local>, (kind, stream, row): PartKey) -> Self {
        Self {
            kind,
            stream,
            row,
            place: archive.list(kind, stream).rows()[row].place,
        }
    }

    pub(super) fn range(&self) -> Range<u64> {
        let start = self.place.offset;
        start..start.saturating_add(self.place.stored_bytes.into())
    }

    /// Whether it is here and right.
    pub(super) fn is_here(&self, archive: &Archive<Local>) -> bool {
        self.check(archive).is_ok()
    }

    fn check(&self, archive: &Archive<Local>) -> Result<(), ReadError> {
        archive.check_part((self.kind, self.stream, self.row))
    }

    /// Puts its plain bytes where the archive has it, if they are those, and pack to the same length.
    /// Of an encrypted archive only public parts are.
    pub(super) fn put(&self, archive: &Archive<Local>, plain: &[u8]) -> Result<bool, GetError> {
        let covered = &self.place.digest[..digest_bytes(self.kind)];
        let is_right = plain.len() == self.place.plain_bytes as usize
            && digest::<20>(plain).starts_with(covered);
        if !is_right || self.range().end > archive.header().archive_bytes {
            return Ok(false);
        }
        let stored = match self.place.stored_bytes == self.place.plain_bytes {
            true => plain.to_vec(),
            false => pack_part(plain)?,
        };
        if stored.len() != self.place.stored_bytes as usize {
            return Ok(false);
        }
        archive.source().write(&stored, self.place.offset)?;
        Ok(true)
    }
}

/// The parts that are not here and cannot be made of what is: to be fetched. Frame parts of chunks that
/// come by name are not among them.
pub(super) fn unknown(
    archive: &Archive<Local>,
    seeds: &mut Seeds,
    cache: Option<&Cache>,
    asks_by_name: bool,
) -> Result<Vec<Part>, GetError> {
    let root = archive.root();
    let is_shared = archive.header().profile == Profile::Shared;
    let is_encrypted = archive.header().encryption.is_some();
    let mut unknown = Vec::new();
    let mut want = |part: Part| {
        if !part.is_here(archive) {
            unknown.push(part);
        }
    };
    let frame_parts = Stream::ALL
        .iter()
        .flat_map(|&of| root.stream(of).frames.rows());
    let frame_bytes = frame_parts.map(|row| u64::from(row.place.stored_bytes));
    let takes_all_frames = !is_shared && frame_bytes.sum::<u64>() <= FRAME_PARTS_BYTES_MAX;
    for stream in Stream::ALL {
        let lists = root.stream(stream);
        let part = |kind, row| Part::of(archive, stream, kind, row);
        for row in 0..lists.chunks.rows().len() {
            let chunks = part(PartKind::Chunks, row);
            let lengths = part(PartKind::Lengths, row);
            let is_known =
                chunks.is_here(archive) || put_known(archive, &chunks, stream, seeds, cache)?;
            let mut is_length_known = lengths.is_here(archive);
            let mut is_all_here = is_known && !is_encrypted;
            if is_known && is_shared && (is_encrypted || !is_length_known) {
                let names = archive.chunk_names(stream, row)?;
                if let Some(known) = lengths_of(&names, stream, seeds, cache)? {
                    is_all_here = true;
                    if !is_encrypted {
                        is_length_known = lengths.put(archive, &encode_lengths(&known, None))?;
                    }
                }
            }
            if !is_known {
                want(chunks);
            }
            // Who asks for chunks by name need not know where they are.
            if is_shared && !is_all_here && !asks_by_name {
                frame_parts_of(archive, stream, row).for_each(&mut want);
            }
            if !is_length_known {
                want(lengths);
            }
        }
        if takes_all_frames {
            let rows = 0..lists.frames.rows().len();
            rows.for_each(|row| frame_parts_of(archive, stream, row).for_each(&mut want));
        }
        let rows = 0..lists.references.rows().len();
        rows.for_each(|row| want(part(PartKind::References, row)));
    }
    let index = all_parts(archive).filter(|part| part.kind == PartKind::WeaveIndex);
    index.for_each(want);
    Ok(unknown)
}

/// All parts.
pub(super) fn all_parts(archive: &Archive<Local>) -> impl Iterator<Item = Part> + '_ {
    archive.parts().map(|key| Part::at(archive, key))
}

/// What says where the frames of a row are, and what opens them if the archive is encrypted.
fn frame_parts_of(
    archive: &Archive<Local>,
    stream: Stream,
    row: usize,
) -> impl Iterator<Item = Part> + '_ {
    let kinds: &[_] = match archive.header().encryption {
        Some(_) => &[PartKind::Frames, PartKind::Keys],
        None => &[PartKind::Frames],
    };
    (kinds.iter()).map(move |&kind| Part::of(archive, stream, kind, row))
}

/// Puts a chunk part where it belongs, if seeds or cache have it.
fn put_known(
    archive: &Archive<Local>,
    part: &Part,
    stream: Stream,
    seeds: &mut Seeds,
    cache: Option<&Cache>,
) -> Result<bool, GetError> {
    if let Some(names) = seeds.part(stream, part.place.digest)? {
        return part.put(archive, &encode_names(&names));
    }
    match cache.and_then(|cache| cache.find(ChunkName(part.place.digest))) {
        Some(plain) => part.put(archive, &plain),
        None => Ok(false),
    }
}

/// The lengths of chunks, if all of them are known.
fn lengths_of(
    names: &[ChunkName],
    stream: Stream,
    seeds: &mut Seeds,
    cache: Option<&Cache>,
) -> Result<Option<Vec<u32>>, GetError> {
    let mut lengths = Vec::with_capacity(names.len());
    for &name in names {
        let mut bytes = seeds.chunk_bytes(stream, name)?;
        bytes = bytes.or_else(|| cache?.chunk_bytes(name));
        match bytes {
            Some(bytes) => lengths.push(bytes),
            None => return Ok(None),
        }
    }
    Ok(Some(lengths))
}

impl Getting<'_> {
    /// Fetches parts, and checks them.
    pub(super) fn fetch_parts(&mut self, parts: &[Part]) -> Result<(), GetError> {
        if let Some(named) = self.named {
            self.ask_edges_for_parts(named, parts)?;
        }
        let is_missing = |part: &&Part| !part.is_here(self.archive);
        let parts: Vec<_> = parts.iter().filter(is_missing).collect();
        if parts.is_empty() {
            return Ok(());
        }
        let ranges: Vec<_> = parts.iter().map(|part| part.range()).collect();
        let mut arrived = |getting: &mut Self, end| getting.go_on(Phase::Table, end, 0);
        // Most requests are left for frames, where gaps are longer.
        self.fetch(
            &ranges,
            TABLE_SHARE,
            |report| &mut report.table,
            &mut arrived,
        )?;
        for part in parts {
            part.check(self.archive)?;
        }
        Ok(())
    }

    /// Fetches what the table says of these frames, if it is not here.
    pub(super) fn fetch_frame_parts(
        &mut self,
        frames: impl Iterator<Item = (Stream, u64)>,
    ) -> Result<(), GetError> {
        let mut rows = HashSet::new();
        for (stream, number) in frames {
            let list = &self.archive.root().stream(stream).frames;
            rows.extend(list.find(0, number).map(|row| (stream, row)));
        }
        let parts = rows.into_iter();
        let unknown: Vec<Part> = parts
            .flat_map(|(stream, row)| frame_parts_of(self.archive, stream, row))
            .filter(|part| !part.is_here(self.archive))
            .collect();
        match unknown.is_empty() {
            true => Ok(()),
            false => self.fetch_parts(&unknown),
        }
    }

    /// Keeps all chunk parts in the cache: a next version of the archive has most of them.
    pub(super) fn keep_parts(&mut self) -> Result<(), GetError> {
        let Some(cache) = &self.cache else {
            return Ok(());
        };
        for stream in Stream::ALL {
            let rows = self.archive.root().stream(stream).chunks.rows();
            for (row, place) in rows.iter().map(|row| row.place).enumerate() {
                let digest = ChunkName(place.digest);
                if cache.chunk_bytes(digest).is_none() {
                    let plain = self
                        .archive
                        .part_bytes(PartKind::Chunks, Some(stream), row)?;
                    cache.add(digest, &plain);
                }
            }
        }
        Ok(())
    }
}
