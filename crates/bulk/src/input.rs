//! Files, folders and streams, one file after another.
//!
//! Folders are walked in the order of names, so that two runs see the same. Links in them are not
//! followed. What cannot be read is told, and the rest goes on.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use walkdir::{DirEntry, WalkDir};

use crate::outcome::{Failed, Failure};

/// Something to be read.
pub enum Input {
    /// A file, or a folder with all that is in it within bounds; links to either are followed.
    Path(PathBuf, Bounds),
    /// A stream of bytes, and what it is called.
    Stream(PathBuf, Box<dyn Read + Send>),
}

/// How far an input is read, if it is a folder, and how it is opened, if it is no file either: by default all,
/// as a file.
#[derive(Clone, Default)]
pub struct Bounds {
    /// Whether folders on other file systems than the input count as empty.
    pub is_one_file_system: bool,
    /// Whether what is at a path is left alone, with all that is in it; asked of the input as well.
    pub skips: Option<Skips>,
    /// Opens an input that is no file and no folder, such as a pipe, for whose other end one may wait for
    /// ever.
    pub opens: Option<Opens>,
}

/// Says whether something is left alone, by its path and by what the system knows of it, as of an [`Item`].
pub type Skips = Arc<dyn Fn(&Path, &Metadata) -> bool + Send + Sync>;

/// Opens what is to be read to its end, whenever that comes.
pub type Opens = Arc<dyn Fn(&Path) -> io::Result<Box<dyn Read + Send>> + Send + Sync>;

impl Bounds {
    /// All that is at and below `path`, in the order of names.
    fn entries(
        &self,
        path: &Path,
    ) -> impl Iterator<Item = walkdir::Result<DirEntry>> + Send + use<> {
        let skips = self.skips.clone();
        let entries = WalkDir::new(path).same_file_system(self.is_one_file_system);
        let entries = entries.sort_by_file_name().into_iter();
        entries.filter_entry(move |entry| match &skips {
            // What cannot be looked at is told later.
            Some(skips) => !metadata(entry).is_ok_and(|metadata| skips(entry.path(), &metadata)),
            None => true,
        })
    }
}

impl Input {
    /// About how many bytes it has, if that can be known before they are read; what cannot be looked at has
    /// none. `go_on` says whether to look further.
    pub fn expected_bytes(&self, go_on: &mut dyn FnMut() -> bool) -> Option<u64> {
        let Self::Path(path, bounds) = self else {
            return None;
        };
        if fs::metadata(path).is_ok_and(|input| !input.is_file() && !input.is_dir()) {
            return None;
        }
        let entries = bounds.entries(path).take_while(|_| go_on());
        let files = entries.flatten().filter_map(|entry| metadata(&entry).ok());
        Some(files.filter(Metadata::is_file).map(|file| file.len()).sum())
    }
}

/// Something that was found: a file, a folder, a link or a stream.
#[derive(Debug)]
pub struct Item {
    /// Where it is, or what a stream was called.
    pub path: Arc<Path>,
    /// What the system knows of it: of the link itself, unless that was given. Of a stream, nothing.
    pub metadata: Option<Metadata>,
}

/// Something that was found, and its content.
pub(crate) struct Found {
    pub(crate) item: Item,
    pub(crate) content: Content,
}

/// Where bytes come from.
pub(crate) enum Content {
    /// Folders and links have none.
    Nothing,
    /// A file, as it was when it was found: it can be read at several places at once.
    File(Written),
    /// What comes is known once it has come.
    Stream(Box<dyn Read + Send>),
}

/// What tells that a file was written to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    modified: (i64, i64),
}

impl Written {
    fn of(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// Whether it was written to since.
    pub(crate) fn has_changed(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|now| Self::of(&now) != *self)
    }
}

/// All that is found, in order.
pub(crate) fn find(inputs: Vec<Input>) -> impl Iterator<Item = Result<Found, Failure>> + Send {
    inputs.into_iter().flat_map(|input| {
        let found: Box<dyn Iterator<Item = _> + Send> = match input {
            Input::Stream(path, stream) => Box::new(std::iter::once(Ok(Found {
                item: Item {
                    path: path.into(),
                    metadata: None,
                },
                content: Content::Stream(stream),
            }))),
            Input::Path(path, bounds) => Box::new(walk(&path, &bounds)),
        };
        found
    })
}

fn walk(
    path: &Path,
    bounds: &Bounds,
) -> impl Iterator<Item = Result<Found, Failure>> + Send + use<> {
    let input: Arc<Path> = path.into();
    let opens = bounds.opens.clone();
    bounds.entries(path).map(move |entry| match entry {
        Ok(entry) => {
            let found = found(&entry, opens.as_ref());
            found.map_err(|failed| Failure::of(entry.path(), failed))
        }
        Err(error) => {
            let path: Arc<Path> = error.path().map_or_else(|| input.clone(), Into::into);
            Err(Failure::of(path, without_path(error)))
        }
    })
}

/// What went wrong, without where: that is told beside it.
fn without_path(error: walkdir::Error) -> io::Error {
    let words = error.to_string();
    error
        .into_io_error()
        .unwrap_or_else(|| io::Error::other(words))
}

fn metadata(entry: &DirEntry) -> io::Result<Metadata> {
    match entry.depth() {
        // A link that was given is followed.
        0 => fs::metadata(entry.path()),
        _ => entry.metadata().map_err(without_path),
    }
}

fn found(entry: &DirEntry, opens: Option<&Opens>) -> Result<Found, Failed> {
    let path = entry.path();
    let metadata = metadata(entry)?;
    let kind = metadata.file_type();
    let content = if kind.is_dir() || kind.is_symlink() {
        Content::Nothing
    } else if kind.is_file() && metadata.len() > 0 {
        Content::File(Written::of(&metadata))
    } else if kind.is_file() {
        Content::Stream(Box::new(WithoutLength(File::open(path)?)))
    } else if entry.depth() == 0 {
        Content::Stream(match opens {
            Some(opens) => opens(path)?,
            None => Box::new(File::open(path)?),
        })
    } else {
        return Err(Failed::Special);
    };
    Ok(Found {
        item: Item {
            path: path.into(),
            metadata: Some(metadata),
        },
        content,
    })
}

/// A file that says that it has no bytes. Those of /proc have some, and are read to their end. One that was
/// empty, and that somebody appends to, would have none.
struct WithoutLength(File);

impl Read for WithoutLength {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        match count > 0 && self.0.metadata()?.len() > 0 {
            true => Err(io::Error::other("it was empty, and is being written to")),
            false => Ok(count),
        }
    }
}

/// Reads until `bytes` is full or the stream ends, and says how many came.
pub(crate) fn read_full(stream: &mut dyn Read, bytes: &mut [u8]) -> (usize, Option<io::Error>) {
    fill(bytes, |rest, _| stream.read(rest))
}

/// Fills `bytes` by `read`, which takes what is left of them and how many there are already, and says
/// how many came.
pub(crate) fn fill(
    bytes: &mut [u8],
    mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < bytes.len() {
        match read(&mut bytes[filled..], filled) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The content of a file that has no length when it is found.
    fn stream(path: &Path) -> Box<dyn Read + Send> {
        let input = Input::Path(path.to_owned(), Bounds::default());
        let found = find(vec![input]).next().expect("it is there");
        match found.expect("readable").content {
            Content::Stream(stream) => stream,
            _ => panic!("it has a length"),
        }
    }

    #[test]
    fn an_empty_file_that_grows_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, "").expect("written");
        let mut empty = stream(&path);
        let mut log = File::options().append(true).open(&path).expect("there");
        assert_eq!(empty.read(&mut [0; 9]).expect("readable"), 0);
        log.write_all(b"more").expect("written");
        let error = empty.read(&mut [0; 9]).expect_err("it grows");
        assert!(error.to_string().contains("being written to"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_of_proc_is_read_to_its_end() {
        let path = Path::new("/proc/self/mountinfo");
        let mut content = Vec::new();
        stream(path).read_to_end(&mut content).expect("readable");
        assert_eq!(content, std::fs::read(path).expect("there"));
    }
}
