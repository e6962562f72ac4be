//! Which inodes there are, and what is said of them.
//!
//! A catalog's entries enter. Folders that a path implies and no record names are made up. Memory is
//! bounded by the catalog: a node a component of a path at most, and its name.

use std::collections::BTreeMap;

use crate::format::catalog::{Entry, EntryKind};

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
        let mut growing = Growing::default();
        let mut start = 0;
        let mut left_out = 0;
        for entry in entries {
            let bytes = match entry.kind {
                EntryKind::File { bytes } => bytes,
                _ => 0,
            };
            left_out += u64::from(growing.add(entry, start).is_none());
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
    /// Folders that a path implied, and no record has named yet.
    is_implied: Vec<bool>,
}

impl Default for Growing {
    fn default() -> Self {
        Self {
            nodes: vec![implied(Inode::ROOT)],
            folders: BTreeMap::from([(Inode::ROOT, BTreeMap::new())]),
            is_implied: vec![true],
        }
    }
}

/// A folder of which nothing is known yet.
fn implied(parent: Inode) -> Node {
    Node {
        kind: NodeKind::Folder(Vec::new()),
        mode: 0o555,
        mtime_s: i64::MIN,
        mtime_ns: 0,
        links: 2,
        parent,
    }
}

impl Growing {
    fn node(&mut self, inode: Inode) -> &mut Node {
        &mut self.nodes[inode.0 as usize - 1]
    }

    fn child(&self, folder: Inode, name: &[u8]) -> Option<Inode> {
        self.folders.get(&folder)?.get(name).copied()
    }

    fn push(&mut self, folder: Inode, name: &[u8], node: Node) -> Option<Inode> {
        let inode = Inode(self.nodes.len() as u64 + 1);
        if let NodeKind::Folder(_) = node.kind {
            self.folders.insert(inode, BTreeMap::new());
            let links = &mut self.node(folder).links;
            *links = links.saturating_add(1);
        }
        self.nodes.push(node);
        self.is_implied.push(false);
        self.folders.get_mut(&folder)?.insert(name.into(), inode);
        Some(inode)
    }

    /// Adds an entry, whose content begins at `start` if it is a file. None if it is left out.
    fn add(&mut self, entry: Entry, start: u64) -> Option<()> {
        let path = match entry.path.is_empty() {
            true => NAMELESS,
            false => &entry.path,
        };
        if !are_short(path) {
            return None;
        }
        let (parents, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (Some(&path[..slash]), &path[slash + 1..]),
            None => (None, path),
        };
        let mut folder = Inode::ROOT;
        self.touch(folder, &entry);
        for parent in parents.into_iter().flat_map(components) {
            folder = match self.child(folder, parent) {
                Some(inode) => inode,
                None => {
                    let inode = self.push(folder, parent, implied(folder))?;
                    self.is_implied[inode.0 as usize - 1] = true;
                    inode
                }
            };
            self.touch(folder, &entry);
        }
        let kind = match entry.kind {
            EntryKind::File { bytes } => NodeKind::File { start, bytes },
            EntryKind::Folder => NodeKind::Folder(Vec::new()),
            EntryKind::SymbolicLink { target } => NodeKind::SymbolicLink(target.into()),
            EntryKind::HardLink { target } => {
                let inode = components(&target)
                    .try_fold(Inode::ROOT, |folder, name| self.child(folder, name))?;
                let links = &mut self.node(inode).links;
                *links = links.saturating_add(1);
                self.folders.get_mut(&folder)?.insert(name.into(), inode);
                return Some(());
            }
        };
        // A folder's record may come behind what is in it.
        let inode = match (&kind, self.child(folder, name)) {
            (NodeKind::Folder(_), Some(inode)) => inode,
            (NodeKind::Folder(_), None) => self.push(folder, name, implied(folder))?,
            _ => {
                let node = Node {
                    kind,
                    links: 1,
                    ..implied(folder)
                };
                self.push(folder, name, node)?
            }
        };
        self.is_implied[inode.0 as usize - 1] = false;
        let node = self.node(inode);
        node.mode = entry.mode;
        (node.mtime_s, node.mtime_ns) = (entry.mtime_s, entry.mtime_ns);
        Some(())
    }

    /// A folder that nobody named is as old as the newest in it.
    fn touch(&mut self, folder: Inode, entry: &Entry) {
        if self.is_implied[folder.0 as usize - 1] {
            let node = self.node(folder);
            let newest = (node.mtime_s, node.mtime_ns).max((entry.mtime_s, entry.mtime_ns));
            (node.mtime_s, node.mtime_ns) = newest;
        }
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

fn are_short(path: &[u8]) -> bool {
    components(path).all(|name| name.len() <= NAME_BYTES_MAX)
}
