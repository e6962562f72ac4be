//! How what is extracted gets its names, in a way that can be taken back: what had a name until then has
//! the temporary one, until all have theirs.

use std::os::fd::BorrowedFd;

use rustix::{
    fs::{AtFlags, FileType, renameat, statat},
    io::{Errno, Result},
};

/// How something got its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// Nothing had it.
    Free,
    /// What had it has the temporary one.
    Exchanged,
    /// What had it is gone: the file system cannot exchange names.
    Replaced,
}

/// What a rename is to do where something has the name.
#[derive(Clone, Copy)]
enum Taken {
    Exchange,
    Fail,
}

/// Gives what is called `temporary` its `name` in a folder.
pub(super) fn give(folder: BorrowedFd<'_>, temporary: &str, name: &[u8]) -> Result<Given> {
    let temporary = temporary.as_bytes();
    match rename(folder, temporary, name, Taken::Fail) {
        Ok(()) => return Ok(Given::Free),
        Err(Errno::EXIST) => match rename(folder, temporary, name, Taken::Exchange) {
            Ok(()) => return keep_folder(folder, temporary, name),
            // It went meanwhile.
            Err(Errno::NOENT) => {}
            Err(error) if is_unsupported(error) => {}
            Err(error) => return Err(error),
        },
        Err(error) if is_unsupported(error) => {}
        Err(error) => return Err(error),
    }
    let there = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    renameat(folder, temporary, folder, name)?;
    Ok(match there {
        Err(Errno::NOENT) => Given::Free,
        _ => Given::Replaced,
    })
}

/// A folder that came meanwhile is not to be exchanged.
fn keep_folder(folder: BorrowedFd<'_>, temporary: &[u8], name: &[u8]) -> Result<Given> {
    match statat(folder, temporary, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(old) if FileType::from_raw_mode(old.st_mode) == FileType::Directory => {
            rename(folder, temporary, name, Taken::Exchange)?;
            Err(Errno::ISDIR)
        }
        // The name is given, whatever it was.
        _ => Ok(Given::Exchanged),
    }
}

/// Takes a name back: what had it before has it again.
pub(super) fn take_back(
    folder: BorrowedFd<'_>,
    temporary: &str,
    name: &[u8],
    given: Given,
) -> Result<()> {
    let temporary = temporary.as_bytes();
    match given {
        Given::Free => renameat(folder, name, folder, temporary),
        Given::Exchanged => rename(folder, temporary, name, Taken::Exchange),
        Given::Replaced => Err(Errno::EXIST),
    }
}

fn is_unsupported(error: Errno) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP].contains(&error)
}

#[cfg(target_os = "linux")]
fn rename(folder: BorrowedFd<'_>, from: &[u8], to: &[u8], taken: Taken) -> Result<()> {
    use rustix::fs::{RenameFlags, renameat_with};

    let flags = match taken {
        Taken::Exchange => RenameFlags::EXCHANGE,
        Taken::Fail => RenameFlags::NOREPLACE,
    };
    renameat_with(folder, from, folder, to, flags)
}

/// Others than Linux have no such call, or another one.
#[cfg(not(target_os = "linux"))]
fn rename(_: BorrowedFd<'_>, _: &[u8], _: &[u8], _: Taken) -> Result<()> {
    Err(Errno::NOSYS)
}
