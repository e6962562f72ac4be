//! What a path leads to: a file, the content of an archive, or a folder of either.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use quick_cache::sync::Cache;

use super::{
    counters::Counters,
    file::ArchiveFile,
    opened::{Contents, Opened, OpenedCache, OpenedWeight},
    tree::{Components, Found, Identity, Listed, SafePath, Tree, http_time},
};
use crate::{
    archive::ReadError,
    format::FormatError,
    tree::{Inode, NodeKind},
};

/// What open archives may take together. What does not fit is opened anew for each request.
const OPENED_BYTES: u64 = 128 << 20;
/// The end of an archive's name.
const SUFFIX: &[u8] = b".czip";

/// The folder, and the archives of it that are open.
pub(super) struct Site {
    tree: Tree,
    counters: Arc<Counters>,
    opened: OpenedCache<Identity>,
    next_id: AtomicU64,
}

pub(super) enum Target {
    Nothing,
    /// The same with a slash behind it.
    Slash,
    File {
        file: File,
        identity: Identity,
        /// What tells its bytes, if it is an archive.
        archive: Option<blake3::Hash>,
    },
    /// A range of an archive's content, which is all of it if it has one file.
    Content {
        opened: Arc<Opened>,
        offset: u64,
        bytes: u64,
    },
    Folder(Vec<Listed>),
}

impl Site {
    pub(super) fn new(tree: Tree, counters: Arc<Counters>) -> Self {
        Self {
            tree,
            counters,
            opened: Cache::with_weighter(64, OPENED_BYTES, OpenedWeight),
            next_id: AtomicU64::new(0),
        }
    }

    /// Opens what a path leads to.
    pub(super) fn find(&self, path: &SafePath) -> Result<Target, ReadError> {
        let components = &path.components;
        match self.tree.open(components)? {
            Found::File(..) if path.has_slash => return Ok(Target::Nothing),
            Found::File(file, identity) => {
                let mut archive = None;
                if components.last().is_some_and(|name| name.ends_with(SUFFIX)) {
                    match self.archive(&file, identity) {
                        Ok(opened) => archive = Some(opened.digest),
                        Err(error) => {
                            let path = shown(components);
                            tracing::debug!(path, %error, "cannot open the archive; serving the file unchanged");
                        }
                    }
                }
                return Ok(Target::File {
                    file,
                    identity,
                    archive,
                });
            }
            Found::Folder(_) if !path.has_slash => return Ok(Target::Slash),
            Found::Folder(folder) => return Ok(Target::Folder(self.tree.list(&folder)?)),
            Found::Nothing => {}
        }
        // Something on the way may be an archive.
        for length in 1..=components.len() {
            let mut archive = components[..length].to_vec();
            let name = archive.last_mut().expect("it is not empty");
            name.extend_from_slice(SUFFIX);
            match self.open_archive(&archive) {
                Ok(Some(opened)) => return Ok(within(opened, &components[length..], path)),
                Ok(None) => {}
                Err(ReadError::Format(
                    error @ (FormatError::NotAnArchive | FormatError::Empty),
                )) => {
                    tracing::debug!(path = shown(&archive), %error, "no content to serve from this file");
                }
                Err(error) => return Err(error),
            }
            // Deeper there are others only in a folder.
            if !matches!(self.tree.open(&components[..length])?, Found::Folder(_)) {
                break;
            }
        }
        Ok(Target::Nothing)
    }

    /// Opens an archive, if there is a file.
    pub(super) fn open_archive(
        &self,
        components: &[Vec<u8>],
    ) -> Result<Option<Arc<Opened>>, ReadError> {
        match self.tree.open(components)? {
            Found::File(file, identity) => Ok(Some(self.archive(&file, identity)?)),
            Found::Folder(_) | Found::Nothing => Ok(None),
        }
    }

    fn archive(&self, file: &File, identity: Identity) -> Result<Arc<Opened>, ReadError> {
        self.opened.get_or_insert_with(&identity, || {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let (file, bytes) = (file.try_clone()?, identity.bytes);
            let source = ArchiveFile::new(file, bytes, self.counters.clone());
            let modified = Some(identity.modified());
            let opened = Opened::open(id, Box::new(source), modified, None, |_| Ok(()))?;
            Ok(Arc::new(opened))
        })
    }

    /// All archives in the folder and below, `count` of them at most.
    pub(super) fn all_archives(&self, count: usize) -> io::Result<Vec<(Components, Identity)>> {
        let mut found = Vec::new();
        let mut folders = vec![Vec::new()];
        while let Some(path) = folders.pop() {
            let Found::Folder(folder) = self.tree.open(&path)? else {
                continue;
            };
            for listed in self.tree.list(&folder)? {
                let path = [&path[..], std::slice::from_ref(&listed.name)].concat();
                if listed.bytes.is_none() {
                    // One whose path is longer than the system takes is not opened.
                    folders.push(path);
                    continue;
                }
                if !listed.name.ends_with(SUFFIX) {
                    continue;
                }
                if let Found::File(_, identity) = self.tree.open(&path)? {
                    found.push((path, identity));
                }
                if found.len() == count {
                    tracing::warn!(
                        count,
                        "too many archives: the chunks of the others are not available by name"
                    );
                    return Ok(found);
                }
            }
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }
}

pub(super) fn shown(components: &[Vec<u8>]) -> String {
    String::from_utf8_lossy(&components.join(&b'/')).into_owned()
}

/// What a path within an archive leads to.
pub(super) fn within(opened: Arc<Opened>, inner: &[Vec<u8>], path: &SafePath) -> Target {
    let tree = match &opened.contents {
        Contents::Single if inner.is_empty() && !path.has_slash => {
            let bytes = opened.archive.plain_bytes();
            return Target::Content {
                opened,
                offset: 0,
                bytes,
            };
        }
        Contents::Single | Contents::Locked => return Target::Nothing,
        Contents::Several(tree) => tree,
    };
    let found = inner
        .iter()
        .try_fold(Inode::ROOT, |folder, name| tree.child(folder, name));
    let found = found.and_then(|inode| tree.node(inode));
    match found.map(|node| &node.kind) {
        Some(NodeKind::Folder(_)) if !path.has_slash => Target::Slash,
        Some(NodeKind::Folder(children)) => {
            let listed = |(name, inode): &(Box<[u8]>, Inode)| {
                let node = tree.node(*inode)?;
                Some(Listed {
                    name: name.to_vec(),
                    bytes: match node.kind {
                        NodeKind::File { bytes, .. } => Some(bytes),
                        NodeKind::Folder(_) => None,
                        NodeKind::SymbolicLink(_) => return None,
                    },
                    modified: Some(http_time(node.mtime_s)),
                })
            };
            Target::Folder(children.iter().filter_map(listed).collect())
        }
        Some(&NodeKind::File { start, bytes }) if !path.has_slash => Target::Content {
            opened,
            offset: start,
            bytes,
        },
        _ => Target::Nothing,
    }
}
