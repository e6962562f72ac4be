//! Files, folders and streams, one file after another.
//!
//! Folders are walked in the order of names, so that two runs see the same. Links in them are not
//! followed. What cannot be read is told, and the rest goes on.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use walkdir::WalkDir;

use crate::{batch::Failure, outcome::Failed};

/// Something to be read.
pub enum Input {
    /// A file, or a folder with all that is in it; links to either are followed.
    Path(PathBuf),
    /// A stream of bytes, and what it is called.
    Stream(PathBuf, Box<dyn Read + Send>),
}

/// A file's content, and where it is for errors.
pub(crate) struct Found {
    pub(crate) path: Arc<Path>,
    pub(crate) content: Content,
}

/// Where bytes come from.
pub(crate) enum Content {
    /// A file with so many bytes: they can be read at several places at once.
    File(Arc<File>, u64),
    /// What comes is known once it has come.
    Stream(Box<dyn Read + Send>),
}

/// All that is found, in order.
pub(crate) fn find(inputs: Vec<Input>) -> impl Iterator<Item = Result<Found, Failure>> + Send {
    inputs.into_iter().flat_map(|input| {
        let found: Box<dyn Iterator<Item = _> + Send> = match input {
            Input::Stream(path, stream) => Box::new(std::iter::once(Ok(Found {
                path: path.into(),
                content: Content::Stream(stream),
            }))),
            Input::Path(path) => Box::new(walk(&path)),
        };
        found
    })
}

fn walk(path: &Path) -> impl Iterator<Item = Result<Found, Failure>> + Send + use<> {
    let entries = WalkDir::new(path).sort_by_file_name().into_iter();
    entries.filter_map(|entry| match entry {
        Ok(entry) if entry.file_type().is_dir() => None,
        // A link that was given is followed.
        Ok(entry) if entry.depth() == 0 && entry.path().is_dir() => None,
        Ok(entry) if entry.path_is_symlink() && entry.depth() > 0 => None,
        Ok(entry) if entry.depth() > 0 && !entry.file_type().is_file() => Some(Err(Failure {
            path: entry.path().into(),
            failed: Failed::Special,
        })),
        Ok(entry) => Some(open(entry.path())),
        Err(error) => Some(Err(Failure {
            path: error.path().unwrap_or(Path::new("")).into(),
            failed: Failed::Unread(error.into()),
        })),
    })
}

fn open(path: &Path) -> Result<Found, Failure> {
    let content = File::open(path).and_then(|file| {
        let metadata = file.metadata()?;
        // Files in /proc say that they have no bytes, and have some.
        Ok(match metadata.is_file() && metadata.len() > 0 {
            true => Content::File(Arc::new(file), metadata.len()),
            false => Content::Stream(Box::new(file)),
        })
    });
    match content {
        Ok(content) => Ok(Found {
            path: path.into(),
            content,
        }),
        Err(error) => Err(Failure {
            path: path.into(),
            failed: Failed::Unread(error),
        }),
    }
}

/// Reads until `bytes` is full or the stream ends, and says how many came.
pub(crate) fn read_full(stream: &mut dyn Read, bytes: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < bytes.len() {
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}
