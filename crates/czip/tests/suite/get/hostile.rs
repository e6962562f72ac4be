//! Archives that are damaged, or made to harm.

use proptest::prelude::*;
use refrain_czip::get::{CacheOptions, GetError};
use refrain_czip_format::{ChunkName, Stream, header::Profile};

use crate::get::{
    Place, archive_of, creating,
    draft::{CONTENT, Draft, SHARED, with_header_digest},
    keys::Reader,
    noise, options, release, serve,
};

#[test]
fn an_archive_that_ends_early_is_an_error_wherever_it_ends() {
    let archive = archive_of(&release(2), &creating(Profile::Small), false);
    for bytes in (0..archive.len()).step_by(archive.len() / 60) {
        let place = Place::new();
        let error = place.get(&serve(archive[..bytes].to_vec()), &options());
        let error = error.expect_err("it is too short");
        assert!(
            matches!(error, GetError::Archive(_) | GetError::NotAnArchive { .. }),
            "{bytes}: {error}"
        );
        assert!(!place.output().exists());
    }
}

#[test]
fn an_archive_that_claims_more_than_there_is_costs_no_memory_and_no_disk() {
    let archive = archive_of(&release(2), &creating(Profile::Shared), false);
    // Lengths of the file, of the content, of the unique and the stored bytes; chunks; the root.
    for at in [40, 48, 56, 64, 80, 88, 128] {
        for claimed in [u64::MAX, 1 << 62, 1 << 40] {
            let mut hostile = archive.clone();
            hostile[at..at + 8].copy_from_slice(&claimed.to_le_bytes());
            let place = Place::new();
            match place.get(&serve(with_header_digest(hostile)), &options()) {
                // The root knows better than the header.
                Ok(_) => place.assert_is(&release(2)),
                Err(_) => assert!(!place.output().exists()),
            }
        }
    }
}

#[test]
fn a_chunk_that_is_not_what_its_name_says_is_an_error_and_no_other_get_has_it() {
    let chunks = [1, 2, 3].map(|seed| noise(seed, 5000));
    let other = noise(4, 5000);
    for flags in [0, SHARED] {
        let draft = |chunks: &[Vec<u8>; 3]| {
            let mut draft = Draft::honest(&chunks.each_ref().map(|chunk| &chunk[..]));
            draft.flags = flags;
            draft
        };
        let mut lie = draft(&[chunks[0].clone(), other.clone(), chunks[2].clone()]);
        lie.streams[CONTENT].names[1] = ChunkName::of(&chunks[1]).0;
        let place = Place::new();
        let mut options = options();
        options.cache = Some(CacheOptions {
            folder: place.0.path().join("cache"),
            bytes_max: 1 << 30,
        });
        let lying = serve(lie.build());
        // What the first has left is not believed by the second.
        for _ in 0..2 {
            let error = place.get(&lying, &options).expect_err("it lies");
            let (stream, chunk) = match error {
                GetError::Chunk { stream, chunk } => (stream, chunk),
                error => panic!("{error}"),
            };
            assert_eq!((stream, chunk), (Stream::Content, 1));
            assert!(!place.output().exists());
        }
        let honest = serve(draft(&chunks).build());
        let report = place.get(&honest, &options).expect("a file");
        place.assert_is(&chunks.concat());
        assert!(report.from_earlier.chunks >= 1, "{report:?}");
        // With that in the cache, what is false is not what comes.
        match place.get(&lying, &options) {
            Ok(_) => panic!("its digest is of other content"),
            Err(error) => assert!(matches!(error, GetError::Archive(_)), "{error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn bits_that_flipped_never_give_a_wrong_file(
        is_shared: bool,
        has_footer: bool,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 1..4),
        is_sealed: bool,
        has_seed: bool,
    ) {
        let profile = if is_shared { Profile::Shared } else { Profile::Small };
        let mut archive = archive_of(&release(2), &creating(profile), has_footer);
        for (at, bit) in flips {
            let at = at.index(archive.len());
            archive[at] ^= 1 << bit;
        }
        if is_sealed {
            archive = with_header_digest(archive);
        }
        let place = Place::new();
        let mut options = options();
        if has_seed {
            options.seeds = vec![place.with("seed", &release(1))];
        }
        match place.get(&serve(archive), &options) {
            Ok(_) => place.assert_is(&release(2)),
            Err(_) => prop_assert!(!place.output().exists()),
        }
    }

    #[test]
    fn bits_that_flipped_in_an_encrypted_archive_never_give_a_wrong_file(
        is_shared: bool,
        has_secret: bool,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 1..4),
        keeps_archive: bool,
        has_seed: bool,
    ) {
        let profile = if is_shared { Profile::Shared } else { Profile::Small };
        let reader = Reader::new();
        let creating = reader.encrypted(profile, has_secret);
        let whole = archive_of(&release(2), &creating, false);
        let mut archive = whole.clone();
        for (at, bit) in flips {
            let at = at.index(archive.len());
            archive[at] ^= 1 << bit;
        }
        let place = Place::new();
        let mut options = reader.options(has_secret);
        options.keeps_archive = keeps_archive;
        if has_seed {
            let seed = archive_of(&release(1), &creating, false);
            options.seeds = vec![place.with("old.czip", &seed)];
        }
        let got = place.get(&serve(archive), &options);
        match (got, keeps_archive) {
            // What nothing points to is zeros.
            (Ok(_), true) => place.assert_is(&whole),
            (Ok(_), false) => place.assert_is(&release(2)),
            (Err(_), _) => prop_assert!(!place.output().exists()),
        }
    }
}
