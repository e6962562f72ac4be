//! An archive that is open, and what is in it by path.

use std::{
    collections::BTreeMap,
    ops::{Bound, Range},
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::SystemTime,
};

use quick_cache::Weighter;

use crate::{
    archive::{Archive, CacheBytes, ReadError, RemoteSource, Source},
    cache::Cache,
    format::{
        Stream,
        catalog::{Entry, EntryKind},
        limits,
        part::StoredFrame,
        root::Root,
    },
};

/// Bytes of a span of a file; each begins at a multiple of it.
pub(super) const SPAN_BYTES: u64 = 1 << 20;
/// The same of what is far away.
const REMOTE_SPAN_BYTES: u64 = 4 << 20;

/// What an open archive keeps of what is no content: frames of the weave and the like, and the table.
const CACHE: CacheBytes = CacheBytes {
    frames: 1 << 20,
    parts: 1 << 20,
};

/// A frame of a file: of which stream, its number there, and what the table says of it.
pub(super) type FoundFrame = (Stream, u64, StoredFrame);

pub(super) struct Opened {
    /// Not that of any other, the same file's before included.
    pub(super) id: u64,
    pub(super) bytes: u64,
    /// When it was changed last, if that is known.
    pub(super) modified: Option<SystemTime>,
    pub(super) archive: Archive<Box<dyn Source>>,
    pub(super) contents: Contents,
    /// Digest of what tells the archive's bytes.
    pub(super) digest: blake3::Hash,
    /// Where the first frame of each frame part is, in order of that.
    parts_by_place: Vec<(u64, Stream, usize)>,
    has_failed: AtomicBool,
}

/// Archives that are open, by `K`.
pub(super) type OpenedCache<K> = quick_cache::sync::Cache<K, Arc<Opened>, OpenedWeight>;

#[derive(Clone)]
pub(super) struct OpenedWeight;

impl<K> Weighter<K, Arc<Opened>> for OpenedWeight {
    fn weight(&self, _: &K, opened: &Arc<Opened>) -> u64 {
        opened.weight()
    }
}

#[derive(Debug)]
pub(super) enum Contents {
    /// It is encrypted.
    Locked,
    /// One file.
    Single,
    /// Files, folders and links, by path.
    Several(BTreeMap<Vec<u8>, Inner>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inner {
    File {
        offset: u64,
        bytes: u64,
        mtime_s: i64,
    },
    Folder {
        /// None: nothing is said of it but what is in it.
        mtime_s: Option<i64>,
    },
    Link,
}

impl Opened {
    /// Reads header, root and, if `check` has nothing against it, the catalog. What is far away has a
    /// `cache`.
    pub(super) fn open(
        id: u64,
        source: Box<dyn Source>,
        modified: Option<SystemTime>,
        cache: Option<Arc<Cache>>,
        check: impl FnOnce(&Root) -> Result<(), ReadError>,
    ) -> Result<Self, ReadError> {
        let bytes = source.bytes()?;
        let mut archive = Archive::open(source, CACHE)?;
        check(archive.root())?;
        let contents = match archive.header().encryption {
            Some(_) => Contents::Locked,
            None => Contents::of(archive.entries()?),
        };
        // The cache is for content: what was read so far stays with the open archive.
        if let Some(cache) = cache {
            archive = archive.with_cache(cache);
        }
        let mut parts_by_place = Vec::new();
        for stream in Stream::ALL {
            let rows = archive.root().stream(stream).frames.rows().iter();
            let places = rows
                .enumerate()
                .map(|(row, part)| (part.before[1], stream, row));
            parts_by_place.extend(places);
        }
        parts_by_place.sort_by_key(|&(place, stream, row)| (place, stream.index(), row));
        Ok(Self {
            id,
            bytes,
            modified,
            digest: digest(&archive)?,
            archive,
            contents,
            parts_by_place,
            has_failed: AtomicBool::new(false),
        })
    }

    /// What keeping it open takes.
    pub(super) fn weight(&self) -> u64 {
        let entries = match &self.contents {
            Contents::Several(entries) => entries.keys().map(|path| path.len() as u64 + 128).sum(),
            _ => 0,
        };
        let root = &self.archive.header().root;
        let rows = u64::from(root.plain_bytes) + u64::from(root.private_plain_bytes);
        let remote = match self.is_remote() {
            true => RemoteSource::SMALL_CACHE_BYTES + self.archive.listed_bytes(),
            false => 0,
        };
        CACHE.frames + CACHE.parts + entries + 4 * rows + remote
    }

    /// Whether its chunks are brought from far away, and kept.
    pub(super) fn is_remote(&self) -> bool {
        self.archive.has_plain_cache()
    }

    /// Bytes of a span: of what is far away, more is planned at once.
    pub(super) fn span_bytes(&self) -> u64 {
        match self.is_remote() {
            true => REMOTE_SPAN_BYTES,
            false => SPAN_BYTES,
        }
    }

    /// It could not be sent to its end: it is damaged, has changed, or cannot be had any more.
    pub(super) fn failed(&self) {
        self.has_failed.store(true, Relaxed);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Relaxed)
    }

    /// Whether re-encoding its content is worth the time: whether it became smaller when it was
    /// archived, not counting what repeats.
    pub(super) fn compresses(&self) -> bool {
        let content = self.archive.root().stream(Stream::Content);
        content.stored_bytes() < content.unique_bytes() / 10 * 9
    }

    /// The frames that have bytes in this range of the file, in order. None if parts of the table that may
    /// have some of them have more than `frames_max`: in a hostile archive frames lie on each other.
    pub(super) fn frames_in(
        &self,
        Range { start: begin, end }: Range<u64>,
        frames_max: usize,
    ) -> Result<Option<Vec<FoundFrame>>, ReadError> {
        let mut found = Vec::new();
        let mut looked_at = 0;
        let beyond = self
            .parts_by_place
            .partition_point(|&(place, ..)| place < end);
        // Of each stream the last part that begins at or before the span, and those in it.
        let mut is_done = [false; 5];
        for &(place, stream, row) in self.parts_by_place[..beyond].iter().rev() {
            if is_done[stream.index()] {
                continue;
            }
            is_done[stream.index()] = place <= begin;
            let list = &self.archive.root().stream(stream).frames;
            let numbers = list.rows()[row].before[0]..list.after(row)[0];
            looked_at += numbers.end - numbers.start;
            if looked_at > frames_max as u64 {
                return Ok(None);
            }
            for number in numbers {
                let frame = self.archive.frame_row(stream, number)?;
                if frame.offset < end && frame.range().end > begin {
                    found.push((stream, number, frame));
                }
            }
            if is_done.iter().all(|&done| done) {
                break;
            }
        }
        found.sort_by_key(|&(.., frame)| frame.offset);
        Ok(Some(found))
    }
}

/// What tells the archive's bytes: both its ends, one of which is the header that has the digests of
/// the root and of the keys.
fn digest(archive: &Archive<Box<dyn Source>>) -> Result<blake3::Hash, ReadError> {
    let source = archive.source();
    let end = source.bytes()? - limits::HEADER_BYTES as u64;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = [0; limits::HEADER_BYTES];
    for offset in [0, end] {
        source.read_exact_at(&mut buffer, offset)?;
        hasher.update(&buffer);
    }
    Ok(hasher.finalize())
}

impl Contents {
    fn of(entries: Vec<Entry>) -> Self {
        if let [only] = &entries[..]
            && let EntryKind::File { .. } = only.kind
        {
            return Self::Single;
        }
        let mut by_path = BTreeMap::new();
        let mut end = 0;
        for entry in entries {
            let inner = match entry.kind {
                EntryKind::File { bytes } => {
                    let offset = end;
                    end += bytes;
                    Inner::File {
                        offset,
                        bytes,
                        mtime_s: entry.mtime_s,
                    }
                }
                EntryKind::Folder => Inner::Folder {
                    mtime_s: Some(entry.mtime_s),
                },
                EntryKind::SymbolicLink { .. } => Inner::Link,
                EntryKind::HardLink { target } => {
                    by_path.get(&target).copied().unwrap_or(Inner::Link)
                }
            };
            by_path.insert(entry.path, inner);
        }
        Self::Several(by_path)
    }
}

/// A folder that is there because something is in it.
const IMPLIED: Inner = Inner::Folder { mtime_s: None };

/// What a path in an archive leads to: a folder need not be in the catalog if something is in it.
pub(super) fn look_up(entries: &BTreeMap<Vec<u8>, Inner>, path: &[u8]) -> Option<Inner> {
    if path.is_empty() {
        return Some(IMPLIED);
    }
    if let Some(&inner) = entries.get(path) {
        return Some(inner);
    }
    let below = [path, b"/"].concat();
    let mut behind = entries.range(below.clone()..);
    let (next, _) = behind.next()?;
    next.starts_with(&below).then_some(IMPLIED)
}

/// What is in a folder of an archive, by name.
pub(super) fn list(entries: &BTreeMap<Vec<u8>, Inner>, folder: &[u8]) -> BTreeMap<Vec<u8>, Inner> {
    let prefix = match folder {
        b"" => Vec::new(),
        _ => [folder, b"/"].concat(),
    };
    let mut listed = BTreeMap::new();
    let mut from = Bound::Included(prefix.clone());
    while let Some((path, &inner)) = entries.range((from, Bound::Unbounded)).next() {
        let Some(rest) = path.strip_prefix(&prefix[..]) else {
            break;
        };
        match rest.iter().position(|&byte| byte == b'/') {
            Some(slash) => {
                let name = &rest[..slash];
                listed.entry(name.to_vec()).or_insert(IMPLIED);
                // All that is below it is passed over: a slash is followed by a zero.
                from = Bound::Included([&prefix[..], name, b"0"].concat());
            }
            None => {
                listed.insert(rest.to_vec(), inner);
                from = Bound::Excluded(path.clone());
            }
        }
    }
    listed
}
