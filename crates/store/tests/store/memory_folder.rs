//! A folder in memory that fails on demand: full disks, short writes, power cuts.
//!
//! It keeps apart what was synced from what was only written. A power cut leaves, of each write
//! since the last sync, all, nothing or a part, as a seed decides: disks write in any order.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use refrain_store::folder::{Folder, FolderFile};

/// How writes fail from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// They do not.
    #[default]
    None,
    /// After so many more bytes the disk is full.
    FullAfter(u64),
    /// The disk has room for files of so many bytes in all.
    FullAt(u64),
    /// Each write takes one half of its bytes, to be called again for the rest.
    ShortWrites,
    /// Syncs fail, writes do not.
    SyncFails,
    /// Reads fail.
    ReadsFail,
    /// Reads of the file with this name fail.
    ReadsFailOf(&'static str),
    /// Reads of this byte of the file with this name fail, as those of a bad sector do.
    ReadsFailAt(&'static str, u64),
    /// The file with this name may not be read.
    Forbidden(&'static str),
}

/// A folder in memory. Clones are the same folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFolder {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Arc<Mutex<Content>>>,
    /// The names that a power cut would leave.
    synced_files: BTreeMap<String, Arc<Mutex<Content>>>,
    fault: Fault,
    /// The most bytes that the files had in all, at any moment.
    peak_bytes: u64,
}

impl State {
    fn files_bytes(&self) -> u64 {
        let files = self.files.values();
        files.map(|content| lock(content).bytes.len() as u64).sum()
    }
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    /// Writes since the last sync.
    unsynced: Vec<(u64, Vec<u8>)>,
}

impl MemoryFolder {
    /// An empty folder.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Lets the disk fail.
    pub(crate) fn set_fault(&self, fault: Fault) {
        self.state().fault = fault;
    }

    /// The bytes of a file, if there is one.
    #[must_use]
    pub(crate) fn content(&self, name: &str) -> Option<Vec<u8>> {
        let content = self.state().files.get(name).cloned()?;
        Some(lock(&content).bytes.clone())
    }

    /// Puts a file there, or other bytes into it, which who has it open sees too.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        let content = Arc::clone(state.files.entry(name.to_owned()).or_default());
        *lock(&content) = Content {
            synced: bytes.clone(),
            bytes,
            unsynced: Vec::new(),
        };
        state.synced_files.insert(name.to_owned(), content);
    }

    /// The most bytes that its files had in all.
    #[must_use]
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.state().peak_bytes
    }

    /// A copy as it stands, of which the original knows nothing.
    #[must_use]
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        for (name, content) in &self.state().files {
            copy.put(name, lock(content).bytes.clone());
        }
        copy
    }

    /// What a power cut leaves: all that was synced, and of every later write as much as the
    /// draws say, each from 0 (nothing) to 255 (all).
    #[must_use]
    pub(crate) fn after_power_cut(&self, mut draw: impl FnMut() -> u8) -> Self {
        let rest = Self::new();
        let state = self.state();
        // Which files there are is synced by itself: those of either list may be left.
        let mut names = state.synced_files.clone();
        for (name, content) in &state.files {
            if !names.contains_key(name) && draw() >= 128 {
                names.insert(name.clone(), Arc::clone(content));
            }
        }
        names.retain(|name, _| state.files.contains_key(name) || draw() >= 128);
        for (name, content) in &names {
            let content = lock(content);
            let mut bytes = content.synced.clone();
            for (offset, written) in &content.unsynced {
                let kept = written.len() * usize::from(draw()) / 255;
                // A length may be written before the bytes are: zeros.
                let is_extended = draw() >= 128;
                let offset = *offset as usize;
                let end = offset + if is_extended { written.len() } else { kept };
                if kept > 0 || is_extended {
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[offset..offset + kept].copy_from_slice(&written[..kept]);
                }
            }
            rest.put(name, bytes);
        }
        rest
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Folder for MemoryFolder {
    fn path(&self) -> PathBuf {
        "memory".into()
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let state = self.state();
        let files = state.files.iter();
        Ok(files
            .map(|(name, content)| (name.clone(), lock(content).bytes.len() as u64))
            .collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn FolderFile>> {
        let content = self.state().files.get(name).cloned();
        Ok(Box::new(MemoryFile {
            name: name.to_owned(),
            content: content.ok_or(io::ErrorKind::NotFound)?,
            folder: self.clone(),
        }))
    }

    fn open_or_create(&self, name: &str) -> io::Result<Box<dyn FolderFile>> {
        if !self.state().files.contains_key(name) {
            let content = Arc::default();
            self.state().files.insert(name.to_owned(), content);
        }
        self.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = self.state().files.remove(name);
        removed.map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let content = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), content);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.fault == Fault::SyncFails {
            return Err(io::Error::other("the disk does not sync"));
        }
        state.synced_files = state.files.clone();
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        let state = self.state();
        match state.fault {
            Fault::FullAfter(left) => Some(left),
            Fault::FullAt(room) => Some(room.saturating_sub(state.files_bytes())),
            _ => None,
        }
    }
}

struct MemoryFile {
    /// As it was opened.
    name: String,
    content: Arc<Mutex<Content>>,
    folder: MemoryFolder,
}

impl FolderFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let fault = self.folder.state().fault;
        if matches!(fault, Fault::Forbidden(name) if name == self.name) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let fails = match fault {
            Fault::ReadsFail => true,
            Fault::ReadsFailOf(name) => self.name == name,
            Fault::ReadsFailAt(name, bad) => {
                let end = offset + buffer.len() as u64;
                self.name == name && (offset..end).contains(&bad)
            }
            _ => false,
        };
        if fails {
            return Err(io::Error::other("the disk does not read"));
        }
        let content = lock(&self.content);
        let start = usize::try_from(offset).map_or(content.bytes.len(), |offset| {
            offset.min(content.bytes.len())
        });
        let count = buffer.len().min(content.bytes.len() - start);
        buffer[..count].copy_from_slice(&content.bytes[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.folder.state();
        let total = state.files_bytes();
        let count = match &mut state.fault {
            Fault::FullAfter(0) => return Err(io::ErrorKind::StorageFull.into()),
            Fault::FullAfter(left) => {
                let count = (bytes.len() as u64).min(*left);
                *left -= count;
                count as usize
            }
            Fault::FullAt(room) => {
                // What is there is overwritten in place.
                let end = lock(&self.content).bytes.len() as u64 + room.saturating_sub(total);
                let count = end.saturating_sub(offset).min(bytes.len() as u64);
                if count == 0 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                count as usize
            }
            Fault::ShortWrites => bytes.len().div_ceil(2),
            _ => bytes.len(),
        };
        let bytes = &bytes[..count];
        let mut content = lock(&self.content);
        let (start, end) = (offset as usize, offset as usize + count);
        let len = content.bytes.len().max(end);
        content.bytes.resize(len, 0);
        content.bytes[start..end].copy_from_slice(bytes);
        content.unsynced.push((offset, bytes.to_vec()));
        drop(content);
        state.peak_bytes = state.peak_bytes.max(state.files_bytes());
        Ok(count)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(lock(&self.content).bytes.len() as u64)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        let mut content = lock(&self.content);
        content.bytes.resize(bytes as usize, 0);
        // Close enough to what disks do: a cut is on disk at once.
        content.synced = content.bytes.clone();
        content.unsynced.clear();
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if self.folder.state().fault == Fault::SyncFails {
            return Err(io::Error::other("the disk does not sync"));
        }
        let mut content = lock(&self.content);
        content.synced = content.bytes.clone();
        content.unsynced.clear();
        Ok(())
    }
}
