//! A folder of the system's.
//!
//! Who may write to the folder may have less rights than this process: a gateway's user, where root
//! adds files to its store. So no link in it is followed, no pipe is waited for, and nothing is
//! given to the folder's owner but what was made here.

use std::{
    fs::{self, File, Metadata},
    io,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt, fchown},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat},
    io::Errno,
    process::geteuid,
};

use super::{Folder, FolderFile};

/// A folder of the system's.
#[derive(Clone, Debug)]
pub(crate) struct RealFolder {
    path: PathBuf,
}

impl RealFolder {
    /// The folder at `path`.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
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
        Ok(Box::new(open_to_read(&self.path, name)?))
    }

    fn open_or_create(&self, name: &str) -> io::Result<Box<dyn FolderFile>> {
        Ok(Box::new(open_or_create(&self.path, name)?))
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
        free_bytes(&self.path).ok()
    }
}

/// What is free for this user on the disk of a folder, which may be yet to make.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(nearest(folder))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// What is there of the way to a folder that may be yet to make.
pub(crate) fn nearest(path: &Path) -> &Path {
    let there = path.ancestors().find(|folder| folder.exists());
    // Of a relative path whose first folder is yet to make.
    let there = there.filter(|folder| !folder.as_os_str().is_empty());
    there.unwrap_or(Path::new("."))
}

pub(crate) fn open_to_read(folder: &Path, name: &str) -> io::Result<File> {
    open_plain(CWD, &folder.join(name), OFlags::RDONLY)
}

/// Opens a file to read and write it. One that is made is for the folder's owner alone, since
/// traffic is in it.
pub(crate) fn open_or_create(folder: &Path, name: &str) -> io::Result<File> {
    // Held, lest another takes its place before its owner is known.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::open(folder, flags, Mode::empty())?);
    let owner = folder.metadata()?;
    let open_to_write = || -> io::Result<File> {
        let file = open_plain(&folder, Path::new(name), OFlags::RDWR)?;
        refuse_of_others(&file.metadata()?, &owner)?;
        Ok(file)
    };
    match open_to_write() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = match openat(&folder, name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        // Another process was faster.
        Err(Errno::EXIST) => return open_to_write(),
        Err(error) => return Err(error.into()),
    };
    if owner.uid() != file.metadata()?.uid() {
        // A store that root adds files to stays its gateway's. Others may give nothing away.
        let _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
    }
    Ok(file)
}

/// Opens a file that is there and is nothing but a file.
fn open_plain(folder: impl AsFd, path: &Path, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match openat(&folder, path, flags | OFlags::NONBLOCK, Mode::empty()) {
        // Files alone say so: another machine that reads this one has to be asked first.
        Err(Errno::AGAIN) => openat(&folder, path, flags, Mode::empty()),
        opened => opened,
    };
    let no_file = || refused("it is not a regular file (remove it)");
    match opened.map(File::from) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(no_file()),
        Err(error) => {
            // Systems differ in what they say of links.
            let there = statat(&folder, path, AtFlags::SYMLINK_NOFOLLOW);
            match there.map(|there| FileType::from_raw_mode(there.st_mode)) {
                Ok(FileType::Symlink) => Err(refused("it is a symbolic link (remove it)")),
                Ok(FileType::RegularFile) | Err(_) => Err(error.into()),
                Ok(_) => Err(no_file()),
            }
        }
    }
}

/// Root may write to all files: also to others', to which whoever has the folder gave a name in it.
fn refuse_of_others(file: &Metadata, folder: &Metadata) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    if file.nlink() > 1 {
        return Err(refused("it has another name, as a hard link (remove it)"));
    }
    match file.uid() == folder.uid() {
        true => Ok(()),
        false => Err(refused(
            "its owner is not the directory's owner (remove it)",
        )),
    }
}

/// Forbidden, not unreadable: what is behind it is not given up as damaged.
fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
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
