//! The layers over each other: memory, a cache on disk, and a source that may lie.

use std::{
    fs, io,
    ops::{ControlFlow, Range},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use proptest::prelude::*;

use super::*;
use crate::{
    archive::CacheBytes,
    cache::CacheOptions,
    create::{CreateOptions, CreateProgress, Input, Output, create},
};

const PROFILES: [Profile; 2] = [Profile::Small, Profile::Shared];

/// An archive whose bytes come damaged now and then.
struct Lying {
    bytes: Vec<u8>,
    /// Of so many reads one lies; none if it is 0.
    lies_every: AtomicU64,
    reads: Mutex<Vec<Range<u64>>>,
}

impl Source for Lying {
    fn bytes(&self) -> io::Result<u64> {
        self.bytes.bytes()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes.read_exact_at(buffer, offset)?;
        let mut reads = self.reads.lock().expect("no panic");
        reads.push(offset..offset + buffer.len() as u64);
        let every = self.lies_every.load(Relaxed);
        if every > 0 && (reads.len() as u64).is_multiple_of(every) && !buffer.is_empty() {
            let at = (offset as usize ^ reads.len()) % buffer.len();
            buffer[at] ^= 4;
        }
        Ok(())
    }

    fn forget(&self, _: Range<u64>) -> bool {
        true
    }
}

/// Content with places that repeat, and others that are alike.
fn content(seed: u64) -> Vec<u8> {
    let mut noise = vec![0; 400_000];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut noise);
    let mut alike = noise[..200_000].to_vec();
    alike.iter_mut().step_by(5_000).for_each(|byte| *byte ^= 1);
    [&noise[..], &alike, &noise[300_000..]].concat()
}

fn archive_of(content: &[u8], profile: Profile) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("content"), content).expect("a new file");
    let options = CreateOptions {
        profile,
        ..CreateOptions::default()
    };
    let input = Input::Path(folder.path().join("content"));
    let output = Output::File(folder.path().join("a.czip"));
    let progress = &mut |_: CreateProgress<'_>| ControlFlow::Continue(());
    create(vec![input], output, &options, progress).expect("an archive");
    fs::read(folder.path().join("a.czip")).expect("it is there")
}

/// Opens an archive with a cache in `folder`. Header and root come as they are.
fn open(archive: &[u8], folder: &Path, lies_every: u64) -> Archive<Lying> {
    let source = Lying {
        bytes: archive.to_vec(),
        lies_every: AtomicU64::new(0),
        reads: Mutex::default(),
    };
    let options = CacheOptions {
        folder: folder.join("cache"),
        bytes_max: 1 << 30,
    };
    let cache = Cache::open(&options, |_, error| panic!("{error}")).expect("a folder");
    let archive = Archive::open(source, CacheBytes::default()).expect("an archive");
    archive.source.lies_every.store(lies_every, Relaxed);
    archive.source.reads.lock().expect("no panic").clear();
    archive.with_cache(Arc::new(cache))
}

fn read(archive: &Archive<Lying>, range: Range<usize>) -> Result<Vec<u8>, ReadError> {
    let mut read = vec![0; range.len()];
    archive.content(range.start as u64)?.read(&mut read)?;
    Ok(read)
}

/// The numbers of all chunks of the content, and their names.
fn chunks(archive: &Archive<Lying>) -> (Vec<u64>, Vec<ChunkName>) {
    let numbers = 0..archive.root.stream(Stream::Content).chunks.items();
    let name = |number| archive.name(Stream::Content, number).expect("a name");
    (numbers.clone().collect(), numbers.map(name).collect())
}

/// How often stored frames of the content were read, by number.
fn frame_reads(archive: &Archive<Lying>) -> Vec<usize> {
    let reads = archive.source.reads.lock().expect("no panic").clone();
    let numbers = 0..archive.root.stream(Stream::Content).frames.items();
    let times = numbers.map(|number| {
        let frame = archive.frame_row(Stream::Content, number).expect("a row");
        reads.iter().filter(|read| **read == frame.range()).count()
    });
    times.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_source_that_lies_gives_errors_or_the_right_bytes_and_leaves_none_behind(
        seed in 0..4_u64,
        is_small: bool,
        lies_every in 1..9_u64,
        starts in proptest::collection::vec(0..600_000_usize, 1..8),
    ) {
        let content = content(seed);
        let profile = PROFILES[usize::from(!is_small)];
        let stored = archive_of(&content, profile);
        let folder = tempfile::tempdir().expect("a folder");
        let lying = open(&stored, folder.path(), lies_every);
        for &start in &starts {
            let range = start..start + 50_000;
            if let Ok(read) = read(&lying, range.clone()) {
                prop_assert!(read == content[range]);
            }
        }
        let (all, names) = chunks(&open(&stored, folder.path(), 0));
        for (some, names) in all.chunks(7).zip(names.chunks(7)) {
            if let Ok((brought, _)) = lying.chunks(Stream::Content, some) {
                for (name, chunk) in names.iter().zip(brought) {
                    prop_assert_eq!(*name, ChunkName::of(&chunk));
                }
            }
        }
        // What it left in the cache is right.
        let honest = open(&stored, folder.path(), 0);
        prop_assert!(read(&honest, 0..content.len()).expect("honest") == content);
    }

    #[test]
    fn a_cache_that_is_damaged_is_fallen_through(
        is_small: bool,
        flips in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>()), 1..60),
    ) {
        let content = content(1);
        let stored = archive_of(&content, PROFILES[usize::from(!is_small)]);
        let folder = tempfile::tempdir().expect("a folder");
        let first = open(&stored, folder.path(), 0);
        prop_assert!(read(&first, 0..content.len()).expect("honest") == content);
        let files = fs::read_dir(folder.path().join("cache")).expect("a folder");
        for file in files.map(|file| file.expect("a file").path()) {
            let is_index = file.extension().is_some_and(|it| it == "index");
            let mut bytes = fs::read(&file).expect("a file");
            for (of_index, at) in &flips {
                if *of_index == is_index && !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] ^= 1;
                }
            }
            fs::write(&file, bytes).expect("written");
        }
        let again = open(&stored, folder.path(), 0);
        prop_assert!(read(&again, 0..content.len()).expect("honest") == content);
        let (all, names) = chunks(&again);
        let (brought, _) = again.chunks(Stream::Content, &all).expect("honest");
        for (name, chunk) in names.into_iter().zip(brought) {
            prop_assert_eq!(name, ChunkName::of(&chunk));
        }
    }
}

#[test]
fn what_is_kept_is_not_read_again() {
    for profile in PROFILES {
        let content = content(1);
        let stored = archive_of(&content, profile);
        let folder = tempfile::tempdir().expect("a folder");
        let first = open(&stored, folder.path(), 0);
        assert!(read(&first, 0..content.len()).expect("honest") == content);
        assert!(
            frame_reads(&first).iter().all(|&times| times == 1),
            "{profile}"
        );
        let again = open(&stored, folder.path(), 0);
        assert!(read(&again, 0..content.len()).expect("honest") == content);
        assert!(
            frame_reads(&again).iter().all(|&times| times == 0),
            "{profile}"
        );
        let (all, _) = chunks(&again);
        let (brought, kept) = again.chunks(Stream::Content, &all).expect("honest");
        assert_eq!((brought.len(), kept), (all.len(), all.len() as u64));
    }
}

#[test]
fn many_who_want_the_same_at_once_have_it_read_once() {
    for profile in PROFILES {
        let stored = archive_of(&content(1), profile);
        let folder = tempfile::tempdir().expect("a folder");
        let archive = open(&stored, folder.path(), 0);
        let (all, _) = chunks(&archive);
        thread::scope(|scope| {
            for thread in 0..8 {
                let (archive, mut mine) = (&archive, all.clone());
                let by = thread * mine.len() / 8;
                mine.rotate_left(by);
                scope.spawn(move || {
                    for some in mine.chunks(5 + thread) {
                        let (brought, _) = archive.chunks(Stream::Content, some).expect("honest");
                        assert_eq!(brought.len(), some.len());
                    }
                });
            }
        });
        let reads = frame_reads(&archive);
        assert!(
            reads.iter().all(|&times| times == 1),
            "{profile}: {reads:?}"
        );
    }
}

#[test]
fn a_base_whose_chunks_are_kept_is_not_read() {
    let stored = archive_of(&content(1), Profile::Small);
    let folder = tempfile::tempdir().expect("a folder");
    let archive = open(&stored, folder.path(), 0);
    let frames = 0..archive.root.stream(Stream::Content).frames.items();
    let mut rows = frames.map(|number| archive.frame_row(Stream::Content, number).expect("a row"));
    let similar = rows.position(|frame| frame.base.is_some()).expect("one") as u64;
    let base = archive.frame_row(Stream::Content, similar).expect("a row");
    let base = base.base.expect("it has one");
    archive.frame(Stream::Content, base).expect("honest");
    let again = open(&stored, folder.path(), 0);
    let chunks = again.chunks_of(Stream::Content, similar);
    let number = chunks.expect("listed")[0].number;
    again.chunks(Stream::Content, &[number]).expect("honest");
    let reads = frame_reads(&again);
    assert_eq!((reads[base as usize], reads[similar as usize]), (0, 1));
    // And if it has to come, it comes with what is made after it.
    let other = tempfile::tempdir().expect("a folder");
    let anew = open(&stored, other.path(), 0);
    anew.chunks(Stream::Content, &[number]).expect("honest");
    let reads = frame_reads(&anew);
    assert_eq!((reads[base as usize], reads[similar as usize]), (1, 1));
}
