//! Which entries of a catalog are wanted, and where their bytes are.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    os::unix::ffi::OsStringExt,
    path::PathBuf,
};

use super::{ExtractError, ExtractOptions};
use crate::format::catalog::{Entry, EntryKind, asked_path, is_valid_path, split_path};

/// Something that is to be extracted.
pub(super) struct Item {
    pub(super) path: Vec<u8>,
    pub(super) what: What,
    /// Permissions alone: nothing that is extracted runs as another user.
    pub(super) mode: u16,
    pub(super) mtime_s: i64,
    pub(super) mtime_ns: u32,
}

/// What it is.
pub(super) enum What {
    Folder,
    File {
        /// Its bytes of the plain content.
        range: Range<u64>,
    },
    SymbolicLink {
        target: Vec<u8>,
    },
    HardLink {
        /// The item that it is another name of: a file before it.
        of: usize,
    },
}

impl Item {
    fn new(entry: Entry, what: What) -> Self {
        Self {
            path: entry.path,
            what,
            mode: entry.mode & 0o777,
            mtime_s: entry.mtime_s,
            mtime_ns: entry.mtime_ns,
        }
    }

    /// A file's bytes; none of all else.
    pub(super) fn range(&self) -> Range<u64> {
        match &self.what {
            What::File { range } => range.clone(),
            _ => 0..0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let range = self.range();
        range.end - range.start
    }

    /// The folder that it is in, and its name there.
    pub(super) fn place(&self) -> (&[u8], &[u8]) {
        split_path(&self.path)
    }
}

/// What is wanted of a whole catalog.
pub(super) struct Chosen {
    /// In its order.
    pub(super) items: Vec<Item>,
    /// Folders that are not wanted themselves, and something in them is.
    pub(super) parents: Vec<Item>,
}

/// Chooses what is wanted of a whole catalog.
pub(super) fn choose(
    entries: Vec<Entry>,
    options: &ExtractOptions,
) -> Result<Chosen, ExtractError> {
    let mut choice = Choice {
        items: Vec::new(),
        folders: Vec::new(),
        ranges: HashMap::new(),
        chosen: HashMap::new(),
    };
    let mut is_met = vec![false; options.paths.len()];
    let mut position = 0;
    for mut entry in entries {
        let start = position;
        if let EntryKind::File { bytes } = entry.kind {
            position += bytes;
        }
        if entry.path.is_empty() {
            let name = options.name.clone().filter(|name| is_name(name));
            entry.path = name.ok_or(ExtractError::Unnamed)?;
        }
        let mut is_wanted = options.paths.is_empty();
        for (path, is_met) in options.paths.iter().zip(&mut is_met) {
            let asked = asked_path(path);
            let is_all = asked == b"." || asked.is_empty() && path.starts_with(b"./");
            let below = entry.path.strip_prefix(asked);
            let is_below = is_all || below.is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
            is_wanted |= is_below;
            *is_met |= is_below;
        }
        choice.add(entry, start..position, is_wanted, !options.paths.is_empty());
    }
    match is_met.iter().position(|is_met| !is_met) {
        Some(missing) => Err(ExtractError::Missing {
            path: PathBuf::from(std::ffi::OsString::from_vec(options.paths[missing].clone())),
        }),
        None => Ok(choice.chosen()),
    }
}

/// Whether it is a path of one component.
fn is_name(name: &[u8]) -> bool {
    is_valid_path(name) && !name.contains(&b'/')
}

struct Choice {
    items: Vec<Item>,
    /// Folders that are not wanted.
    folders: Vec<Item>,
    /// Where the bytes of each file are, if not all are wanted.
    ranges: HashMap<Vec<u8>, Range<u64>>,
    /// The items that are files, by the paths that hard links know.
    chosen: HashMap<Vec<u8>, usize>,
}

impl Choice {
    fn add(&mut self, entry: Entry, range: Range<u64>, is_wanted: bool, is_some: bool) {
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        if is_some && is_file {
            self.ranges.insert(entry.path.clone(), range.clone());
        }
        if !is_wanted {
            if entry.kind == EntryKind::Folder {
                self.folders.push(Item::new(entry, What::Folder));
            }
            return;
        }
        let what = match &entry.kind {
            EntryKind::Folder => What::Folder,
            EntryKind::SymbolicLink { target } => What::SymbolicLink {
                target: target.clone(),
            },
            EntryKind::File { .. } => {
                self.chosen.insert(entry.path.clone(), self.items.len());
                What::File { range }
            }
            EntryKind::HardLink { target } => match self.chosen.get(target) {
                Some(&of) => What::HardLink { of },
                // The file itself is not wanted: its first wanted name stands for it.
                None => {
                    let range = self.ranges.get(target).cloned();
                    self.chosen.insert(target.clone(), self.items.len());
                    let range = range.expect("a catalog's hard links lead to files before them");
                    What::File { range }
                }
            },
        };
        self.items.push(Item::new(entry, what));
    }

    fn chosen(self) -> Chosen {
        let mut above = HashSet::new();
        for item in &self.items {
            let mut folder = item.place().0;
            while !folder.is_empty() && above.insert(folder) {
                folder = split_path(folder).0;
            }
        }
        let is_above = |folder: &Item| above.contains(&folder.path[..]);
        let parents = self.folders.into_iter().filter(is_above).collect();
        Chosen {
            items: self.items,
            parents,
        }
    }
}
