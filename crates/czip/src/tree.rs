//! What an archive holds, as a tree of inodes: for mounts, and for servers of archives.
//!
//! A catalog's entries enter, each after the folder that it is in. Memory is bounded by the catalog: a node
//! and a name per entry.

use std::collections::BTreeMap;

use crate::format::catalog::{Entry, EntryKind, split_path};

/// What an archive of one stream without a name shows.
const NAMELESS: &[u8] = b"content";

/// The longest name that all kernels take (`FUSE_NAME_MAX`); one that is longer makes its whole folder
/// unreadable.
const NAME_BYTES_MAX: usize = 1024;

/// A node's number; the root's is 1, as FUSE has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

impl Inode {
    /// The folder that is mounted.
    pub const ROOT: Self = Self(1);
}

/// A file, folder or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Permission bits, as archived; nobody may write all the same.
    pub mode: u16,
    /// When it was modified, in seconds since 1970.
    pub mtime_s: i64,
    /// And in nanoseconds.
    pub mtime_ns: u32,
    /// Names that lead to it; a folder's `.` and its folders' `..` among them.
    pub links: u32,
    /// The folder that it is in. A file with several names: one of them.
    pub parent: Inode,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A folder, and what is in it, sorted by name.
    Folder(Vec<(Box<[u8]>, Inode)>),
    /// A file: which bytes of the plain content are its.
    File {
        /// The first.
        start: u64,
        /// How many.
        bytes: u64,
    },
    /// A symbolic link, and what it says.
    SymbolicLink(Box<[u8]>),
}

/// All nodes of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    nodes: Vec<Node>,
    left_out: u64,
}

impl Tree {
    /// The tree of a catalog, whose entries fit together, as [`Archive::entries`] gives them.
    ///
    /// [`Archive::entries`]: crate::archive::Archive::entries
    #[must_use]
    pub fn new(entries: Vec<Entry>) -> Self {
        Self::with_names(entries, NAME_BYTES_MAX)
    }

    /// The same, of entries whose names have at most so many bytes.
    pub(crate) fn with_names(entries: Vec<Entry>, name_bytes_max: usize) -> Self {
        let mut growing = Growing::default();
        let mut start = 0;
        let mut left_out = 0;
        for entry in entries {
            let bytes = match entry.kind {
                EntryKind::File { bytes } => bytes,
                _ => 0,
            };
            let is_short = |path: &[u8]| components(path).all(|name| name.len() <= name_bytes_max);
            let is_shown = is_short(&entry.path) && growing.add(entry, start).is_some();
            left_out += u64::from(!is_shown);
            start += bytes;
        }
        Self {
            nodes: growing.finish(),
            left_out,
        }
    }

    /// A node by its number.
    #[must_use]
    pub fn node(&self, inode: Inode) -> Option<&Node> {
        let index = usize::try_from(inode.0.checked_sub(1)?).ok()?;
        self.nodes.get(index)
    }

    /// What is called `name` in a folder.
    #[must_use]
    pub fn child(&self, folder: Inode, name: &[u8]) -> Option<Inode> {
        let NodeKind::Folder(children) = &self.node(folder)?.kind else {
            return None;
        };
        let at = children.binary_search_by(|(other, _)| (**other).cmp(name));
        at.ok().map(|at| children[at].1)
    }

    /// The path of a node, for messages.
    #[must_use]
    pub fn path(&self, inode: Inode) -> Vec<u8> {
        let mut names = Vec::new();
        let mut inode = inode;
        while let Some(node) = self.node(inode)
            && inode != Inode::ROOT
        {
            if let Some(NodeKind::Folder(children)) = self.node(node.parent).map(|of| &of.kind) {
                let name = children.iter().find(|(_, child)| *child == inode);
                names.extend(name.map(|(name, _)| &**name));
            }
            inode = node.parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Entries that are not shown, since a name in their path, or in that of the file that they are
    /// another name of, is longer than the kernel takes.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// A tree whose folders are still found by name. Those in `nodes` are empty until it is finished.
struct Growing {
    nodes: Vec<Node>,
    folders: BTreeMap<Inode, BTreeMap<Box<[u8]>, Inode>>,
}

impl Default for Growing {
    fn default() -> Self {
        Self {
            nodes: vec![Node {
                kind: NodeKind::Folder(Vec::new()),
                mode: 0o555,
                mtime_s: i64::MIN,
                mtime_ns: 0,
                links: 2,
                parent: Inode::ROOT,
            }],
            folders: BTreeMap::from([(Inode::ROOT, BTreeMap::new())]),
        }
    }
}

impl Growing {
    fn node(&mut self, inode: Inode) -> &mut Node {
        &mut self.nodes[inode.0 as usize - 1]
    }

    fn find(&self, path: &[u8]) -> Option<Inode> {
        components(path).try_fold(Inode::ROOT, |folder, name| {
            self.folders.get(&folder)?.get(name).copied()
        })
    }

    /// Adds an entry, whose content begins at `start` if it is a file. None if it is left out.
    fn add(&mut self, entry: Entry, start: u64) -> Option<()> {
        let path = match entry.path.is_empty() {
            true => NAMELESS,
            false => &entry.path,
        };
        // No record is of the root: it is as old as the newest of all.
        let root = self.node(Inode::ROOT);
        let newest = (root.mtime_s, root.mtime_ns).max((entry.mtime_s, entry.mtime_ns));
        (root.mtime_s, root.mtime_ns) = newest;
        let (folder, name) = match split_path(path) {
            (b"", name) => (Inode::ROOT, name),
            (folder, name) => (self.find(folder)?, name),
        };
        let mut inode = Inode(self.nodes.len() as u64 + 1);
        let (kind, links) = match entry.kind {
            EntryKind::File { bytes } => (NodeKind::File { start, bytes }, 1),
            EntryKind::SymbolicLink { target } => (NodeKind::SymbolicLink(target.into()), 1),
            EntryKind::Folder => {
                self.folders.insert(inode, BTreeMap::new());
                self.add_link(folder);
                (NodeKind::Folder(Vec::new()), 2)
            }
            EntryKind::HardLink { target } => {
                inode = self.find(&target)?;
                self.add_link(inode);
                self.folders.get_mut(&folder)?.insert(name.into(), inode);
                return Some(());
            }
        };
        self.nodes.push(Node {
            kind,
            mode: entry.mode,
            mtime_s: entry.mtime_s,
            mtime_ns: entry.mtime_ns,
            links,
            parent: folder,
        });
        self.folders.get_mut(&folder)?.insert(name.into(), inode);
        Some(())
    }

    fn add_link(&mut self, inode: Inode) {
        let links = &mut self.node(inode).links;
        *links = links.saturating_add(1);
    }

    fn finish(mut self) -> Vec<Node> {
        if self.nodes.len() == 1 {
            self.node(Inode::ROOT).mtime_s = 0;
        }
        for (inode, children) in std::mem::take(&mut self.folders) {
            self.node(inode).kind = NodeKind::Folder(children.into_iter().collect());
        }
        self.nodes
    }
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
}
