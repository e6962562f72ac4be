//! Sources that fail, shrink or change while they are read.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use refrain_czip::archive::{FileSource, ReadError, Source};

use crate::reading::{content, open, read};

fn vector(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "testdata", name]
        .iter()
        .collect()
}

/// Bytes that are no longer there after so many reads.
struct Failing {
    bytes: Vec<u8>,
    reads_left: AtomicUsize,
}

impl Source for Failing {
    fn bytes(&self) -> io::Result<u64> {
        self.bytes.bytes()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let reads = self.reads_left.load(Ordering::Relaxed);
        let left = reads.checked_sub(1).ok_or(io::ErrorKind::TimedOut)?;
        self.reads_left.store(left, Ordering::Relaxed);
        self.bytes.read_exact_at(buffer, offset)
    }
}

#[test]
fn a_source_that_fails_at_any_time_is_an_error_that_says_so() {
    for name in ["bases.czip", "woven.czip", "footer.czip", "shared.czip"] {
        let bytes = fs::read(vector(name)).unwrap();
        let right = read(bytes.clone()).unwrap();
        let mut failures = 0;
        loop {
            let source = Failing {
                bytes: bytes.clone(),
                reads_left: failures.into(),
            };
            match read(source) {
                Ok(found) => break assert!(found == right, "{name}"),
                Err(ReadError::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
                Err(error) => panic!("{name}: {error}"),
            }
            failures += 1;
        }
        assert!(failures > 5, "{name}");
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["bases.czip", "woven.czip", "none.czip"] {
        let path = folder.path().join(name);
        fs::copy(vector(name), &path).unwrap();
        let archive = open(FileSource::new(File::open(&path).unwrap()).unwrap()).unwrap();
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(300)
            .unwrap();
        assert!(
            matches!(content(&archive, 0), Err(ReadError::Io(_))),
            "{name}"
        );
        assert!(matches!(archive.entries(), Err(ReadError::Io(_))), "{name}");
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_an_error_or_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changing");
    for name in ["bases.czip", "woven.czip"] {
        let mut bytes = fs::read(vector(name)).unwrap();
        let right = read(bytes.clone()).unwrap();
        for at in (256..bytes.len()).step_by(11) {
            fs::copy(vector(name), &path).unwrap();
            let archive = open(FileSource::new(File::open(&path).unwrap()).unwrap()).unwrap();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            bytes[at] ^= 1;
            if let Ok(found) = content(&archive, 0) {
                assert!(found == right.content, "{name}, byte {at}");
            }
        }
    }
}
