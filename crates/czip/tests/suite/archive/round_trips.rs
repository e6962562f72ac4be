use std::io::Cursor;

use proptest::{collection::vec, prelude::*, sample::select};
use refrain_czip::create::{CreateError, CreateOptions, Input, Output};
use refrain_czip_format::{Stream, chunker::Chunking, header::Profile};

use crate::archive::{
    Crumbs, archive_of, make, noise, open, options, piped_archive_of, read, read_all, tar_of,
};

fn any_options() -> impl Strategy<Value = CreateOptions> {
    let compressions = vec!["zstd", "zstd:-5", "gzip:1", "bzip2:1", "none"];
    (
        any::<bool>(),
        select(compressions),
        select(vec![0, 1 << 14, 256 << 10]),
        any::<bool>(),
        any::<bool>(),
        1_usize..4,
        // Some of them for a few names only.
        select(vec![0, 4 << 10, 32 << 10, 256 << 20]),
    )
        .prop_map(
            |(is_shared, compression, frame_bytes, has_bases, is_woven, threads, index_bytes)| {
                CreateOptions {
                    profile: match is_shared {
                        true => Profile::Shared,
                        false => Profile::Small,
                    },
                    compression: compression.parse().expect("one that there is"),
                    frame_bytes,
                    has_bases,
                    is_woven,
                    threads,
                    index_bytes,
                    ..options()
                }
            },
        )
}

/// Content with repeats, near repeats, runs and tars in it.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = (0_u8..5, 0_u64..4, 0_usize..200_000, any::<u8>());
    vec(piece, 0..12).prop_map(|pieces| {
        let mut content = Vec::new();
        for (kind, seed, bytes, byte) in pieces {
            match kind {
                0 => content.extend(noise(seed, bytes)),
                1 => content.extend(std::iter::repeat_n(byte, bytes)),
                2 => {
                    let mut changed = noise(seed, bytes);
                    changed
                        .iter_mut()
                        .step_by(30_011)
                        .for_each(|at| *at ^= byte);
                    content.extend(changed);
                }
                3 => content.extend((0..bytes / 8).flat_map(|n| format!("{n:08}").into_bytes())),
                _ => {
                    let files: Vec<_> = (0..seed * 20)
                        .map(|file| (format!("top/{file}.txt"), noise(file, bytes / 50)))
                        .collect();
                    content.extend(tar_of(&files, u64::from(byte)));
                }
            }
        }
        content
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_goes_in_comes_out(
        content in content(),
        options in any_options(),
        ranges in vec((any::<prop::sample::Index>(), 0_usize..300_000), 0..4),
    ) {
        for archive in [archive_of(&content, &options), piped_archive_of(&content, &options)] {
            let archive = open(archive);
            prop_assert_eq!(read_all(&archive).expect("sound"), &content[..]);
            for (start, bytes) in &ranges {
                let start = start.index(content.len() + 1);
                let end = (start + bytes).min(content.len());
                let found = read(&archive, start..start + bytes).expect("sound");
                prop_assert_eq!(found, &content[start..end]);
            }
            let entries = archive.entries().expect("sound");
            prop_assert_eq!(entries.len(), 1);
        }
    }

    #[test]
    fn an_archive_depends_on_nothing_but_content_and_options(
        content in content(),
        options in any_options(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("again.czip");
        let input = Input::Stream(Box::new(Crumbs(Cursor::new(content.clone()))));
        let again = CreateOptions { threads: 4 - options.threads, ..options.clone() };
        make(vec![input], Output::File(path.clone()), &again).expect("an archive");
        let again = std::fs::read(path).expect("it is there");
        prop_assert_eq!(archive_of(&content, &options), again);
    }
}

#[test]
fn a_repeat_is_stored_once() {
    let release = noise(1, 3 << 20);
    let content = [&release[..], &release, &release].concat();
    for profile in [Profile::Small, Profile::Shared] {
        let options = CreateOptions {
            profile,
            ..options()
        };
        let archive = archive_of(&content, &options);
        assert!(
            archive.len() < release.len() + (128 << 10),
            "{}",
            archive.len()
        );
    }
}

#[test]
fn chunks_that_changed_a_little_are_stored_as_what_changed() {
    let release = noise(1, 4 << 20);
    let mut patched = release.clone();
    patched
        .iter_mut()
        .step_by(100_003)
        .for_each(|byte| *byte ^= 1);
    let content = [release.clone(), patched].concat();
    let with = archive_of(&content, &options());
    let without = archive_of(
        &content,
        &CreateOptions {
            has_bases: false,
            ..options()
        },
    );
    assert!(with.len() < release.len() + (128 << 10), "{}", with.len());
    assert!(
        without.len() > release.len() + (1 << 20),
        "{}",
        without.len()
    );
}

#[test]
fn times_alone_cost_little_in_the_next_release() {
    let files: Vec<_> = (0..300)
        .map(|file| (format!("release/{file}.txt"), noise(file, 3_000)))
        .collect();
    let one = tar_of(&files, 1_700_000_000);
    let both = [one.clone(), tar_of(&files, 1_700_009_999)].concat();
    let (one, both) = (archive_of(&one, &options()), archive_of(&both, &options()));
    assert!(
        both.len() < one.len() + 4_096,
        "{} and {}",
        one.len(),
        both.len()
    );
}

/// More frames than wait in memory, so that room is left for the table before its size is known.
#[test]
fn a_large_archive_has_its_table_in_front() {
    let content = noise(5, 90 << 20);
    let archive = open(archive_of(&content, &options()));
    assert_eq!(archive.header().root.offset, 256);
    assert_eq!(read_all(&archive).expect("sound"), content);
    let room = archive.header().archive_bytes - archive.root().summary.stored_bytes;
    assert!(room < content.len() as u64 / 200, "{room}");
}

#[test]
fn an_earlier_archive_is_one_with_the_same_chunks() {
    let content = noise(8, 1 << 20);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("earlier");
    let after = || CreateOptions {
        earlier: vec![path.clone()],
        chunking: Chunking::default().at_most(8 << 10),
        ..options()
    };
    let outcome = |content: &[u8]| {
        let input = Input::Stream(Box::new(Cursor::new(content.to_vec())));
        let output = Output::File(folder.path().join("archive"));
        make(vec![input], output, &after())
    };
    let missing = outcome(&content);
    assert!(
        matches!(missing, Err(CreateError::Earlier { .. })),
        "{missing:?}"
    );
    std::fs::write(&path, &content).expect("room");
    let other = outcome(&content);
    assert!(
        matches!(other, Err(CreateError::Earlier { .. })),
        "{other:?}"
    );
    std::fs::write(&path, archive_of(&content, &options())).expect("room");
    let cut_otherwise = outcome(&content);
    assert!(
        matches!(cut_otherwise, Err(CreateError::EarlierCut { .. })),
        "{cut_otherwise:?}"
    );
    let alike = CreateOptions {
        earlier: Vec::new(),
        ..after()
    };
    std::fs::write(&path, archive_of(&content, &alike)).expect("room");
    // Chunks of both sorts, one after the other.
    let mut new = noise(9, content.len());
    for at in (0..content.len() - 40_000).step_by(100_000) {
        new[at..at + 40_000].copy_from_slice(&content[at..at + 40_000]);
    }
    let archive = open(archive_of(&new, &after()));
    assert_eq!(read_all(&archive).expect("sound"), new);
}

/// Where no frame waits, room is left by what the first one tells.
#[test]
fn a_table_that_outgrows_its_room_goes_behind_the_frames() {
    let content = noise(5, 80 << 20);
    let options = CreateOptions {
        profile: Profile::Shared,
        chunking: Chunking::default().at_most(1 << 10),
        waiting_bytes: 0,
        ..options()
    };
    let archive = open(archive_of(&content, &options));
    assert!(archive.header().root.offset > archive.root().summary.stored_bytes);
    assert_eq!(read_all(&archive).expect("sound"), content);
}

/// Room that the table does not fill is sent in vain: here, nothing new comes after it was left.
#[test]
fn room_for_the_table_is_for_what_was_known() {
    let new = noise(5, 12 << 20);
    let content = new.repeat(5);
    for profile in [Profile::Small, Profile::Shared] {
        let options = CreateOptions {
            profile,
            chunking: Chunking::default().at_most(1 << 10),
            waiting_bytes: new.len() * 7 / 8,
            expected_bytes: Some(content.len() as u64),
            ..options()
        };
        let archive = open(archive_of(&content, &options));
        let header = archive.header();
        let table_bytes = header.archive_bytes - archive.root().summary.stored_bytes;
        let bound = 40 * header.chunks + 4 * header.references;
        assert!(table_bytes < bound, "{table_bytes} of {bound}");
        assert_eq!(header.root.offset, 256);
    }
}

/// Every reader reads the root, and gets it with the header.
#[test]
fn the_root_is_in_front_if_it_was_known_how_much_would_come() {
    let content = noise(5, 80 << 20);
    for profile in [Profile::Small, Profile::Shared] {
        let options = CreateOptions {
            profile,
            chunking: Chunking::default().at_most(1 << 10),
            waiting_bytes: 4 << 20,
            expected_bytes: Some(content.len() as u64),
            ..options()
        };
        let archive = open(archive_of(&content, &options));
        assert_eq!(archive.header().root.offset, 256);
        let rows = archive.root().stream(Stream::Content).chunks.rows();
        let is_behind = |offset| offset > archive.root().summary.stored_bytes;
        assert!(rows.iter().any(|row| is_behind(row.place.offset)));
        assert_eq!(read_all(&archive).expect("sound"), content);
    }
}

#[test]
fn names_that_are_forgotten_cost_bytes_and_no_names_within_the_bound_are() {
    let release = noise(3, 4 << 20);
    let content = [&release[..], &release].concat();
    let archive = |index_bytes| {
        let options = CreateOptions {
            chunking: Chunking::default().at_most(1 << 10),
            index_bytes,
            // Chunks that are stored again are similar to themselves.
            has_bases: false,
            ..options()
        };
        let archive = archive_of(&content, &options);
        assert_eq!(archive, archive_of(&content, &options));
        assert_eq!(
            read_all(&open(archive.clone())).expect("sound"),
            content,
            "{index_bytes}"
        );
        archive
    };
    let remembered = archive(1 << 20);
    assert_eq!(remembered, archive(256 << 20));
    assert!(remembered.len() < release.len() * 11 / 10);
    assert!(archive(16 << 10).len() > content.len());
}
