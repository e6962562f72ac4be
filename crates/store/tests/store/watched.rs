//! A folder that is looked at before each change, and does not say how much room its disk has.

use std::{
    fmt::{self, Debug, Formatter},
    io,
    path::PathBuf,
    sync::Arc,
};

use refrain_store::folder::{Folder, FolderFile, MemoryFolder};

type Look = Arc<dyn Fn(&MemoryFolder) + Send + Sync>;

#[derive(Clone)]
pub struct WatchedFolder {
    inner: MemoryFolder,
    look: Look,
}

impl WatchedFolder {
    pub fn new(inner: &MemoryFolder, look: impl Fn(&MemoryFolder) + Send + Sync + 'static) -> Self {
        Self {
            inner: inner.clone(),
            look: Arc::new(look),
        }
    }

    fn look(&self) {
        (self.look)(&self.inner);
    }
}

impl Debug for WatchedFolder {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt(formatter)
    }
}

impl Folder for WatchedFolder {
    fn path(&self) -> PathBuf {
        self.inner.path()
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn FolderFile>> {
        self.inner.open(name)
    }

    fn open_or_create(&self, name: &str) -> io::Result<Box<dyn FolderFile>> {
        self.look();
        Ok(Box::new(WatchedFile {
            inner: self.inner.open_or_create(name)?,
            folder: self.clone(),
        }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.look();
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.look();
        self.inner.rename(from, to)
    }

    fn sync(&self) -> io::Result<()> {
        self.look();
        self.inner.sync()
    }
}

struct WatchedFile {
    inner: Box<dyn FolderFile>,
    folder: WatchedFolder,
}

impl FolderFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.folder.look();
        self.inner.write_at(bytes, offset)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.inner.bytes()
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.folder.look();
        self.inner.set_bytes(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.folder.look();
        self.inner.sync()
    }
}
