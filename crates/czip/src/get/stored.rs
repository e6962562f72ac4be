//! Stored frames that are here: in archives among the seeds, in what the address had before, and in the
//! cache.
//!
//! They are known by the digests of their stored bytes, which the public table of each archive has. So
//! they are found without keys where archives are encrypted, and where nobody could make them of their
//! chunks: in profile `small`, or at another level of the compressor. Parts of the table are known in
//! the same way. Of archives only tables are read, until a frame is wanted; what is read is checked.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{
    GetError, GetOptions, Getting,
    part_folder::PartFolder,
    places::{Place, Places},
    reading_seeds,
    report::{Origin, UnusedSeed},
    seeds::{Seeds, chunking, open_archive, walk_seed},
    table::Part,
};
use crate::{
    archive::{Archive, FileSource, Naming},
    cache::short_name,
    format::{
        ChunkName, Stream, digest,
        header::{Header, Profile},
        part::{PartKind, StoredFrame},
        root::{PartPlace, digest_bytes},
    },
    method::unpack_part,
};

/// What a part is kept by.
fn part_name(kind: PartKind, place: &PartPlace) -> ChunkName {
    match digest_bytes(kind) {
        ChunkName::BYTES => ChunkName(place.digest),
        _ => short_name(*place.digest.first_chunk().expect("12 of 20 bytes")),
    }
}

/// Parts of an archive's streams that other archives may have as well: those that no key of its own seals.
fn shared_parts(header: &Header) -> &'static [PartKind] {
    use PartKind::{Chunks, Frames, Lengths, References};
    match header.encryption {
        Some(_) => &[Chunks, Frames],
        None => &[Chunks, Frames, Lengths, References],
    }
}

/// Where an archive is that has frames.
enum Whence {
    /// A seed. There may be more of them than files that can be open.
    Path(PathBuf),
    File(File),
}

/// Stored frames, and parts of tables, of archives that are here.
pub(super) struct Stored {
    archives: Vec<(Whence, Origin)>,
    places: Places,
    /// The archive that was read last, by its number.
    open: Option<(u32, File)>,
}

impl Stored {
    /// None yet; places that memory is too small for go to files in a folder.
    pub(super) fn new((index_bytes, folder): (usize, &Path)) -> Self {
        Self {
            archives: Vec::new(),
            places: Places::new(index_bytes, folder),
            open: None,
        }
    }

    fn add_archive(
        &mut self,
        archive: &Archive<FileSource>,
        kept: (Whence, Origin),
    ) -> Result<(), GetError> {
        let of = self.archives.len() as u32;
        self.archives.push(kept);
        for stream in Stream::ALL {
            let lists = archive.root().stream(stream);
            for &kind in shared_parts(archive.header()) {
                for part in lists.list(kind).rows().iter().map(|row| row.place) {
                    let (at, bytes) = (part.offset, part.stored_bytes);
                    self.places
                        .add(part_name(kind, &part), Place { at, bytes, of })?;
                }
            }
            for row in 0..lists.frames.rows().len() {
                // Where the table is damaged, or a hole, its frames are not known.
                let Ok(frames) = archive.frame_rows(stream, row) else {
                    continue;
                };
                for frame in frames {
                    let (at, bytes) = (frame.offset, frame.stored_bytes);
                    self.places
                        .add(short_name(frame.digest), Place { at, bytes, of })?;
                }
            }
        }
        Ok(())
    }

    /// Takes what all archives in a seed have. Whether there is one, and what could not be read.
    fn add_seed(
        &mut self,
        seed: &Path,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(bool, Option<io::Error>), GetError> {
        let mut has_archives = false;
        let unread = walk_seed(seed, &mut |found| {
            if !go_on() {
                return Err(GetError::Interrupted);
            }
            let file = found.file.and_then(|_| File::open(&found.path).ok());
            let Some(archive) = file.and_then(open_archive) else {
                return Ok(());
            };
            has_archives = true;
            self.add_archive(&archive, (Whence::Path(found.path), Origin::Seeds))
        })?;
        Ok((has_archives, unread))
    }

    /// Bytes that are kept by this name, unchecked, and of which kind of archive they are.
    fn find(&mut self, name: ChunkName) -> Result<Option<(Vec<u8>, Origin)>, GetError> {
        let Some((_, place)) = self.places.find(name)? else {
            return Ok(None);
        };
        let (whence, origin) = &self.archives[place.of as usize];
        let is_open = self.open.as_ref().is_some_and(|(of, _)| *of == place.of);
        if !is_open {
            let opened = match whence {
                Whence::Path(path) => File::open(path),
                Whence::File(file) => file.try_clone(),
            };
            self.open = opened.ok().map(|file| (place.of, file));
        }
        let mut bytes = vec![0; place.bytes as usize];
        let is_read = (self.open.as_ref())
            .is_some_and(|(_, file)| file.read_exact_at(&mut bytes, place.at).is_ok());
        Ok(is_read.then_some((bytes, *origin)))
    }
}

impl Getting<'_> {
    /// Looks at what seeds have, what the output is by now, and an earlier archive: stored frames, names
    /// of chunks, or both, whichever the archive can be made of.
    pub(super) fn look_at_seeds(
        &mut self,
        (output, folder): (&Path, &PartFolder),
        options: &GetOptions,
        index: (usize, &Path),
    ) -> Result<Seeds, GetError> {
        let mut seeds = options.seeds.clone();
        let is_given = |path: &PathBuf| options.seeds.contains(path);
        // Whoever did not name it is not told if it cannot be read.
        if File::open(output).is_ok() && !is_given(&output.to_owned()) {
            seeds.push(output.to_owned());
        }
        let header = self.archive.header();
        let useless = self.useless_chunks(options.keeps_archive);
        if options.keeps_archive || header.encryption.is_some() {
            for path in &seeds {
                let mut go_on = reading_seeds(&mut self.progress);
                let (has_archives, error) = self.stored.add_seed(path, &mut || go_on(0))?;
                // Whoever names chunks says what cannot be read.
                let Some(reason) = useless else { continue };
                match error {
                    Some(error) => self.report.unread_seeds.push((path.clone(), error)),
                    None if has_archives => {}
                    None if is_given(path) => {
                        self.report.unused_seeds.push((path.clone(), reason));
                    }
                    None => {}
                }
            }
            if let Ok(old) = folder.read("archive.old") {
                let whence = Whence::File(old.try_clone()?);
                if let Some(archive) = open_archive(old) {
                    (self.stored).add_archive(&archive, (whence, Origin::Earlier))?;
                }
            }
        } else if let Some(reason) = useless {
            let paths = options.seeds.iter().cloned();
            (self.report.unused_seeds).extend(paths.map(|path| (path, reason)));
        }
        let naming = self.naming.clone().unwrap_or(Naming::Plain);
        let paths = match useless {
            Some(_) => &[][..],
            None => &seeds,
        };
        let unread_seeds = &mut self.report.unread_seeds;
        let mut unread = |path: &Path, error| unread_seeds.push((path.to_owned(), error));
        let mut go_on = reading_seeds(&mut self.progress);
        Seeds::name(paths, header, &naming, index, &mut go_on, &mut unread)
    }

    /// Why chunks of seeds are of no use, if so.
    fn useless_chunks(&self, keeps_archive: bool) -> Option<UnusedSeed> {
        let header = self.archive.header();
        match self.naming {
            None if self.archive.is_locked() => Some(UnusedSeed::Sealed),
            None => Some(UnusedSeed::GroupSecret),
            Some(_) if keeps_archive && header.profile == Profile::Small => {
                Some(UnusedSeed::Frames)
            }
            // Where nobody knows how it was cut, no chunk would be found.
            Some(_) if chunking(header).is_none() => Some(UnusedSeed::Cuts),
            Some(_) => None,
        }
    }

    /// Puts those parts of the table where they belong that archives here have as well.
    pub(super) fn put_known_parts(&mut self) -> Result<(), GetError> {
        let archive = self.archive;
        for stream in Stream::ALL {
            for &kind in shared_parts(archive.header()) {
                for row in 0..archive.root().stream(stream).list(kind).rows().len() {
                    let part = Part::of(archive, stream, kind, row);
                    if part.is_here(archive) {
                        continue;
                    }
                    let place = part.place;
                    if let Some(plain) = self.find_part(part_name(kind, &place), place)? {
                        part.put(archive, &plain)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The plain bytes of a part, unchecked.
    fn find_part(
        &mut self,
        name: ChunkName,
        place: PartPlace,
    ) -> Result<Option<Vec<u8>>, GetError> {
        if let Some((stored, _)) = self.stored.find(name)? {
            let plain = unpack_part(&stored, place.plain_bytes as usize);
            return Ok(plain.ok());
        }
        Ok(self.cache.as_ref().and_then(|cache| cache.find(name)))
    }

    /// Puts a frame where it belongs, if it is here: then where it came from.
    pub(super) fn put_stored(
        &mut self,
        (stream, number): (Stream, u64),
        frame: &StoredFrame,
    ) -> Result<Option<Origin>, GetError> {
        let archive = self.archive;
        if archive.stored_frame(stream, number, frame).is_ok() {
            let frame = frame.range();
            let is_in = |came: &Range<u64>| came.start <= frame.start && frame.end <= came.end;
            let is_from_earlier = self.is_resumed && !self.came.iter().any(is_in);
            return Ok(Some(match is_from_earlier {
                true => Origin::Earlier,
                false => Origin::Server,
            }));
        }
        let name = short_name(frame.digest);
        let mut found = self
            .stored
            .find(name)?
            .filter(|(stored, _)| is(frame, stored));
        if let (None, Some(cache)) = (&found, &self.cache) {
            let cached = cache.find(name).filter(|stored| is(frame, stored));
            found = cached.map(|stored| (stored, Origin::Cache));
        }
        let Some((stored, origin)) = found else {
            return Ok(None);
        };
        archive.source().write(&stored, frame.offset)?;
        Ok(Some(origin))
    }
}

/// Whether these bytes are the frame as stored.
fn is(frame: &StoredFrame, stored: &[u8]) -> bool {
    stored.len() == frame.stored_bytes as usize && digest(stored) == frame.digest
}
