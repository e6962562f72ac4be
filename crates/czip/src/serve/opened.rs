//! An archive that is open, and what is in it by path.

use std::{
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
        root::Root,
    },
    tree::Tree,
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
    Several(Tree),
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
        Ok(Self {
            id,
            bytes,
            modified,
            digest: digest(&archive)?,
            archive,
            contents,
            has_failed: AtomicBool::new(false),
        })
    }

    /// What keeping it open takes.
    pub(super) fn weight(&self) -> u64 {
        let entries = match &self.contents {
            // Names are in the catalog, and a node and its place in a folder take some 100 bytes.
            Contents::Several(tree) => {
                self.archive.root().stream(Stream::Catalog).bytes() + 160 * tree.count()
            }
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
        match &entries[..] {
            [only] if matches!(only.kind, EntryKind::File { .. }) => Self::Single,
            // Who asks for a name may have it, however long it is.
            _ => Self::Several(Tree::with_names(entries, usize::MAX)),
        }
    }
}
