//! Archives of what somebody else has walked, read, cut and named.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs::Metadata,
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use super::{
    CreateError, CreateOptions, Created, Creator, FileId, Output,
    walk::{claim_name, entry_of, nameless},
};
use crate::format::{
    ChunkName, Stream,
    catalog::{Entry, EntryKind, is_valid_path},
};

/// Makes an archive of what is given to it: folders before what is in them, names in order, and each
/// file's chunks, cut as the options say, and named.
///
/// ```
/// use refrain_czip::create::{Assembler, CreateOptions, Output};
/// use refrain_czip_format::ChunkName;
///
/// let folder = tempfile::tempdir()?;
/// let song = folder.path().join("song");
/// std::fs::write(&song, "verse refrain")?;
/// let options = CreateOptions { is_woven: false, ..CreateOptions::default() };
/// let output = Output::File(folder.path().join("song.czip"));
/// let mut assembler = Assembler::new(output, &options)?;
/// assembler.begin(&song, 0, Some(&song.metadata()?))?;
/// let (one, other) = (&b"verse "[..], &b"refrain"[..]);
/// let named = [one, other].map(|chunk| (ChunkName::of(chunk), chunk));
/// assembler.chunks(b"verse refrain", named.into_iter())?;
/// assembler.end(true)?;
/// assert_eq!(assembler.finish()?.summary.plain_bytes, 13);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Assembler<'a> {
    creator: Creator<'a>,
    own_files: Vec<FileId>,
    /// The input that is being walked, and what it is called.
    root: (PathBuf, OsString),
    /// What the inputs are called.
    names: HashSet<OsString>,
    /// The file whose chunks come.
    file: Option<OpenFile>,
    /// Files that have other names as well, and the first of them.
    links: HashMap<FileId, Vec<u8>>,
}

struct OpenFile {
    entry: Entry,
    bytes: u64,
    /// If it has other names as well.
    id: Option<FileId>,
}

/// What becomes of something that was given.
#[derive(Debug)]
pub enum Begun {
    /// Its chunks are expected, and its end.
    File,
    /// It has no content, and is in the archive.
    Entry,
    /// It is in the archive as another name of a file before it.
    HardLink,
    /// It is a file that the archive is made in, or that it replaces.
    PassedOver,
    /// It is not in the archive, and this is why.
    LeftOut(io::Error),
}

impl<'a> Assembler<'a> {
    /// Begins an archive.
    ///
    /// # Errors
    /// If the output cannot be written, or an earlier archive not be read.
    ///
    /// # Panics
    /// If the options ask for containers or encryption.
    pub fn new(output: Output, options: &'a CreateOptions) -> Result<Self, CreateError> {
        assert!(!options.is_woven && options.encryption.is_none());
        let creator = Creator::new(output, options)?;
        Ok(Self {
            own_files: creator.own_files(),
            creator,
            root: Default::default(),
            names: HashSet::new(),
            file: None,
            links: HashMap::new(),
        })
    }

    /// Takes what is at `path`, an input (`depth` 0) or in the latest one; `metadata` is that of the file,
    /// the folder or the link, and without it, of a stream that has no name, and is the only input.
    ///
    /// # Errors
    /// If it is an input that cannot be in the archive, or the archive cannot be written.
    pub fn begin(
        &mut self,
        path: &Path,
        depth: usize,
        metadata: Option<&Metadata>,
    ) -> Result<Begun, CreateError> {
        let Some(metadata) = metadata else {
            return Ok(self.file(nameless(), None));
        };
        let id = FileId::of(metadata);
        let is_own = self.own_files.contains(&id);
        if depth == 0 {
            self.root = (path.to_owned(), claim_name(path, &mut self.names)?);
        }
        let name = match self.name_below(path) {
            name if is_valid_path(&name) => name,
            _ if depth == 0 => return Err(CreateError::Name { path: path.into() }),
            _ => {
                let error = io::Error::other("its path is longer than an archive can hold");
                return Ok(Begun::LeftOut(error));
            }
        };
        match is_own {
            true if depth == 0 => return Err(CreateError::OutputIsInput { path: path.into() }),
            true => return Ok(Begun::PassedOver),
            false => {}
        }
        let entry = match entry_of(path, name, metadata, &self.links) {
            Ok(entry) => entry,
            Err(error) => return Ok(Begun::LeftOut(error)),
        };
        let begun = match entry.kind {
            EntryKind::File { .. } => {
                return Ok(self.file(entry, (metadata.nlink() > 1).then_some(id)));
            }
            EntryKind::HardLink { .. } => Begun::HardLink,
            EntryKind::Folder | EntryKind::SymbolicLink { .. } => Begun::Entry,
        };
        self.creator.entry(&entry)?;
        Ok(begun)
    }

    /// What something in the latest input, or that itself, is called in the archive.
    fn name_below(&self, path: &Path) -> Vec<u8> {
        let (root, name) = &self.root;
        let below = path.strip_prefix(root).unwrap_or(path).as_os_str();
        match below.is_empty() {
            true => name.as_bytes().to_vec(),
            false => [name.as_bytes(), below.as_bytes()].join(&b'/'),
        }
    }

    fn file(&mut self, entry: Entry, id: Option<FileId>) -> Begun {
        let content = &mut self.creator.streams.makers[Stream::Content.index()];
        content.written(entry.mtime_s);
        self.file = Some(OpenFile {
            entry,
            bytes: 0,
            id,
        });
        Begun::File
    }

    /// The next chunks of the file, each with its name; `bytes` are those of all of them.
    ///
    /// # Errors
    /// If the archive cannot be written.
    ///
    /// # Panics
    /// If no file was begun.
    pub fn chunks<'c>(
        &mut self,
        bytes: &[u8],
        chunks: impl Iterator<Item = (ChunkName, &'c [u8])>,
    ) -> Result<(), CreateError> {
        let file = self.file.as_mut().expect("a file was begun");
        file.bytes += bytes.len() as u64;
        let Creator {
            digest,
            progress,
            streams,
            options,
            ..
        } = &mut self.creator;
        digest.update(bytes);
        let content = &mut streams.makers[Stream::Content.index()];
        for (name, chunk) in chunks {
            content.push_chunk(name, chunk, &mut streams.frames)?;
        }
        progress.plain_bytes += bytes.len() as u64;
        progress.stored_bytes = streams.frames.frames.bytes;
        streams.estimate_table(options);
        Ok(())
    }

    /// The file ends. One of which nothing came is left out if more was to come, and `is_whole` says that
    /// it is not.
    ///
    /// # Errors
    /// If the archive cannot be written.
    ///
    /// # Panics
    /// If no file was begun.
    pub fn end(&mut self, is_whole: bool) -> Result<(), CreateError> {
        let file = self.file.take().expect("a file was begun");
        let OpenFile { entry, bytes, id } = file;
        if bytes == 0 && !is_whole {
            return Ok(());
        }
        if let Some(id) = id {
            self.links.insert(id, entry.path.clone());
        }
        let kind = EntryKind::File { bytes };
        self.creator.entry(&Entry { kind, ..entry })
    }

    /// All was given: the archive takes its name.
    ///
    /// # Errors
    /// If the archive cannot be written; then what was there is as it was.
    pub fn finish(self) -> Result<Created, CreateError> {
        self.creator.finish()
    }
}
