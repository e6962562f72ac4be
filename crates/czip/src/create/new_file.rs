//! A file that takes its name when it is whole. Until then it has none, where the system has files
//! without names: so nothing is left of it, however the process ends.
//!
//! Elsewhere it has a temporary one. It is locked while its process lives, so one that nobody has locked was left
//! by a process that was killed: the next one removes it.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, process::geteuid};
use tempfile::NamedTempFile;

use super::walk::FileId;

/// What temporary names begin with, and how many letters and digits follow.
const PREFIX: &str = ".refrain-new-";
const RANDOM_CHARS: usize = 16;

/// A file that is there whole, or not at all.
pub(super) struct NewFile {
    file: Unfinished,
    folder: PathBuf,
    path: PathBuf,
}

enum Unfinished {
    Unnamed(File),
    /// Is removed if it never is finished, unless the process is killed.
    Named(NamedTempFile),
}

impl NewFile {
    /// A file that is to be at `path`, with the permissions of the file there, or those that new files
    /// have. A link there stays, and what it leads to is replaced, which has to be there.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let is_link = fs::symlink_metadata(path).is_ok_and(|named| named.is_symlink());
        let path = &match fs::canonicalize(path) {
            Ok(whole) => whole,
            Err(error) if is_link && error.kind() == io::ErrorKind::NotFound => {
                let to = fs::read_link(path)?;
                let to = to.display();
                return Err(io::Error::new(
                    error.kind(),
                    format!(
                        "it is a symbolic link to \"{to}\", which does not exist (give that path itself)"
                    ),
                ));
            }
            Err(_) => path.to_owned(),
        };
        let there = fs::metadata(path).ok();
        if there.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "it is a directory",
            ));
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        remove_left(folder);
        let mode = match there {
            Some(_) => 0o600,
            None => 0o666,
        };
        let file = match unnamed::open(folder, mode) {
            Some(file) => Unfinished::Unnamed(file),
            None => Unfinished::Named(named(folder, mode).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    io::Error::new(error.kind(), "its directory does not exist")
                }
                _ => error,
            })?),
        };
        let new = Self {
            file,
            folder: folder.to_owned(),
            path: path.to_owned(),
        };
        if let Some(there) = there {
            let mode = there.permissions().mode() & 0o777;
            new.file().set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(new)
    }

    pub(super) fn file(&self) -> &File {
        match &self.file {
            Unfinished::Unnamed(file) => file,
            Unfinished::Named(file) => file.as_file(),
        }
    }

    /// Itself, and what it replaces.
    pub(super) fn own_files(&self) -> Vec<FileId> {
        let there = [self.file().metadata(), fs::metadata(&self.path)];
        there.iter().flatten().map(FileId::of).collect()
    }

    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file().write_all_at(bytes, at)
    }

    /// Puts it, whole, in the place of what was there.
    pub(super) fn finish(self) -> io::Result<()> {
        self.file().sync_all()?;
        let folder = File::open(&self.folder)?;
        match self.file {
            Unfinished::Unnamed(file) => match unnamed::link(&file, &self.path) {
                // Only a file with a name can take another's.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // For the moment in which it has this name.
                    let _ = file.lock();
                    let named = temporary_names()
                        .make_in(&self.folder, |path| unnamed::link(&file, path))?;
                    named.persist(&self.path).map_err(|error| error.error)?;
                }
                linked => linked?,
            },
            Unfinished::Named(file) => {
                file.persist(&self.path).map_err(|error| error.error)?;
            }
        }
        // After a power cut the name is there as well.
        folder.sync_all()
    }
}

fn temporary_names() -> tempfile::Builder<'static, 'static> {
    let mut names = tempfile::Builder::new();
    names.prefix(PREFIX).rand_bytes(RANDOM_CHARS);
    names
}

fn named(folder: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(mode);
    temporary_names().make_in(folder, |path| {
        let file = options.open(path)?;
        // On a file system without locks nothing is ever taken to be left.
        let _ = file.lock();
        match file.metadata()?.nlink() {
            // Until it was locked, another process may have taken it to be left.
            0 => Err(io::ErrorKind::AlreadyExists.into()),
            _ => Ok(file),
        }
    })
}

/// Removes what processes of this user left in a folder that were killed. What cannot be removed stays.
fn remove_left(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_temporary(entry.file_name().as_bytes()) {
            let _ = remove_if_left(&entry.path());
        }
    }
}

fn is_temporary(name: &[u8]) -> bool {
    let random = name.strip_prefix(PREFIX.as_bytes());
    random.is_some_and(|random| {
        random.len() == RANDOM_CHARS && random.iter().all(u8::is_ascii_alphanumeric)
    })
}

fn remove_if_left(path: &Path) -> io::Result<()> {
    // Who puts a link or a pipe there is not followed, nor waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let options = options
        .read(true)
        .write(true)
        .custom_flags(flags.bits() as i32);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    let is_ours = metadata.is_file() && metadata.uid() == geteuid().as_raw();
    match is_ours && file.try_lock().is_ok() {
        true => fs::remove_file(path),
        false => Ok(()),
    }
}

#[cfg(target_os = "linux")]
mod unnamed {
    use std::{fs::File, io, os::fd::AsRawFd, path::Path};

    use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open as open_file};

    /// A file in `folder` that has no name, and may get one; none if the file system has none, or if
    /// there is no way to name it.
    pub(super) fn open(folder: &Path, mode: u32) -> Option<File> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = File::from(open_file(folder, flags, Mode::from_raw_mode(mode)).ok()?);
        Path::new(&link_of(&file)).exists().then_some(file)
    }

    /// Gives it a name, which nothing else has.
    pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
        let linked = linkat(CWD, link_of(file), CWD, path, AtFlags::SYMLINK_FOLLOW);
        Ok(linked?)
    }

    /// Where the system shows it.
    fn link_of(file: &File) -> String {
        format!("/proc/self/fd/{}", file.as_raw_fd())
    }
}

#[cfg(not(target_os = "linux"))]
mod unnamed {
    use std::{fs::File, io, path::Path};

    pub(super) fn open(_: &Path, _: u32) -> Option<File> {
        None
    }

    pub(super) fn link(_: &File, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).expect("a folder");
        let names = names.map(|below| below.expect("readable").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    /// What makes either kind of file.
    const KINDS: [fn(&Path) -> NewFile; 2] = [
        |path| NewFile::new(path).expect("made"),
        |path| {
            let folder = path.parent().expect("it has one");
            NewFile {
                file: Unfinished::Named(named(folder, 0o600).expect("made")),
                folder: folder.to_owned(),
                path: path.to_owned(),
            }
        },
    ];

    #[test]
    fn a_file_is_there_when_it_is_whole_and_nothing_else_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        for (is_there, content) in [(false, b"old"), (true, b"new")] {
            for make in KINDS {
                let new = make(&path);
                new.write_at(content, 0).expect("room");
                if is_there {
                    assert_eq!(fs::read(&path).expect("there").len(), 3);
                }
                new.finish().expect("it takes its name");
                assert_eq!(fs::read(&path).expect("there"), content);
                assert_eq!(names(folder.path()), ["x"]);
            }
        }
    }

    #[test]
    fn a_file_that_is_given_up_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        for make in KINDS {
            let new = make(&folder.path().join("x"));
            new.write_at(b"half", 0).expect("room");
            drop(new);
        }
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let left = ".refrain-new-0123456789abcdEF";
        fs::write(at(left), "half").expect("written");
        let working = named(folder.path(), 0o600).expect("made");
        let of_others = [
            ".refrain-new-0123456789abcde",
            ".refrain-new-0123456789abcdef0",
            ".refrain-new-0123456789abcd-f",
            ".refrain-0123456789abcdef",
            "x.refrain-new-0123456789abcdef",
        ];
        for name in of_others {
            fs::write(at(name), "good").expect("written");
        }
        fs::write(at("victim"), "good").expect("written");
        let link = ".refrain-new-aaaaaaaaaaaaaaaa";
        std::os::unix::fs::symlink("victim", at(link)).expect("made");
        fs::create_dir(at(".refrain-new-bbbbbbbbbbbbbbbb")).expect("made");
        let pipe = at(".refrain-new-cccccccccccccccc");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo is there").success());

        let before = names(folder.path()).len();
        drop(NewFile::new(&at("x")).expect("made"));
        assert!(!at(left).exists());
        assert_eq!(names(folder.path()).len(), before - 1);
        assert!(working.path().exists() && at("victim").exists());
        working.close().expect("it is there still");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_has_no_name_until_it_is_whole_where_the_file_system_has_such_files() {
        use rustix::fs::{Mode, OFlags, open};
        let folder = tempfile::tempdir().expect("a folder");
        let flags = OFlags::RDWR | OFlags::TMPFILE;
        if open(folder.path(), flags, Mode::RUSR).is_err() {
            eprintln!("skipped: files have names here");
            return;
        }
        let new = NewFile::new(&folder.path().join("x")).expect("made");
        new.write_at(b"half", 0).expect("room");
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_link_stays_and_one_to_nothing_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("x", &link).expect("made");
        let error = NewFile::new(&link).err().expect("nothing is there");
        assert!(
            error
                .to_string()
                .contains("link to \"x\", which does not exist"),
            "{error}"
        );
        fs::write(folder.path().join("x"), "old").expect("written");
        let new = NewFile::new(&link).expect("made");
        new.write_at(b"new", 0).expect("room");
        new.finish().expect("whole");
        assert_eq!(fs::read(folder.path().join("x")).expect("there"), b"new");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    }

    #[test]
    fn permissions_are_those_of_what_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        NewFile::new(&path).expect("made").finish().expect("whole");
        assert_eq!(mode_of(&path), 0o640);
        // A new one is as any program's new files are.
        let (ours, others) = (folder.path().join("ours"), folder.path().join("others"));
        NewFile::new(&ours).expect("made").finish().expect("whole");
        fs::write(&others, "").expect("written");
        assert_eq!(mode_of(&ours), mode_of(&others));
    }
}
