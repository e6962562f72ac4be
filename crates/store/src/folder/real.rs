//! A folder of the system's.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
};

use super::{Folder, FolderFile};
use crate::Room;

/// A folder of the system's.
#[derive(Clone, Debug)]
pub struct RealFolder {
    path: PathBuf,
}

impl RealFolder {
    /// The folder at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

impl Folder for RealFolder {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            match entry.metadata() {
                Ok(metadata) => files.push((
                    entry.file_name().to_string_lossy().into_owned(),
                    metadata.len(),
                )),
                // Its owner has just evicted it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn FolderFile>> {
        Ok(Box::new(File::open(self.path.join(name))?))
    }

    fn open_or_create(&self, name: &str) -> io::Result<Box<dyn FolderFile>> {
        Ok(Box::new(open_or_create(&self.path.join(name))?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn free_bytes(&self) -> Option<u64> {
        Room::of(&self.path).ok().map(|room| room.free_bytes)
    }
}

/// Opens a file to read and write it. One that is made is for the folder's owner alone, since
/// traffic is in it.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(path)?;
    if let Some(folder) = path.parent() {
        let (folder, own) = (fs::metadata(folder)?, file.metadata()?);
        if folder.uid() != own.uid() {
            // A store that root adds files to stays its gateway's. Others may give nothing away.
            let _ = fchown(&file, Some(folder.uid()), Some(folder.gid()));
        }
    }
    Ok(file)
}

impl FolderFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
