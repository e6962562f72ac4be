//! Files in a folder that is held open: nothing that somebody else put there leads elsewhere.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat},
    io::Errno,
};

/// How a folder is opened to be held.
pub(crate) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Opens `name` in `folder`, which is a regular file or, with [`OFlags::CREATE`], becomes one with `mode`.
/// No link is followed, no pipe is waited for, and no device is touched.
///
/// # Errors
/// What the system reports, and [`io::ErrorKind::PermissionDenied`] if there is something else.
pub(crate) fn open_plain(
    folder: impl AsFd,
    name: impl AsRef<Path>,
    access: OFlags,
    mode: Mode,
) -> io::Result<File> {
    let (folder, name) = (folder.as_fd(), name.as_ref());
    let flags = access | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match openat(folder, name, flags | OFlags::NONBLOCK, mode) {
        // Only files report this: another machine that reads this one has to be asked first.
        Err(Errno::AGAIN) => openat(folder, name, flags, mode),
        opened => opened,
    };
    match opened {
        Ok(file) if is_regular(&file)? => Ok(file.into()),
        Ok(_) => Err(refused("it is not a regular file (remove it)")),
        Err(error) => {
            // Systems differ in what they report of links.
            let there = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
            Err(
                match there.map(|there| FileType::from_raw_mode(there.st_mode)) {
                    Ok(FileType::Symlink) => refused("it is a symbolic link (remove it)"),
                    Ok(FileType::RegularFile) | Err(_) => error.into(),
                    Ok(_) => refused("it is not a regular file (remove it)"),
                },
            )
        }
    }
}

fn is_regular(file: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile)
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
