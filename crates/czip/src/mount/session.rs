//! Mounting, serving, unmounting.

use std::{
    fs::File,
    io, mem,
    path::{Path, PathBuf},
    thread,
};

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::{
    io::Errno,
    mount::{UnmountFlags, unmount},
    process::{getgid, getuid},
};
use thiserror::Error;

use super::{
    file_system::{Failed, FileSystem},
    table::{Known, Standing, is_mount_point},
};
use crate::{
    archive::{Archive, ReadError, Source},
    tree::Tree,
};

/// Threads that answer the kernel, at least. Over a network they mostly wait.
const THREADS_MIN: usize = 8;

/// How an archive is to be mounted.
pub struct MountOptions {
    /// What tables of mounts call it.
    pub name: String,
    /// Whether other users may read it; what files permit then counts.
    pub allow_other: bool,
    /// Whether it may hide what is mounted there already.
    pub covers_mount: bool,
    /// Called when a read fails: the program that reads is told no more than "input/output error". The
    /// same reason is not told twice in a row.
    pub failed: Failed,
}

/// Why an archive could not be mounted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// Its catalog cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What it would be mounted on is no folder.
    #[error("cannot mount on \"{}\": {error}{}", .at.display(), advice(error))]
    Place {
        /// Where.
        at: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A mount whose process was killed is still there.
    #[error(
        "\"{0}\" is still mounted by a process that has ended (run `umount {0}` or `fusermount3 -u {0}`)",
        .at.display()
    )]
    Left {
        /// Where.
        at: PathBuf,
    },
    /// Something is mounted there already.
    #[error("\"{}\" is already a mount point (unmount it, or mount over it with --over-mount)", .at.display())]
    MountPoint {
        /// Where.
        at: PathBuf,
    },
    /// The system has no FUSE.
    #[error(
        "/dev/fuse not found (load the kernel module: modprobe fuse, or pass it to the container: --device /dev/fuse)"
    )]
    NoDevice,
    /// The system's device cannot be used.
    #[error(
        "cannot open /dev/fuse: {error} (root can let all users open it: `chmod 666 /dev/fuse`)"
    )]
    Device {
        /// Why.
        error: io::Error,
    },
    /// Only root mounts by itself.
    #[error("cannot mount on \"{}\": non-root users need the program fusermount3 (Debian's package fuse3)", .at.display())]
    NoHelper {
        /// Where.
        at: PathBuf,
    },
    /// Others may only be let in by root's leave.
    #[error("only root can allow other users, unless /etc/fuse.conf has a line `user_allow_other`")]
    AllowOther,
    /// The system refuses.
    #[error("cannot mount on \"{}\": {error}", .at.display())]
    Mount {
        /// Where.
        at: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// What to do about a place that is not there.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => " (make the directory first)",
        _ => "",
    }
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
        return Err(place(io::Error::new(
            io::ErrorKind::NotADirectory,
            "it is not a directory",
        )));
    }
    if !options.covers_mount && is_mount_point(&at).map_err(place)? {
        return Err(MountError::MountPoint { at });
    }
    check_device()?;
    let tree = Tree::new(archive.entries()?);
    let left_out = tree.left_out();
    let owner = (getuid().as_raw(), getgid().as_raw());
    let file_system = FileSystem::new(archive, tree, owner, options.failed);
    let session = Session::new(
        file_system,
        &at,
        &config(&options.name, options.allow_other),
    );
    let session = session.map_err(|error| refusal(&at, error))?;
    let known = Known::at(&at).map_err(place)?;
    Ok(Mounted {
        session: Some(session),
        at,
        known,
        left_out,
    })
}

/// Fails if the system's device is missing, or not for this user.
fn check_device() -> Result<(), MountError> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(device_error)
}

fn device_error(error: io::Error) -> MountError {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => MountError::NoDevice,
        _ => MountError::Device { error },
    }
}

/// Why the system does not mount.
fn refusal(at: &Path, error: io::Error) -> MountError {
    // What `fusermount3` says: it gives no numbers.
    if error.to_string().contains("user_allow_other") {
        return MountError::AllowOther;
    }
    let at = at.to_owned();
    match error.kind() {
        // The folder and the device were found.
        io::ErrorKind::NotFound => MountError::NoHelper { at },
        _ => MountError::Mount { at, error },
    }
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

/// An archive that is mounted. It is unmounted when this goes, unless something else is mounted on it.
pub struct Mounted<S: Source + 'static> {
    /// There until it is served.
    session: Option<Session<FileSystem<S>>>,
    at: PathBuf,
    known: Known,
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
        let session = self.session.as_mut().expect("it is not served yet");
        Unmounter {
            inner: session.unmount_callable(),
            at: self.at.clone(),
            known: self.known.clone(),
        }
    }

    /// Answers the kernel until it is unmounted and the last file in it is closed.
    ///
    /// # Errors
    /// If the kernel cannot be talked to any more.
    pub fn serve(mut self) -> io::Result<()> {
        let session = self.session.take().expect("it is served once");
        let served = session.run();
        self.known.end();
        match served {
            // What a thread is told that asks for more just while the last file is closed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
            result => result,
        }
    }
}

impl<S: Source> Drop for Mounted<S> {
    fn drop(&mut self) {
        let standing = self.known.standing(&self.at);
        if !matches!(standing, Ok(Standing::Uppermost | Standing::Gone)) {
            // It would unmount what lies on top. The process takes it along.
            mem::forget(self.session.take());
        }
    }
}

/// What unmounts an archive.
#[derive(Debug)]
pub struct Unmounter {
    inner: SessionUnmounter,
    at: PathBuf,
    known: Known,
}

/// Why an archive is still mounted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// Its folder leads to another mount, or has one in it: these are left alone.
    #[error("\"{}\" stays mounted: something else is mounted on it or in it (unmount that first)", .at.display())]
    Covered {
        /// Where.
        at: PathBuf,
    },
    /// The system refuses.
    #[error("cannot unmount \"{}\": {error} (try `umount` or `fusermount3 -u`)", .at.display())]
    Refused {
        /// Where.
        at: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Unmounter {
    /// Takes the archive out of the tree of files, and no other mount. What is open in it can still be read.
    ///
    /// # Errors
    /// If something else is mounted on it or in it, or the system refuses.
    pub fn unmount(&mut self) -> Result<(), UnmountError> {
        let refused = |error| UnmountError::Refused {
            at: self.at.clone(),
            error,
        };
        // By path alone the system would take whatever is uppermost, and with it all that is in it.
        match self.known.standing(&self.at).map_err(refused)? {
            Standing::Gone => return Ok(()),
            Standing::Covered => {
                return Err(UnmountError::Covered {
                    at: self.at.clone(),
                });
            }
            Standing::Uppermost => {}
        }
        let unmounted = match self.inner.unmount() {
            // Root's way; others' is `fusermount3`, which is told to be lazy at once.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                unmount(&self.at, UnmountFlags::DETACH).map_err(io::Error::from)
            }
            result => result,
        };
        unmounted.map_err(refused)?;
        match self.known.standing(&self.at).map_err(refused)? {
            // Another mount, at another path, may have both of its numbers by now.
            Standing::Gone | Standing::Covered => {
                self.known.end();
                Ok(())
            }
            // `fusermount3` is not asked for its reasons.
            Standing::Uppermost => Err(refused(io::Error::other("the system gave no reason"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_own_cause() {
        let at = Path::new("/somewhere");
        let text = |errno: Errno| device_error(errno.into()).to_string();
        assert!(text(Errno::NOENT).contains("modprobe fuse"));
        assert!(text(Errno::ACCESS).contains("cannot open /dev/fuse: Permission denied"));
        for (error, expected) in [
            (
                io::Error::from(Errno::NOENT),
                "need the program fusermount3",
            ),
            (io::Error::from(Errno::ACCESS), "Permission denied"),
            (
                io::Error::other("fusermount3: mount failed: Device busy"),
                "mount failed: Device busy",
            ),
            (
                io::Error::other("only allowed if 'user_allow_other' is set"),
                "/etc/fuse.conf",
            ),
        ] {
            let text = refusal(at, error).to_string();
            assert!(text.contains(expected), "{text}");
            let is_of_helper = text.contains("need the program");
            assert_eq!(
                is_of_helper,
                expected.contains("need the program"),
                "{text}"
            );
        }
        assert!(!text(Errno::ACCESS).contains("fusermount3"));
    }
}
