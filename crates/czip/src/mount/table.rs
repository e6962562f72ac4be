//! Which mount is where: the kernel's table of mounts. A path may have several, one on top of the other, and
//! only their ids tell them apart.

use std::{fs, io, os::fd::AsRawFd, path::Path};

use rustix::fs::{Mode, OFlags, open};

/// What the kernel calls a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MountId(u64);

/// How a mount stands in the tree of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is not there any more.
    Gone,
    /// It is what a path leads to, and nothing is mounted on it or in it.
    Uppermost,
    /// Something else is mounted on it, in it or on the way to it.
    Covered,
}

impl MountId {
    /// The uppermost mount that `path` is in.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        // No question to the file system: it may be one that nobody answers for yet.
        let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", found.as_raw_fd()))?;
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        let id = id.and_then(|id| id.trim().parse().ok()).map(Self);
        id.ok_or_else(|| io::Error::other("the kernel does not give the ids of mounts"))
    }

    /// How it stands, if it was mounted at `path`.
    pub(super) fn standing(self, path: &Path) -> io::Result<Standing> {
        let table = fs::read("/proc/self/mountinfo")?;
        Ok(match self.standing_in(&table) {
            Standing::Uppermost if Self::of(path)? != self => Standing::Covered,
            standing => standing,
        })
    }

    /// The same by a table alone.
    fn standing_in(self, table: &[u8]) -> Standing {
        let mut is_there = false;
        for line in table.split(|&byte| byte == b'\n') {
            // Paths may be no text.
            let mut numbers = line.split(|&byte| byte == b' ').map(|number| {
                let number = str::from_utf8(number).ok()?;
                number.parse().ok().map(Self)
            });
            let (id, parent) = (numbers.next().flatten(), numbers.next().flatten());
            if parent == Some(self) && id != Some(self) {
                return Standing::Covered;
            }
            is_there |= id == Some(self);
        }
        match is_there {
            true => Standing::Uppermost,
            false => Standing::Gone,
        }
    }
}

/// Whether something is mounted at `path`, which has no links and no `..` in it.
pub(super) fn is_mount_point(path: &Path) -> io::Result<bool> {
    match path.parent() {
        Some(parent) => Ok(MountId::of(path)? != MountId::of(parent)?),
        None => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw - ext4 /dev/sda rw\n\
        30 22 0:40 / /mnt/a\\040b rw shared:5 - fuse.czip x.czip ro\n\
        31 30 0:41 / /mnt/a\\040b rw - tmpfs none rw\n\
        32 22 0:42 / /mnt/\xff rw - tmpfs none rw\n\
        1 1 0:2 / / rw - rootfs rootfs rw\n";

    #[test]
    fn a_table_says_what_lies_on_a_mount() {
        for (id, expected) in [
            (22, Standing::Covered),
            (30, Standing::Covered),
            (31, Standing::Uppermost),
            (32, Standing::Uppermost),
            (33, Standing::Gone),
            (3, Standing::Gone),
        ] {
            assert_eq!(MountId(id).standing_in(TABLE), expected, "{id}");
        }
        assert_eq!(MountId(1).standing_in(b""), Standing::Gone);
        assert_eq!(MountId(1).standing_in(b"1 1 x"), Standing::Uppermost);
    }

    #[test]
    fn mount_points_are_told_from_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).expect("made");
        let inner = inner.canonicalize().expect("there");
        assert!(!is_mount_point(&inner).expect("there"));
        for mounted in ["/", "/proc"] {
            assert!(
                is_mount_point(Path::new(mounted)).expect("there"),
                "{mounted}"
            );
        }
        assert!(is_mount_point(Path::new("/nowhere/at/all")).is_err());
    }
}
