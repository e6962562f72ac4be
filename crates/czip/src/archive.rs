//! Reading archives: any byte of the plain content, from a file or from a server.
//!
//! A [`Source`] enters, of which no more is read than is asked for: the header and the root, then
//! the parts of the table and the frames that hold what is wanted. Frames are checked before they
//! are decompressed, and stay plain in bounded memory that threads share. Below that may lie a
//! [cache](crate::cache) of chunks: what it has is not read of the source.

mod content;
mod copy;
mod frames;
mod kept;
mod naming;
mod outline;
#[cfg(feature = "remote")]
mod remote;
mod source;
mod stream;
mod table;

pub use content::ContentReader;
pub use copy::{copy, copy_checked};
pub(crate) use naming::Naming;
pub(crate) use outline::{Grain, Section};
#[cfg(feature = "remote")]
pub use remote::{RemoteSource, RemoteSourceError};
pub use source::{FileSource, Source};
pub use stream::StreamReader;

use std::{
    io,
    sync::{Arc, OnceLock},
};

use rustix::io::Errno;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::{
    cache::{Cache, short_name},
    crypt::{GroupKeys, GroupSecret, Identities, PrivateKey, UnwrapError, recipient_kinds, unwrap},
    format::{
        FormatError, Portion, Stream, Violation,
        catalog::{CatalogReader, Entry},
        header::{Header, Profile, may_be_archive},
        limits,
        part::StoredFrame,
        root::Root,
    },
    method::{FrameError, unpack_part},
    weave::WeaveError,
};
use frames::FrameWeight;
use kept::ChunksByFrame;
pub(crate) use table::{Chunk, PartKey};
use table::{PartCache, PartWeight};

/// How often what comes damaged is read.
pub(crate) const READS_MAX: u32 = 4;

/// Why an archive cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Its source cannot be.
    #[error("cannot read the archive: {0}")]
    Io(#[from] io::Error),
    /// Threads that would read it cannot be started.
    #[error("cannot start {threads} threads: {error} (use fewer)")]
    Threads {
        /// How many there were to be.
        threads: u64,
        /// Why.
        error: io::Error,
    },
    /// It is no archive, or a damaged one.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A frame is damaged.
    #[error("frame {number} of the {stream} is damaged: {error}")]
    Frame {
        /// Of which stream.
        stream: Stream,
        /// Its number.
        number: u64,
        /// How.
        error: FrameError,
    },
    /// A frame's key opens it, and is that of another group, or of somebody who forged the frame.
    #[error(
        "frame {number} of the {stream} does not belong to the archive's group: it was forged, or the group \
         secret is wrong"
    )]
    ForeignFrame {
        /// Of which stream.
        stream: Stream,
        /// Its number.
        number: u64,
    },
    /// The group secret at hand is not that of the archive.
    #[error(
        "wrong group secret for this archive (give the secret that it was created with, or none: reading \
         works without it)"
    )]
    OtherGroupSecret,
    /// A chunk is called what it is not.
    #[error("the name of chunk {number} of the {stream} does not match its content")]
    Name {
        /// Of which stream.
        stream: Stream,
        /// Its number.
        number: u64,
    },
    /// It is encrypted, and was not unlocked.
    #[error("the archive is encrypted (give an identity of one of its recipients)")]
    Locked,
    /// The identities at hand do not open it.
    #[error(transparent)]
    Unwrap(#[from] UnwrapError),
    /// The weave is damaged.
    #[error("the archive is invalid: {0}")]
    Weave(#[from] WeaveError),
    /// What was asked for lies beyond the end.
    #[error("the content has {end} bytes, but the range ends at {wanted}")]
    BeyondEnd {
        /// How many bytes there are.
        end: u64,
        /// What was asked for.
        wanted: u64,
    },
}

impl ReadError {
    /// Whether bytes of the archive are not what they were, or a disk has lost them: others may be sound.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Io(error) => error.raw_os_error() == Some(Errno::IO.raw_os_error()),
            Self::Format(_)
            | Self::Frame { .. }
            | Self::ForeignFrame { .. }
            | Self::Name { .. }
            | Self::Weave(_) => true,
            Self::Threads { .. }
            | Self::OtherGroupSecret
            | Self::Locked
            | Self::Unwrap(_)
            | Self::BeyondEnd { .. } => false,
        }
    }

    /// A frame does not have its digest.
    pub(crate) fn damaged_frame(stream: Stream, number: u64) -> Self {
        Self::Frame {
            stream,
            number,
            error: FrameError::Digest,
        }
    }
}

/// Memory that reading an archive may take for what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBytes {
    /// For plain frames.
    pub frames: u64,
    /// For parts of the table.
    pub parts: u64,
}

impl Default for CacheBytes {
    /// 128 MiB for frames, 32 MiB for parts.
    fn default() -> Self {
        Self {
            frames: 128 << 20,
            parts: 32 << 20,
        }
    }
}

/// An archive that is open.
///
/// All methods take it shared: threads may read at once.
pub struct Archive<S> {
    source: S,
    header: Header,
    root: Root,
    frames: quick_cache::sync::Cache<(Stream, u64), Arc<Vec<u8>>, FrameWeight>,
    parts: PartCache,
    /// Keeps chunks beyond memory, if there is one.
    cache: Option<Arc<Cache>>,
    /// Of each stream, once that is needed.
    by_frame: [OnceLock<ChunksByFrame>; 5],
    /// The private root of an archive that is encrypted, as stored, with the header before it.
    sealed_root: Option<SealedRoot>,
    unlocked: Option<Unlocked>,
}

struct SealedRoot {
    header: [u8; limits::HEADER_BYTES],
    public: Vec<u8>,
    private: Vec<u8>,
}

/// What opens an encrypted archive.
struct Unlocked {
    private: PrivateKey,
    /// None if the archive has a group secret that is not known.
    group: Option<Arc<GroupKeys>>,
}

impl<S: Source> Archive<S> {
    /// Reads header and root.
    ///
    /// # Errors
    /// If the source cannot be read or is no archive.
    pub fn open(source: S, cache: CacheBytes) -> Result<Self, ReadError> {
        let found = read_header(&source)?;
        Self::open_behind(source, found, cache)
    }

    /// The same of one that may have been cut off, or have something behind its end: what of it is there
    /// can be read, and all else is damaged. Its [`header`](Self::header) says how long it should be.
    ///
    /// # Errors
    /// If header or root are not there, or the source cannot be read.
    pub fn open_damaged(source: S, cache: CacheBytes) -> Result<Self, ReadError> {
        let found = read_any_header(&source)?;
        Self::open_behind(source, found, cache)
    }

    fn open_behind(
        source: S,
        (header, header_bytes): (Header, [u8; limits::HEADER_BYTES]),
        cache: CacheBytes,
    ) -> Result<Self, ReadError> {
        let place = header.root;
        let stored_bytes = place.stored_bytes as usize + place.private_stored_bytes as usize;
        let stored = read(&source, place.offset, stored_bytes)?;
        if *blake3::hash(&stored).as_bytes() != place.digest {
            return Err(FormatError::Digest(Portion::Root).into());
        }
        let (stored_public, private) = stored.split_at(place.stored_bytes as usize);
        let unpack = |stored: &[u8], plain_bytes: u32| {
            unpack_part(stored, plain_bytes as usize)
                .map_err(|_| FormatError::Invalid(Violation::RootPacking))
        };
        let public = unpack(stored_public, place.plain_bytes)?;
        let mut root = Root::parse_public(
            &public,
            header.profile == Profile::Shared,
            header.encryption.is_some(),
        )?;
        let sealed_root = match header.encryption {
            Some(_) => Some(SealedRoot {
                header: header_bytes,
                public: stored_public.to_vec(),
                private: private.to_vec(),
            }),
            None => {
                let private = unpack(private, place.private_plain_bytes)?;
                root.parse_private(&private, false)?;
                root.check_weave(header.is_woven)?;
                root.check_header(&header)?;
                None
            }
        };
        // A cache of a few large items would be of no use in many pieces.
        let frames_estimated = (cache.frames / u64::from(header.frame_bytes_max.max(1))).max(16);
        Ok(Self {
            source,
            frames: quick_cache::sync::Cache::with_weighter(
                frames_estimated as usize,
                cache.frames,
                FrameWeight,
            ),
            parts: quick_cache::sync::Cache::with_weighter(4096, cache.parts, PartWeight),
            cache: None,
            by_frame: Default::default(),
            header,
            root,
            sealed_root,
            unlocked: None,
        })
    }

    /// Whether it is encrypted and not unlocked: then its stored frames and their names can be read,
    /// and nothing else.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.sealed_root.is_some() && self.unlocked.is_none()
    }

    /// Unlocks an encrypted archive. Without its group secret it can be read all the same; whether
    /// `group_secret` is the one, [`check_group_secret`](Self::check_group_secret) says. `passphrase`
    /// is asked as by [`unwrap`].
    ///
    /// # Errors
    /// If no identity opens it, or it was changed.
    pub fn unlock(
        &mut self,
        identities: &Identities,
        group_secret: Option<&GroupSecret>,
        passphrase: &mut dyn FnMut(&str) -> Option<Zeroizing<String>>,
    ) -> Result<(), ReadError> {
        let (Some(sealed), Some(how)) = (&self.sealed_root, self.header.encryption) else {
            return Ok(());
        };
        let keys = self.keys()?;
        let private = PrivateKey::new(&unwrap(&keys, identities, passphrase)?);
        let opened = private
            .open_private_root(&sealed.header, &sealed.public, sealed.private.clone())
            .map_err(|_| FormatError::Digest(Portion::PrivateRoot))?;
        let plain_bytes = self.header.root.private_plain_bytes as usize;
        let plain = unpack_part(&opened, plain_bytes)
            .map_err(|_| FormatError::Invalid(Violation::PrivateRootPacking))?;
        let mut root = self.root.clone();
        root.parse_private(&plain, true)?;
        root.check_weave(self.header.is_woven)?;
        root.check_header(&self.header)?;
        self.root = root;
        self.unlocked = Some(Unlocked {
            private,
            group: match (how.has_group_secret, group_secret) {
                (true, None) => None,
                (true, Some(secret)) => Some(Arc::new(GroupKeys::new(Some(secret)))),
                (false, _) => Some(Arc::new(GroupKeys::new(None))),
            },
        });
        Ok(())
    }

    /// Whether the group secret that it was unlocked with is its own, by a frame of the catalog.
    ///
    /// # Errors
    /// [`ReadError::OtherGroupSecret`] if it is another one; or if the frame cannot be read.
    pub fn check_group_secret(&self) -> Result<(), ReadError> {
        let has_secret = self
            .header
            .encryption
            .is_some_and(|how| how.has_group_secret);
        let is_there = self.root.stream(Stream::Catalog).frames.items() > 0;
        if !has_secret || !is_there || self.is_locked() {
            return Ok(());
        }
        match self.frame(Stream::Catalog, 0) {
            Err(ReadError::ForeignFrame { .. }) => Err(ReadError::OtherGroupSecret),
            read => read.map(|_| ()),
        }
    }

    /// Whether it can be told what chunks are called: not of a locked archive, nor of one whose group
    /// secret is not known.
    #[must_use]
    pub fn can_name(&self) -> bool {
        self.naming().is_some()
    }

    /// The kinds of keys that it is encrypted to, one for each recipient; none if it is not encrypted.
    ///
    /// # Errors
    /// If its keys section cannot be read, or is damaged.
    pub fn recipient_kinds(&self) -> Result<Vec<String>, ReadError> {
        match self.header.encryption {
            Some(_) => Ok(recipient_kinds(&self.keys()?)?),
            None => Ok(Vec::new()),
        }
    }

    /// The keys section as stored, checked.
    pub(crate) fn keys(&self) -> Result<Vec<u8>, ReadError> {
        let place = self.header.keys;
        let keys = read(&self.source, place.offset, place.bytes as usize)?;
        match *blake3::hash(&keys).as_bytes() == place.digest {
            true => Ok(keys),
            false => Err(FormatError::Digest(Portion::Keys).into()),
        }
    }

    pub(crate) fn check_unlocked(&self) -> Result<(), ReadError> {
        match self.is_locked() {
            true => Err(ReadError::Locked),
            false => Ok(()),
        }
    }

    /// Its header: at the end, if it has a footer.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its directory.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Where it comes from.
    #[must_use]
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Bytes of the plain content.
    #[must_use]
    pub fn plain_bytes(&self) -> u64 {
        self.root.summary.plain_bytes
    }

    /// The files, folders and links in it.
    ///
    /// # Errors
    /// If they cannot be read, or contradict each other.
    pub fn entries(&self) -> Result<Vec<Entry>, ReadError> {
        self.check_unlocked()?;
        // One that was cut off says more than there is.
        let archive_bytes = self.header.archive_bytes.min(self.source.bytes()?);
        let limit = limits::catalog_bytes_max(archive_bytes);
        let bytes = self.root.stream(Stream::Catalog).bytes();
        FormatError::check_limit("a catalog", bytes, limit)?;
        let mut catalog = CatalogReader::default();
        let mut reader = self.stream(Stream::Catalog);
        let mut piece = vec![0; 64 << 10];
        loop {
            let count = reader.read(&mut piece)?;
            if count == 0 {
                break;
            }
            catalog.feed(&piece[..count])?;
        }
        let entries = catalog.finish(self.plain_bytes())?;
        match entries.len() as u64 == self.root.summary.entries {
            true => Ok(entries),
            false => Err(FormatError::Invalid(Violation::EntryCount).into()),
        }
    }

    /// Reads a stream from its beginning.
    #[must_use]
    pub fn stream(&self, stream: Stream) -> StreamReader<'_, S> {
        StreamReader::new(self, stream)
    }

    /// Reads the plain content from `offset` on.
    ///
    /// # Errors
    /// If it is beyond the end, or the archive is damaged.
    pub fn content(&self, offset: u64) -> Result<ContentReader<'_, S>, ReadError> {
        self.check_unlocked()?;
        ContentReader::new(self, offset)
    }

    /// Reads a frame as stored, and checks it.
    pub(crate) fn stored_frame(
        &self,
        stream: Stream,
        number: u64,
        frame: &StoredFrame,
    ) -> Result<Vec<u8>, ReadError> {
        let (cache, name) = (self.sealed_cache(), short_name(frame.digest));
        if let Some(stored) = cache.and_then(|cache| cache.find(name)) {
            return Ok(stored);
        }
        let stored = self.read_sound(frame.offset, frame.stored_bytes, |stored| {
            match crate::format::digest(&stored) == frame.digest {
                true => Ok(stored),
                false => Err(ReadError::damaged_frame(stream, number)),
            }
        })?;
        if let Some(cache) = cache {
            cache.add(name, &stored);
            cache.flush();
        }
        Ok(stored)
    }

    /// Reads so many bytes, of which `check` says whether they are damaged; again, if others may come then.
    fn read_sound(
        &self,
        offset: u64,
        bytes: u32,
        check: impl Fn(Vec<u8>) -> Result<Vec<u8>, ReadError>,
    ) -> Result<Vec<u8>, ReadError> {
        let mut reads = 1;
        loop {
            match check(read(&self.source, offset, bytes as usize)?) {
                Err(error) if reads < READS_MAX && error.is_damage() => {
                    if !self.source.forget(offset..offset + u64::from(bytes)) {
                        return Err(error);
                    }
                    reads += 1;
                }
                checked => return checked,
            }
        }
    }

    /// The most bytes that a stored frame of this archive can have.
    pub(crate) fn stored_frame_bytes_max(&self) -> u64 {
        u64::from(self.header.frame_bytes_max) + limits::STORED_FRAME_EXTRA_BYTES as u64
    }
}

/// Reads the header that counts, and gives its bytes too.
pub(crate) fn read_header(
    source: &impl Source,
) -> Result<(Header, [u8; limits::HEADER_BYTES]), ReadError> {
    let (header, bytes) = read_any_header(source)?;
    let (expected, found) = (header.archive_bytes, source.bytes()?);
    match expected == found {
        true => Ok((header, bytes)),
        false => Err(FormatError::Length { expected, found }.into()),
    }
}

/// The same, also if the archive is not as long as it says.
fn read_any_header(
    source: &impl Source,
) -> Result<(Header, [u8; limits::HEADER_BYTES]), ReadError> {
    let bytes = source.bytes()?;
    if bytes == 0 {
        return Err(FormatError::Empty.into());
    }
    if bytes < limits::HEADER_BYTES as u64 {
        let mut begin = vec![0; bytes.min(8) as usize];
        source.read_exact_at(&mut begin, 0)?;
        return Err(match may_be_archive(&begin) {
            true => FormatError::NoHeader { bytes }.into(),
            false => FormatError::NotAnArchive.into(),
        });
    }
    let mut first = [0; limits::HEADER_BYTES];
    source.read_exact_at(&mut first, 0)?;
    let mut header = Header::parse_first(&first)?;
    if header.is_advisory() {
        source.read_exact_at(&mut first, bytes - limits::HEADER_BYTES as u64)?;
        header = Header::parse_last(&first)?;
    }
    Ok((header, first))
}

/// Reads so many bytes, whose number is within what the format allows.
fn read(source: &impl Source, offset: u64, bytes: usize) -> Result<Vec<u8>, ReadError> {
    let end = offset.checked_add(bytes as u64);
    if end.is_none_or(|end| source.bytes().is_ok_and(|bytes| end > bytes)) {
        return Err(FormatError::Truncated(Portion::File).into());
    }
    let mut buffer = vec![0; bytes];
    source.read_exact_at(&mut buffer, offset)?;
    Ok(buffer)
}
