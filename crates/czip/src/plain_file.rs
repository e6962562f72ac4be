//! Files in a folder that is held open: nothing that somebody else put there leads elsewhere.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, statat},
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

/// Opens the regular file at `path` to read it, in the same way.
///
/// # Errors
/// As those of [`open_plain`].
pub(crate) fn read_plain(path: &Path) -> io::Result<File> {
    open_plain(CWD, path, OFlags::RDONLY, Mode::empty())
}

fn is_regular(file: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile)
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, process::Command};

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), b"content").expect("written");
        symlink("file", path("link")).expect("made");
        fs::create_dir(path("folder")).expect("made");
        let made = Command::new("mkfifo").arg(path("pipe")).status();
        assert!(made.expect("mkfifo is there").success());
        symlink("/dev/zero", path("device")).expect("made");
        let content = io::read_to_string(read_plain(&path("file")).expect("a file"));
        assert_eq!(content.expect("text"), "content");
        for name in ["link", "folder", "pipe", "device"] {
            let error = read_plain(&path(name)).expect_err(name);
            assert_eq!(
                error.kind(),
                io::ErrorKind::PermissionDenied,
                "{name}: {error}"
            );
        }
        let error = read_plain(&path("none")).expect_err("nothing is there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
