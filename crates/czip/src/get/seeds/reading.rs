//! Seeds as streams: files, folders and archives, taken apart as an archive of them would be.
//!
//! What is read is cut into *units*, each of which is taken apart like the beginning of an archive: a
//! large file by itself, small ones together as a folder has them, an archive as a whole. So a folder
//! of releases gives each of them as its own archive has it.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
};

use super::super::GetError;
use crate::{
    archive::{Archive, CacheBytes, FileSource},
    container::{RestartPoint, Weaver, Woven},
    create::{Bounds, CreateError, Found, Input, Visited, walk},
    format::{
        Stream,
        catalog::{Entry, EntryKind},
    },
};

/// From so many bytes on a file is a unit of its own.
const LARGE_BYTES: u64 = 1 << 20;
/// Read at once.
const PIECE_BYTES: usize = 1 << 20;

/// What streams of seeds are given to.
pub(super) trait Take {
    /// A unit begins. False if nobody needs it: then nothing of it follows, not even its end.
    fn begin_unit(&mut self) -> Result<bool, GetError>;

    /// The next bytes of a stream.
    fn push(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), GetError>;

    /// In the content, a file or a member ends here.
    fn boundary(&mut self);

    /// The unit ends, and with it all streams of it.
    fn end_unit(&mut self) -> Result<(), GetError>;

    /// So many bytes of seeds were read. False to stop.
    fn go_on(&mut self, bytes: usize) -> bool;
}

/// Gives all that is in `seed` to `take`. Returns why something could not be read, and whether an archive in
/// it is encrypted, of which nothing was given.
pub(super) fn read(
    seed: &Path,
    is_woven: bool,
    take: &mut dyn Take,
) -> Result<(Option<io::Error>, bool), GetError> {
    let mut reading = Reading {
        is_woven,
        take: Streams(take),
        weaver: Weaver::new(),
        unit: Unit::None,
        piece: vec![0; PIECE_BYTES],
        has_locked: false,
    };
    let unread = walk_seed(seed, &mut |found| reading.found(found))?;
    reading.end_unit()?;
    Ok((unread, reading.has_locked))
}

/// Gives what is found in `seed` to `take`, and returns why something could not be read.
pub(in super::super) fn walk_seed(
    seed: &Path,
    take: &mut dyn FnMut(Found) -> Result<(), GetError>,
) -> Result<Option<io::Error>, GetError> {
    let (mut unread, mut failed) = (None, None);
    let input = Input::Path(seed.to_owned());
    let walked = walk(vec![input], &Bounds::default(), &mut |visited| {
        match visited {
            Visited::Found(found) => {
                return take(found).map(|()| true).map_err(|error| {
                    failed = Some(error);
                    CreateError::Interrupted
                });
            }
            Visited::Unread(_, error) => {
                unread.get_or_insert(error);
            }
            Visited::Special(_) => {}
        }
        Ok(false)
    });
    match (failed, walked) {
        (Some(error), _) => Err(error),
        (None, Ok(())) => Ok(unread),
        (None, Err(CreateError::Input { error, .. })) => Ok(Some(error)),
        (None, Err(error)) => Ok(Some(io::Error::other(error))),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Unit {
    None,
    /// Of small files.
    Small,
    /// Of a large file, or an archive.
    Large,
    /// One that nobody needs, of small files.
    Skipped,
}

struct Reading<'a> {
    is_woven: bool,
    take: Streams<'a>,
    weaver: Weaver,
    unit: Unit,
    piece: Vec<u8>,
    has_locked: bool,
}

impl Reading<'_> {
    fn found(&mut self, found: Found) -> Result<(), GetError> {
        let Found {
            path, entry, file, ..
        } = found;
        let Some(mut file) = file else {
            self.begin_unit(Unit::Small)?;
            return self.entry(&entry);
        };
        if let Some(archive) = File::open(&path).ok().and_then(open_archive) {
            return self.archive(&archive);
        }
        let is_large = fs::metadata(&path).is_ok_and(|metadata| metadata.len() >= LARGE_BYTES);
        self.begin_unit(if is_large { Unit::Large } else { Unit::Small })?;
        if matches!(self.unit, Unit::None | Unit::Skipped) {
            return Ok(());
        }
        let bytes = self.file(&mut file)?;
        let kind = EntryKind::File { bytes };
        self.entry(&Entry { kind, ..entry })
    }

    /// An archive's content, and its catalog.
    fn archive(&mut self, archive: &Archive<FileSource>) -> Result<(), GetError> {
        if archive.is_locked() {
            self.has_locked = true;
            return Ok(());
        }
        // One that is damaged gives what there is up to that.
        let (Ok(entries), Ok(mut content)) = (archive.entries(), archive.content(0)) else {
            return Ok(());
        };
        self.begin_unit(Unit::Large)?;
        if self.unit == Unit::None {
            return Ok(());
        }
        for entry in entries {
            if let EntryKind::File { bytes } = entry.kind {
                let mut file = FromArchive(&mut content).take(bytes);
                self.file(&mut file)?;
            }
            self.entry(&entry)?;
        }
        Ok(())
    }

    /// A file's bytes, as far as they can be read.
    fn file(&mut self, file: &mut dyn Read) -> Result<u64, GetError> {
        let mut bytes = 0;
        self.weaver.begin_file();
        loop {
            let count = match file.read(&mut self.piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            bytes += count as u64;
            let piece = &self.piece[..count];
            match self.is_woven {
                true => self.weaver.feed(piece, &mut self.take)?,
                false => self.take.0.push(Stream::Content, piece)?,
            }
            if !self.take.0.go_on(count) {
                return Err(GetError::Interrupted);
            }
        }
        match self.is_woven {
            true => self.weaver.end_file(&mut self.take)?,
            false => self.take.0.boundary(),
        }
        Ok(bytes)
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), GetError> {
        if matches!(self.unit, Unit::None | Unit::Skipped) {
            return Ok(());
        }
        let mut record = Vec::new();
        entry.put(&mut record);
        self.take.0.push(Stream::Catalog, &record)
    }

    /// Begins a unit, unless small files go on.
    fn begin_unit(&mut self, unit: Unit) -> Result<(), GetError> {
        if unit == Unit::Small && matches!(self.unit, Unit::Small | Unit::Skipped) {
            return Ok(());
        }
        self.end_unit()?;
        self.weaver = Weaver::new();
        self.unit = match (self.take.0.begin_unit()?, unit) {
            (true, unit) => unit,
            (false, Unit::Small) => Unit::Skipped,
            (false, _) => Unit::None,
        };
        Ok(())
    }

    fn end_unit(&mut self) -> Result<(), GetError> {
        if matches!(self.unit, Unit::Small | Unit::Large) {
            if self.is_woven {
                self.weaver.finish(&mut self.take)?;
            }
            self.take.0.end_unit()?;
        }
        self.unit = Unit::None;
        Ok(())
    }
}

/// The archive that a file is, if it is one that can be opened.
pub(in super::super) fn open_archive(file: File) -> Option<Archive<FileSource>> {
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).ok()?;
    if !crate::format::header::is_archive(&magic) {
        return None;
    }
    Archive::open(FileSource::new(file).ok()?, CacheBytes::default()).ok()
}

/// The plain content of an archive, read as a file is.
struct FromArchive<'a, 'b>(&'a mut crate::archive::ContentReader<'b, FileSource>);

impl Read for FromArchive<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(io::Error::other)
    }
}

/// What the weaver gives goes to streams.
struct Streams<'a>(&'a mut dyn Take);

impl Woven for Streams<'_> {
    type Error = GetError;

    fn put(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), GetError> {
        self.0.push(stream, bytes)
    }

    fn boundary(&mut self) -> Result<(), GetError> {
        self.0.boundary();
        Ok(())
    }

    fn restart(&mut self, _at: RestartPoint) -> Result<(), GetError> {
        Ok(())
    }
}
