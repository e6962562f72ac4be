//! The bytes of what is archived: of a file as far as it went when it was opened, and of holes quickly.
//!
//! A file that somebody appends to would never end. So it ends where it ended when it was opened. Files of
//! /proc and the like say that they have no bytes, and have some: these are read to their end. What gives
//! bytes and still says so is one of them.
//!
//! Reading a hole through the page cache fills memory with zeros, page by page: three quarters of all the
//! work. `O_DIRECT` asks the file system itself, which has no block to read there, and answers at the speed
//! of memory. `SEEK_DATA` says where to read so, and no more: file systems were wrong about it (OpenZFS
//! 2.2.0), so that what it calls a hole is read all the same.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

/// What `O_DIRECT` reads begins and ends at multiples of this, in the file and in memory.
pub(super) const ALIGNMENT: usize = 4096;

/// Holes that are shorter are not worth two calls of the system.
#[cfg(target_os = "linux")]
const HOLE_BYTES_MIN: u64 = 256 << 10;

/// A file's bytes.
pub(crate) enum Content {
    Stream(Box<dyn Read>),
    File(OpenFile),
}

impl Content {
    /// Whether somebody has written to the file since it was found.
    pub(crate) fn has_changed(&self) -> bool {
        let Self::File(OpenFile { file, written, .. }) = self else {
            return false;
        };
        let now = file.metadata();
        now.is_ok_and(|now| Written::of(&now) != *written)
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stream(stream) => stream.read(buffer),
            Self::File(file) => file.read(buffer),
        }
    }
}

/// A file that is being read.
pub(crate) struct OpenFile {
    file: File,
    /// How it was written to before it was found.
    written: Written,
    /// Its length when it was opened.
    bytes: u64,
    position: u64,
    holes: Holes,
}

/// What tells that a file was written to.
#[derive(PartialEq, Eq)]
struct Written {
    bytes: u64,
    mtime: (i64, i64),
}

impl Written {
    fn of(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl OpenFile {
    /// Opens the file at `path`, which had this `metadata` when it was found.
    pub(super) fn open(path: &Path, metadata: &Metadata) -> io::Result<Self> {
        let file = File::open(path)?;
        let opened = file.metadata()?;
        Ok(Self {
            file,
            written: Written::of(metadata),
            bytes: opened.len(),
            position: 0,
            holes: Holes::of(&opened),
        })
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes == 0 {
            return self.read_unknown(buffer);
        }
        let left = self.bytes - self.position;
        let room = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let buffer = &mut buffer[..room];
        let read = self.holes.read(&self.file, self.position, left, buffer);
        let count = match read {
            Some(count) => count,
            None => self.file.read_at(buffer, self.position)?,
        };
        self.position += count as u64;
        Ok(count)
    }

    /// Reads a file that had no bytes when it was opened.
    fn read_unknown(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        // One that now has a length was empty, and somebody appends to it.
        match count > 0 && self.file.metadata()?.len() > 0 {
            true => Ok(0),
            false => Ok(count),
        }
    }
}

#[cfg(target_os = "linux")]
use linux::Holes;

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        fs::{File, Metadata},
        os::unix::fs::{FileExt, MetadataExt},
    };

    use rustix::{
        fs::{OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, seek},
        io::Errno,
    };

    use super::{ALIGNMENT, HOLE_BYTES_MIN};

    /// Bytes of a block that files are said to take.
    const BLOCK_BYTES: u64 = 512;

    /// Reads holes of a file.
    pub(in crate::create) struct Holes {
        /// Up to where it is known what the file has: data, or a hole.
        known_up_to: u64,
        is_hole: bool,
        /// Whether the file has holes, as it seems, and they can be read quickly.
        is_able: bool,
    }

    impl Holes {
        pub(super) fn of(file: &Metadata) -> Self {
            Self {
                known_up_to: 0,
                is_hole: false,
                is_able: file.len() >= HOLE_BYTES_MIN && file.blocks() < file.len() / BLOCK_BYTES,
            }
        }

        /// Reads at `position`, from where on the file has `left` bytes, if there is a hole. None if there is
        /// none, or it cannot be read in this way.
        pub(super) fn read(
            &mut self,
            file: &File,
            position: u64,
            left: u64,
            buffer: &mut [u8],
        ) -> Option<usize> {
            let is_aligned = position.is_multiple_of(ALIGNMENT as u64)
                && buffer.as_ptr().align_offset(ALIGNMENT) == 0;
            if !self.is_able || !is_aligned {
                return None;
            }
            if position >= self.known_up_to {
                self.look(file, position, left, buffer.len() as u64);
            }
            if !self.is_hole {
                return None;
            }
            let hole = self.known_up_to - position;
            let room = usize::try_from(hole).map_or(buffer.len(), |hole| hole.min(buffer.len()));
            let read = read_directly(file, position, &mut buffer[..room - room % ALIGNMENT]);
            // Not all file systems can: then, and at the end of the file, it is read as data are.
            match read {
                Ok(count) if count > 0 => Some(count),
                Ok(_) | Err(_) => {
                    self.is_able = false;
                    None
                }
            }
        }

        /// Finds out whether there is a hole at `position`, and up to where. Data are looked behind again after
        /// `step`.
        fn look(&mut self, file: &File, position: u64, left: u64, step: u64) {
            let end = position + left;
            let data = match seek(file, SeekFrom::Data(position)) {
                Ok(data) => data.min(end),
                // No data come any more.
                Err(Errno::NXIO) => end,
                Err(_) => {
                    self.is_able = false;
                    position
                }
            };
            self.is_hole = data - position >= HOLE_BYTES_MIN;
            self.known_up_to = match self.is_hole {
                true => data,
                false => position + step,
            };
        }
    }

    fn read_directly(file: &File, position: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        let flags = fcntl_getfl(file)?;
        fcntl_setfl(file, flags | OFlags::DIRECT)?;
        let read = file.read_at(buffer, position);
        fcntl_setfl(file, flags)?;
        read
    }
}

/// Elsewhere holes are read as data are.
#[cfg(not(target_os = "linux"))]
struct Holes;

#[cfg(not(target_os = "linux"))]
impl Holes {
    fn of(_: &Metadata) -> Self {
        Self
    }

    fn read(&mut self, _: &File, _: u64, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn opened(path: &Path) -> Content {
        let metadata = fs::symlink_metadata(path).expect("there");
        Content::File(OpenFile::open(path, &metadata).expect("readable"))
    }

    /// All that is read, in pieces that begin so far behind an aligned place.
    fn read_all(content: &mut Content, piece_bytes: usize, unaligned_by: usize) -> Vec<u8> {
        let mut buffer = vec![0; piece_bytes + 2 * ALIGNMENT];
        let start = buffer.as_ptr().align_offset(ALIGNMENT) + unaligned_by;
        let mut all = Vec::new();
        loop {
            let piece = &mut buffer[start..][..piece_bytes];
            match content.read(piece).expect("readable") {
                0 => return all,
                count => all.extend_from_slice(&piece[..count]),
            }
        }
    }

    #[test]
    fn a_file_ends_where_it_ended_when_it_was_opened_and_has_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        for before in [&b"first"[..], b""] {
            fs::write(&path, before).expect("written");
            let mut content = opened(&path);
            assert!(!content.has_changed());
            let mut log = File::options().append(true).open(&path).expect("there");
            log.write_all(b" and second").expect("written");
            assert_eq!(read_all(&mut content, 3, 0), before);
            assert!(content.has_changed());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_of_proc_is_read_to_its_end() {
        let path = Path::new("/proc/self/mountinfo");
        let expected = fs::read(path).expect("there");
        assert!(expected.len() > 100);
        assert_eq!(read_all(&mut opened(path), 100, 0), expected);
    }

    /// Where data lie in a file, in steps that are no multiples of blocks, and how long it is.
    fn sparse_files() -> impl Strategy<Value = (Vec<(u64, usize)>, u64)> {
        let data = (0..3_000_000_u64, 1..20_000_usize);
        (vec(data, 0..6), 0..4_000_000_u64)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn files_with_holes_are_read_as_they_are(
            (data, bytes) in sparse_files(),
            piece_bytes in prop_oneof![1000..20_000_usize, Just(1 << 20)],
            unaligned_by in prop_oneof![Just(0), 1..ALIGNMENT],
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("sparse");
            let file = File::create(&path).expect("made");
            file.set_len(bytes).expect("room");
            for (at, count) in data {
                // Not on disk yet, so that what calls it a hole is wrong.
                file.write_all_at(&vec![7; count], at).expect("room");
            }
            let expected = fs::read(&path).expect("there");
            let read = read_all(&mut opened(&path), piece_bytes, unaligned_by);
            prop_assert!(read == expected);
        }
    }

    /// Kibibytes of the page cache that a file takes.
    #[cfg(target_os = "linux")]
    fn cached(path: &Path) -> Option<u64> {
        let out = std::process::Command::new("fincore")
            .args(["--bytes", "--noheadings", "--output", "RES"])
            .arg(path)
            .output();
        let out = String::from_utf8(out.ok()?.stdout).ok()?;
        out.trim().parse::<u64>().ok().map(|bytes| bytes >> 10)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_hole_takes_no_room_in_the_page_cache() {
        use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};

        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hole");
        let file = File::create(&path).expect("made");
        file.write_all_at(b"end", 64 << 20).expect("room");
        let knows_holes = seek(&file, SeekFrom::Data(0)).is_ok_and(|data| data > 0);
        if !knows_holes || open(&path, OFlags::DIRECT, Mode::empty()).is_err() {
            eprintln!("skipped: the file system has no holes, or no O_DIRECT");
            return;
        }
        let read = read_all(&mut opened(&path), 1 << 20, 0);
        assert_eq!(read.len(), (64 << 20) + 3);
        match cached(&path) {
            Some(kib) => assert!(kib < 4 << 10, "{kib} KiB"),
            None => eprintln!("skipped: fincore is not here"),
        }
    }
}
