//! What goes into an archive, in the order in which it does.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs::{self, Metadata},
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use super::{
    CreateError, Exclude,
    content::{Content, OpenFile},
};
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
    /// What cannot be read, or is gone by now, with all that is in it.
    Unread(&'a Path, io::Error),
}

/// Something that was found.
pub(crate) struct Found {
    /// Where, for errors.
    pub(crate) path: PathBuf,
    /// Whether it is one of the inputs itself, which may not be missing.
    pub(crate) is_given: bool,
    /// What is known of it; a file's length is not yet.
    pub(crate) entry: Entry,
    /// A file's bytes.
    pub(crate) file: Option<Content>,
}

/// Says whether what was found is in the archive, so that links may lead to it.
type Take<'a> = &'a mut dyn FnMut(Visited<'_>) -> Result<bool, CreateError>;

/// Where a walk does not go.
#[derive(Default)]
pub(crate) struct Bounds<'a> {
    /// Files that are passed over.
    pub(crate) own: &'a [FileId],
    pub(crate) exclude: Option<&'a Exclude>,
    /// Whether folders on other file systems than their input are kept empty.
    pub(crate) is_one_file_system: bool,
}

impl Bounds<'_> {
    fn excludes(&self, name: &[u8], metadata: &Metadata) -> bool {
        (self.exclude).is_some_and(|exclude| exclude.is_of(name, metadata.is_dir()))
    }
}

/// What an input is called in an archive.
///
/// # Errors
/// If it is one such as `.`, and what it is called cannot be found out.
pub fn name_of(path: &Path) -> io::Result<OsString> {
    if let Some(name) = path.file_name() {
        return Ok(name.to_owned());
    }
    // `.`, `..` and the like are called what they are.
    let whole = fs::canonicalize(path)?;
    let name = whole.file_name().map(ToOwned::to_owned);
    Ok(name.unwrap_or_else(|| "root".into()))
}

/// Gives all that `inputs` have within `bounds` to `take`: folders before what is in them, names in
/// order. What is wrong with an input itself is an error; with what is in it, it is told.
pub(crate) fn walk(
    inputs: Vec<Input>,
    bounds: &Bounds<'_>,
    take: Take<'_>,
) -> Result<(), CreateError> {
    let mut names = HashSet::new();
    let mut walker = Walker {
        take,
        bounds,
        device: 0,
        links: HashMap::new(),
    };
    for input in inputs {
        match input {
            Input::Stream(stream) => drop((walker.take)(Visited::Found(Found {
                path: PathBuf::from("standard input"),
                is_given: true,
                entry: nameless(),
                file: Some(Content::Stream(stream)),
            }))?),
            Input::Path(path) => {
                let at = |error| input_error(&path, error);
                let name = claim_name(&path, &mut names)?;
                let metadata = fs::metadata(&path).map_err(at)?;
                if bounds.excludes(name.as_bytes(), &metadata) {
                    continue;
                }
                if bounds.own.contains(&FileId::of(&metadata)) {
                    return Err(CreateError::OutputIsInput { path });
                }
                if !metadata.is_dir() && !metadata.is_file() {
                    return Err(CreateError::Special { path });
                }
                walker.given(&path, name.as_bytes().to_vec(), &metadata)?;
            }
        }
    }
    Ok(())
}

/// The entry of an input without a name.
pub(super) fn nameless() -> Entry {
    Entry {
        path: Vec::new(),
        kind: EntryKind::File { bytes: 0 },
        mode: 0o644,
        mtime_s: 0,
        mtime_ns: 0,
    }
}

/// The name of an input, which no other may have.
pub(super) fn claim_name(
    path: &Path,
    names: &mut HashSet<OsString>,
) -> Result<OsString, CreateError> {
    let name = name_of(path).map_err(|error| input_error(path, error))?;
    if !names.insert(name.clone()) {
        let name = name.to_string_lossy().into_owned();
        return Err(CreateError::SameName { name });
    }
    Ok(name)
}

/// The entry of what is at `path`, which has this name in the archive; `links` are files that have further names.
/// A file's length is not known yet.
pub(super) fn entry_of(
    path: &Path,
    name: Vec<u8>,
    metadata: &Metadata,
    links: &HashMap<FileId, Vec<u8>>,
) -> io::Result<Entry> {
    let kind = if metadata.is_dir() {
        EntryKind::Folder
    } else if metadata.is_symlink() {
        let target = fs::read_link(path)?.into_os_string().into_encoded_bytes();
        EntryKind::SymbolicLink { target }
    } else {
        match links.get(&FileId::of(metadata)).cloned() {
            Some(target) => EntryKind::HardLink { target },
            None => EntryKind::File { bytes: 0 },
        }
    };
    Ok(Entry {
        path: name,
        kind,
        mode: (metadata.mode() & 0o7777) as u16,
        mtime_s: metadata.mtime(),
        mtime_ns: metadata.mtime_nsec() as u32,
    })
}

fn input_error(path: &Path, error: io::Error) -> CreateError {
    CreateError::Input {
        path: path.to_owned(),
        error,
    }
}

struct Walker<'a> {
    take: Take<'a>,
    bounds: &'a Bounds<'a>,
    /// The file system of the input that it is in.
    device: u64,
    /// Files that have other names as well, and the first of them.
    links: HashMap<FileId, Vec<u8>>,
}

impl Walker<'_> {
    /// Visits an input.
    fn given(
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
        self.device = metadata.dev();
        let found = self.found(path, name, metadata, true);
        let found = found.map_err(|error| input_error(path, error))?;
        self.give(found, metadata)
    }

    /// Visits what lies in one.
    fn below(&mut self, path: &Path, name: Vec<u8>) -> Result<(), CreateError> {
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => return self.tell(Visited::Unread(path, error)),
        };
        if self.bounds.excludes(&name, &metadata)
            || self.bounds.own.contains(&FileId::of(&metadata))
        {
            return Ok(());
        }
        let kind = metadata.file_type();
        if !kind.is_dir() && !kind.is_symlink() && !kind.is_file() {
            return self.tell(Visited::Special(path));
        }
        if !is_valid_path(&name) {
            let error = io::Error::other("its path is too long for an archive");
            return self.tell(Visited::Unread(path, error));
        }
        match self.found(path, name, &metadata, false) {
            Ok(found) => self.give(found, &metadata),
            Err(error) => self.tell(Visited::Unread(path, error)),
        }
    }

    fn tell(&mut self, visited: Visited<'_>) -> Result<(), CreateError> {
        (self.take)(visited).map(drop)
    }

    /// A file, a folder or a link, as far as it is known before it is read.
    fn found(
        &mut self,
        path: &Path,
        name: Vec<u8>,
        metadata: &Metadata,
        is_given: bool,
    ) -> io::Result<Found> {
        let entry = entry_of(path, name, metadata, &self.links)?;
        let file = match entry.kind {
            EntryKind::File { .. } => Some(Content::File(OpenFile::open(path, metadata)?)),
            _ => None,
        };
        Ok(Found {
            path: path.to_owned(),
            is_given,
            entry,
            file,
        })
    }

    /// Gives it, and then what is in it if it is a folder.
    fn give(&mut self, found: Found, metadata: &Metadata) -> Result<(), CreateError> {
        let (path, name) = (found.path.clone(), found.entry.path.clone());
        let is_given = found.is_given;
        let may_have_links = found.file.is_some() && metadata.nlink() > 1;
        let is_there = (self.take)(Visited::Found(found))?;
        if is_there && may_have_links {
            self.links.insert(FileId::of(metadata), name.clone());
        }
        let is_elsewhere = self.bounds.is_one_file_system && metadata.dev() != self.device;
        if !metadata.is_dir() || is_elsewhere {
            return Ok(());
        }
        let names: io::Result<Vec<_>> = fs::read_dir(&path)
            .and_then(|entries| entries.map(|below| Ok(below?.file_name())).collect());
        let mut names = match names {
            Ok(names) => names,
            Err(error) if is_given => return Err(input_error(&path, error)),
            Err(error) => return self.tell(Visited::Unread(&path, error)),
        };
        names.sort_unstable();
        for below in names {
            let name = [&name, below.as_bytes()].join(&b'/');
            self.below(&path.join(&below), name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a walk through `folder` comes to: `take` says what becomes of a file.
    fn walked(folder: &Path, mut take: impl FnMut(&Path) -> bool) -> Vec<String> {
        let mut seen = Vec::new();
        let input = Input::Path(folder.to_owned());
        let bounds = Bounds::default();
        walk(vec![input], &bounds, &mut |visited| {
            let name = |path: &Path| {
                let below = path.strip_prefix(folder).expect("it is below");
                below.display().to_string()
            };
            Ok(match visited {
                Visited::Found(found) => {
                    let kind = match &found.entry.kind {
                        EntryKind::File { .. } => "file".to_owned(),
                        EntryKind::Folder => "folder".to_owned(),
                        EntryKind::SymbolicLink { .. } => "symbolic link".to_owned(),
                        EntryKind::HardLink { target } => {
                            let target = String::from_utf8_lossy(target);
                            format!("link to {}", target.split_once('/').expect("below").1)
                        }
                    };
                    seen.push(format!("{} {kind}", name(&found.path)));
                    take(&found.path)
                }
                Visited::Special(path) => {
                    seen.push(format!("{} special", name(path)));
                    false
                }
                Visited::Unread(path, error) => {
                    seen.push(format!("{} {:?}", name(path), error.kind()));
                    false
                }
            })
        })
        .expect("the folder itself is there");
        seen
    }

    #[test]
    fn what_is_gone_before_it_is_read_is_told_and_the_rest_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        for name in ["a", "b", "d/x", "e"] {
            fs::create_dir_all(folder.join(name).parent().expect("one")).expect("made");
            fs::write(folder.join(name), name).expect("written");
        }
        let seen = walked(folder, |path| {
            if path.ends_with("a") {
                fs::remove_file(folder.join("b")).expect("there");
            }
            if path.ends_with("d") {
                fs::remove_dir_all(folder.join("d")).expect("there");
            }
            true
        });
        assert_eq!(
            seen,
            [
                " folder",
                "a file",
                "b NotFound",
                "d folder",
                "d NotFound",
                "e file"
            ]
        );
    }

    #[test]
    fn no_link_leads_to_a_name_that_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        fs::write(folder.join("a"), "content").expect("written");
        for link in ["b", "c"] {
            fs::hard_link(folder.join("a"), folder.join(link)).expect("made");
        }
        let seen = walked(folder, |path| !path.ends_with("a"));
        assert_eq!(seen, [" folder", "a file", "b file", "c link to b"]);
    }
}
