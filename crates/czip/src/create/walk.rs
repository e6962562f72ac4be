//! What goes into an archive, in the order in which it does.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use super::CreateError;
use crate::format::catalog::{Entry, EntryKind, is_valid_path};

/// Something that is to go into an archive.
pub enum Input {
    /// A file, or a folder with all that is in it; links to either are followed.
    Path(PathBuf),
    /// A stream of bytes without a name; then it is the only input.
    Stream(Box<dyn Read>),
}

/// A file, by its device and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    /// The file that `metadata` is of.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            number: metadata.ino(),
        }
    }
}

/// What [`walk`] comes to.
pub(crate) enum Visited<'a> {
    Found(Found),
    /// What has no content.
    Special(&'a Path),
}

/// Something that was found.
pub(crate) struct Found {
    /// Where, for errors.
    pub(crate) path: PathBuf,
    /// What is known of it; a file's length is not yet.
    pub(crate) entry: Entry,
    /// A file's bytes.
    pub(crate) file: Option<Box<dyn Read>>,
}

type Take<'a> = &'a mut dyn FnMut(Visited<'_>) -> Result<(), CreateError>;

/// Gives all that `inputs` have to `take`: folders before what is in them, names in order; of the
/// files `own` nothing.
pub(crate) fn walk(inputs: Vec<Input>, own: &[FileId], take: Take<'_>) -> Result<(), CreateError> {
    let mut names = HashSet::new();
    let mut walker = Walker {
        take,
        own,
        links: HashMap::new(),
    };
    for input in inputs {
        match input {
            Input::Stream(stream) => (walker.take)(Visited::Found(Found {
                path: PathBuf::from("standard input"),
                entry: Entry {
                    path: Vec::new(),
                    kind: EntryKind::File { bytes: 0 },
                    mode: 0o644,
                    mtime_s: 0,
                    mtime_ns: 0,
                },
                file: Some(stream),
            }))?,
            Input::Path(path) => {
                let at = |error| input_error(&path, error);
                let name = match path.file_name() {
                    Some(name) => name.to_owned(),
                    // `.`, `..` and the like are called what they are.
                    None => {
                        let whole = fs::canonicalize(&path).map_err(at)?;
                        let name = whole.file_name().map(ToOwned::to_owned);
                        name.unwrap_or_else(|| "root".into())
                    }
                };
                if !names.insert(name.clone()) {
                    return Err(CreateError::SameName {
                        name: name.to_string_lossy().into_owned(),
                    });
                }
                let metadata = fs::metadata(&path).map_err(at)?;
                if own.contains(&FileId::of(&metadata)) {
                    return Err(CreateError::OutputIsInput { path });
                }
                if !metadata.is_dir() && !metadata.is_file() {
                    return Err(CreateError::Special { path });
                }
                walker.visit(&path, name.as_bytes().to_vec(), &metadata)?;
            }
        }
    }
    Ok(())
}

fn input_error(path: &Path, error: io::Error) -> CreateError {
    CreateError::Input {
        path: path.to_owned(),
        error,
    }
}

struct Walker<'a> {
    take: Take<'a>,
    /// What is passed over.
    own: &'a [FileId],
    /// Files that have other names as well, and the first of them.
    links: HashMap<FileId, Vec<u8>>,
}

impl Walker<'_> {
    fn visit(
        &mut self,
        path: &Path,
        name: Vec<u8>,
        metadata: &Metadata,
    ) -> Result<(), CreateError> {
        if !is_valid_path(&name) {
            return Err(CreateError::Name {
                path: path.to_owned(),
            });
        }
        if self.own.contains(&FileId::of(metadata)) {
            return Ok(());
        }
        let at = |error| input_error(path, error);
        let kind = metadata.file_type();
        let mut file: Option<Box<dyn Read>> = None;
        let entry_kind = if kind.is_dir() {
            EntryKind::Folder
        } else if kind.is_symlink() {
            let target = fs::read_link(path).map_err(at)?;
            EntryKind::SymbolicLink {
                target: target.as_os_str().as_bytes().to_vec(),
            }
        } else if kind.is_file() {
            match self.first_name(&name, metadata) {
                Some(target) => EntryKind::HardLink { target },
                None => {
                    file = Some(Box::new(File::open(path).map_err(at)?));
                    EntryKind::File { bytes: 0 }
                }
            }
        } else {
            return (self.take)(Visited::Special(path));
        };
        let entry = Entry {
            path: name.clone(),
            kind: entry_kind,
            mode: (metadata.mode() & 0o7777) as u16,
            mtime_s: metadata.mtime(),
            mtime_ns: metadata.mtime_nsec() as u32,
        };
        (self.take)(Visited::Found(Found {
            path: path.to_owned(),
            entry,
            file,
        }))?;
        if !kind.is_dir() {
            return Ok(());
        }
        let mut names = Vec::new();
        for below in fs::read_dir(path).map_err(at)? {
            names.push(below.map_err(at)?.file_name());
        }
        names.sort_unstable();
        for below in names {
            let path = path.join(&below);
            let metadata =
                fs::symlink_metadata(&path).map_err(|error| input_error(&path, error))?;
            let name = [&name, below.as_bytes()].join(&b'/');
            self.visit(&path, name, &metadata)?;
        }
        Ok(())
    }

    /// The name under which a file with several came before.
    fn first_name(&mut self, name: &[u8], metadata: &Metadata) -> Option<Vec<u8>> {
        if metadata.nlink() < 2 {
            return None;
        }
        match self.links.entry(FileId::of(metadata)) {
            std::collections::hash_map::Entry::Occupied(first) => Some(first.get().clone()),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(name.to_vec());
                None
            }
        }
    }
}
