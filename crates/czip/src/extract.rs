//! Extraction: an archive enters, its files, folders and links are there, all of them or none; or all
//! but those that are damaged, if that is asked for.
//!
//! 1. What is wanted is chosen from the catalog, and folders are made.
//! 2. Files are written under temporary names in their folders, by one thread, from what several
//!    decompress; hard and symbolic links are made beside them.
//! 3. The digest of the whole content is checked, and file systems write down what they have.
//! 4. All take their names, one `rename` each: so each path is as it was, or whole, at any moment. What
//!    they replace is kept until all have theirs, and gets its name back if one cannot have it. Folders get their modes and times last; those that are not wanted and hold what is, if they were
//!    not there.
//!
//! Nothing has its name before all is checked, however large the archive: what is replaced needs room
//! beside what replaces it in any case, and half a release is worth less than the one before. If only
//! some paths are wanted, the digest of the whole cannot be checked; those of their frames are.
//!
//! Archives are hostile, and so may be what lies in the target: paths that lead out are no catalog's,
//! no link below the target is followed, and links come into being when nothing is written any more.

mod choice;
mod filling;
mod leftovers;
mod names;
mod sparse;
mod staging;
#[cfg(test)]
mod tests;
mod tree;

use std::{
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde::Serialize;
use thiserror::Error;

use crate::{
    archive::{Archive, ReadError, Source},
    format::{FormatError, Portion},
};
use choice::{Item, What};
use filling::Filling;
use staging::Staging;

/// What is to be extracted, and how.
#[derive(Clone, Debug, Default)]
pub struct ExtractOptions {
    /// Files and folders, as the catalog has them, the latter with all that is below; all, if there
    /// are none.
    pub paths: Vec<Vec<u8>>,
    /// What a file without a name is to be called.
    pub name: Option<Vec<u8>>,
    /// Threads that decompress; 0 is 1.
    pub threads: usize,
    /// Whether files that are damaged are left out, and not all else with them.
    pub is_damage_left_out: bool,
}

/// How far an extraction has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExtractProgress<'a> {
    /// Bytes written, and of files that were left out.
    pub plain_bytes: u64,
    /// Bytes that there are to write.
    pub plain_bytes_total: u64,
    /// Whether all are written, and file systems write them down.
    pub is_syncing: bool,
    /// What was left out just now.
    pub damaged: Option<Damaged<'a>>,
}

/// A file that is damaged, or another name of one.
#[derive(Clone, Copy, Debug)]
pub struct Damaged<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// How.
    pub error: &'a ReadError,
}

/// What was extracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Extracted {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub plain_bytes: u64,
    /// Folders, those that were there among them.
    pub folders: u64,
    /// Hard links and symbolic links.
    pub links: u64,
    /// Hard links among these that the file system refused: each is a file of its own, with the same content.
    pub copied_links: u64,
    /// Whether the digest of the whole content was checked, and not only those of frames.
    pub is_whole: bool,
    /// Files and other names of them that were left out, since they are damaged.
    #[serde(rename = "damaged_files")]
    pub damaged: u64,
    /// Those whose mode or time could not be set: they are on a file system that has none, or are folders
    /// that are somebody else's.
    pub unset: u64,
}

/// Why nothing was extracted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The archive cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Something cannot be written.
    #[error("cannot write \"{}\": {error}", .path.display())]
    At {
        /// What.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A folder is to be where something else is.
    #[error("\"{}\" is in the way: it is not a directory, and links are not followed (move it away)", .path.display())]
    NoFolder {
        /// What is there.
        path: PathBuf,
    },
    /// The target is a file.
    #[error(
        "\"{}\" is not a directory (files are extracted to a directory, which is created if it does not exist)",
        .path.display()
    )]
    TargetNoFolder {
        /// The target.
        path: PathBuf,
    },
    /// Something else is to be where a folder is.
    #[error("\"{}\" is in the way: it is a directory (move it away)", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// Nothing is called so.
    #[error("{path:?} not found in the archive (`list` shows its content)")]
    Missing {
        /// What was asked for.
        path: PathBuf,
    },
    /// Its only file has no name.
    #[error(
        "the archive holds standard input, a file without a name (write it to standard output)"
    )]
    Unnamed,
    /// Something cannot have its name, and not all that did could be taken back.
    #[error(
        "{error}; this file system cannot restore the files and links that were already replaced (each is \
         complete): {stay}"
    )]
    Partly {
        /// What went wrong.
        error: Box<Self>,
        /// How many have their names.
        stay: u64,
    },
    /// All have their names, and what was to be done then failed.
    #[error("everything is extracted and each file is complete, but a last step failed: {error}")]
    Behind {
        /// How.
        error: Box<Self>,
    },
    /// It was told to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Extracts `archive` into the folder `target`, which is made if it is not there. `progress` is told
/// how far it came, and says whether to go on.
///
/// # Errors
/// If the archive is damaged, something cannot be written, or `progress` says so. Then nothing has
/// changed, unless it is [`ExtractError::Partly`] or [`ExtractError::Behind`].
pub fn extract<S: Source>(
    archive: &Archive<S>,
    target: &Path,
    options: &ExtractOptions,
    progress: &mut dyn FnMut(ExtractProgress) -> ControlFlow<()>,
) -> Result<Extracted, ExtractError> {
    let chosen = choice::choose(archive.entries()?, options)?;
    let items = &chosen.items;
    let mut tell = |now: ExtractProgress| match progress(now) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(ExtractError::Interrupted),
    };
    let mut staging = Staging::new(target, &chosen)?;
    let mut filling = Filling::new(archive, items, options);
    for index in 0..items.len() {
        staging.prepare(index)?;
        tell(filling.progress())?;
    }
    let mut files: Vec<usize> = (0..items.len())
        .filter(|&index| matches!(items[index].what, What::File { .. }))
        .collect();
    files.sort_by_key(|&index| items[index].range().start);
    for together in
        files.chunk_by(|&one, &next| items[one].range().end == items[next].range().start)
    {
        filling.fill(together, &mut staging, &mut tell)?;
    }
    if filling.is_digest_wrong() {
        return Err(ReadError::from(FormatError::Digest(Portion::Content)).into());
    }
    let now = filling.progress();
    let mut extracted = Extracted {
        is_whole: filling.is_whole(),
        ..Extracted::default()
    };
    for (index, item) in items.iter().enumerate() {
        if let Some(error) = filling.damage(index) {
            let path = &item.path;
            let damaged = Some(Damaged { path, error });
            tell(ExtractProgress { damaged, ..now })?;
            extracted.damaged += 1;
            continue;
        }
        if let Some(of) = staging.link(index)? {
            filling.fill_again(index, of, &mut staging, &mut tell)?;
            extracted.copied_links += 1;
        }
        extracted.count(item);
    }
    tell(ExtractProgress {
        is_syncing: true,
        ..now
    })?;
    extracted.unset = staging.finish()?;
    Ok(extracted)
}

impl Extracted {
    fn count(&mut self, item: &Item) {
        match item.what {
            What::File { .. } => self.files += 1,
            What::Folder => self.folders += 1,
            What::HardLink { .. } | What::SymbolicLink { .. } => self.links += 1,
        }
        self.plain_bytes += item.bytes();
    }
}
