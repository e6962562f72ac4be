//! Mounting, serving, unmounting.

use std::{
    io,
    path::{Path, PathBuf},
    thread,
};

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::{
    mount::{UnmountFlags, unmount},
    process::{getgid, getuid},
};
use thiserror::Error;

use super::{
    file_system::{Failed, FileSystem},
    tree::Tree,
};
use crate::archive::{Archive, ReadError, Source};

/// Threads that answer the kernel, at least. Over a network they mostly wait.
const THREADS_MIN: usize = 8;

/// How an archive is to be mounted.
pub struct MountOptions {
    /// What tables of mounts call it.
    pub name: String,
    /// Whether other users may read it; what files permit then counts.
    pub allow_other: bool,
    /// Called when a read fails: the program that reads is told no more than "input/output error". The
    /// same reason is not told twice in a row.
    pub failed: Failed,
}

/// A read that failed.
#[derive(Debug)]
pub struct ReadFailure<'a> {
    /// The file's path in the archive.
    pub path: &'a [u8],
    /// Which byte of it, or one behind it.
    pub offset: u64,
    /// Why.
    pub error: &'a ReadError,
}

/// Why an archive could not be mounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// Its catalog cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What it would be mounted on is no folder.
    #[error("{} cannot be mounted on: {error}", .at.display())]
    Place {
        /// Where.
        at: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A mount whose process was killed is still there.
    #[error("{0} is still mounted by a process that is gone: `umount {0}` or `fusermount3 -u {0}` frees it", .at.display())]
    Left {
        /// Where.
        at: PathBuf,
    },
    /// The system has no FUSE.
    #[error(
        "there is no /dev/fuse here: load the kernel's module (modprobe fuse), or give it to the container (--device /dev/fuse)"
    )]
    NoDevice,
    /// Others may only be let in by root's leave.
    #[error(
        "other users are let in only by root, or where /etc/fuse.conf has a line `user_allow_other`"
    )]
    AllowOther,
    /// The system refuses.
    #[error("{} cannot be mounted on: {error}; who is not root needs the program fusermount3 (of Debian's package fuse3)", .at.display())]
    Mount {
        /// Where.
        at: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Mounts an archive on the folder `at`, which need not be empty. It can be read once
/// [`Mounted::serve`] runs.
///
/// # Errors
/// If its catalog cannot be read, or the system refuses.
pub fn mount<S: Source + 'static>(
    archive: Archive<S>,
    at: &Path,
    options: MountOptions,
) -> Result<Mounted<S>, MountError> {
    let place = |error: io::Error| match error.kind() {
        io::ErrorKind::NotConnected => MountError::Left { at: at.to_owned() },
        _ => MountError::Place {
            at: at.to_owned(),
            error,
        },
    };
    // The process may change its folder before it unmounts.
    let at = at.canonicalize().map_err(place)?;
    if !at.metadata().map_err(place)?.is_dir() {
        return Err(place(io::ErrorKind::NotADirectory.into()));
    }
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoDevice);
    }
    let tree = Tree::new(archive.entries()?);
    let left_out = tree.left_out();
    let owner = (getuid().as_raw(), getgid().as_raw());
    let file_system = FileSystem::new(archive, tree, owner, options.failed);
    let session = Session::new(
        file_system,
        &at,
        &config(&options.name, options.allow_other),
    );
    let session = session.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied if options.allow_other => MountError::AllowOther,
        _ => MountError::Mount {
            at: at.clone(),
            error,
        },
    })?;
    Ok(Mounted {
        session,
        at,
        left_out,
    })
}

fn config(name: &str, allow_other: bool) -> Config {
    let mut config = Config::default();
    // Options are joined by commas.
    let name = name.replace([',', '\\', '\0'], "_");
    config.mount_options = vec![
        MountOption::FSName(name),
        MountOption::Subtype("czip".to_owned()),
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    config.acl = match allow_other {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    config.n_threads = Some(processors.max(THREADS_MIN));
    config.clone_fd = true;
    config
}

/// An archive that is mounted. It is unmounted when this goes.
pub struct Mounted<S: Source + 'static> {
    session: Session<FileSystem<S>>,
    at: PathBuf,
    left_out: u64,
}

impl<S: Source> Mounted<S> {
    /// Entries that are not shown ([`Tree::left_out`]).
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What unmounts it, from any thread.
    pub fn unmounter(&mut self) -> Unmounter {
        Unmounter {
            inner: self.session.unmount_callable(),
            at: self.at.clone(),
        }
    }

    /// Answers the kernel until it is unmounted and the last file in it is closed.
    ///
    /// # Errors
    /// If the kernel cannot be talked to any more.
    pub fn serve(self) -> io::Result<()> {
        match self.session.run() {
            // What a thread is told that asks for more just while the last file is closed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
            result => result,
        }
    }
}

/// What unmounts an archive.
#[derive(Debug)]
pub struct Unmounter {
    inner: SessionUnmounter,
    at: PathBuf,
}

impl Unmounter {
    /// Takes the archive out of the tree of files. What is open in it can still be read.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn unmount(&mut self) -> io::Result<()> {
        match self.inner.unmount() {
            // Root's way; others' is `fusermount3`, which is told to be lazy at once.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                Ok(unmount(&self.at, UnmountFlags::DETACH)?)
            }
            result => result,
        }
    }
}
