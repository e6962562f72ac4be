//! Which mount is where: the kernel's table of mounts. A path may have several, one on top of the other, and
//! only their ids tell them apart.

use std::{
    fs, io,
    os::fd::AsRawFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::{Mode, OFlags, open};

/// What the kernel calls a mount, as long as it is mounted: the next one may get the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MountId(u64);

impl MountId {
    /// The uppermost mount that `path` is in.
    fn of(path: &Path) -> io::Result<Self> {
        // No question to the file system: it may be one that nobody answers for yet.
        let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", found.as_raw_fd()))?;
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        let id = id.and_then(|id| id.trim().parse().ok()).map(Self);
        id.ok_or_else(|| io::Error::other("the kernel does not report the ids of mounts"))
    }
}

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

/// One mount and no later one with its number. The number is free once the mount is out of the tree of files,
/// its file system's device number only after the file system has ended: both together name it until then.
#[derive(Clone, Debug)]
pub(super) struct Known {
    id: MountId,
    /// As tables have it.
    device: Vec<u8>,
    /// Whether it was seen to be out of the tree, or its file system has ended. It does not come back.
    gone: Arc<AtomicBool>,
}

impl Known {
    /// What has just been mounted at `path`.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let id = MountId::of(path)?;
        let table = table()?;
        let row = rows(&table).find(|row| row.id == Some(id));
        let row = row.ok_or_else(|| io::Error::other("the kernel does not list the mount"))?;
        Ok(Self {
            id,
            device: row.device.to_owned(),
            gone: Arc::default(),
        })
    }

    /// Notes that its file system has ended.
    pub(super) fn end(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// How it stands, if it was mounted at `path`.
    pub(super) fn standing(&self, path: &Path) -> io::Result<Standing> {
        Ok(match self.standing_in(&table()?) {
            Standing::Uppermost if MountId::of(path)? != self.id => Standing::Covered,
            standing => standing,
        })
    }

    /// The same by a table alone.
    fn standing_in(&self, table: &[u8]) -> Standing {
        let is_it = |row: Row<'_>| row.id == Some(self.id) && row.device == self.device;
        if self.gone.load(Ordering::Relaxed) || !rows(table).any(is_it) {
            self.gone.store(true, Ordering::Relaxed);
            return Standing::Gone;
        }
        let is_on_it = |row: Row<'_>| row.parent == Some(self.id) && row.id != Some(self.id);
        match rows(table).any(is_on_it) {
            true => Standing::Covered,
            false => Standing::Uppermost,
        }
    }
}

/// The beginning of a line of the table of mounts.
struct Row<'a> {
    id: Option<MountId>,
    parent: Option<MountId>,
    device: &'a [u8],
}

fn table() -> io::Result<Vec<u8>> {
    fs::read("/proc/self/mountinfo")
}

fn rows(table: &[u8]) -> impl Iterator<Item = Row<'_>> {
    table.split(|&byte| byte == b'\n').map(|line| {
        // Paths may be no text.
        let mut fields = line.split(|&byte| byte == b' ');
        let mut number = || {
            let number = str::from_utf8(fields.next()?).ok()?;
            number.parse().ok().map(MountId)
        };
        Row {
            id: number(),
            parent: number(),
            device: fields.next().unwrap_or_default(),
        }
    })
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

    fn known(id: u64, device: &str) -> Known {
        Known {
            id: MountId(id),
            device: device.into(),
            gone: Arc::default(),
        }
    }

    #[test]
    fn a_table_says_what_lies_on_a_mount() {
        for (id, device, expected) in [
            (22, "8:1", Standing::Covered),
            (30, "0:40", Standing::Covered),
            (31, "0:41", Standing::Uppermost),
            (32, "0:42", Standing::Uppermost),
            (33, "0:43", Standing::Gone),
            (3, "0:4", Standing::Gone),
        ] {
            let standing = known(id, device).standing_in(TABLE);
            assert_eq!(standing, expected, "{id}");
        }
        assert_eq!(known(1, "0:2").standing_in(b""), Standing::Gone);
        assert_eq!(known(1, "x").standing_in(b"1 1 x"), Standing::Uppermost);
    }

    #[test]
    fn a_later_mount_with_the_same_number_is_another() {
        assert_eq!(known(31, "0:39").standing_in(TABLE), Standing::Gone);
        // With the device number as well.
        let ended = known(31, "0:41");
        assert_eq!(ended.standing_in(TABLE), Standing::Uppermost);
        ended.clone().end();
        assert_eq!(ended.standing_in(TABLE), Standing::Gone);
        let unmounted = known(31, "0:41");
        assert_eq!(unmounted.standing_in(b""), Standing::Gone);
        assert_eq!(unmounted.standing_in(TABLE), Standing::Gone);
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
