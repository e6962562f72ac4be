//! What is asked for: each needed byte once, and nothing else but gaps.

use std::path::PathBuf;

use proptest::prelude::*;
use refrain_czip::{
    archive::{Archive, CacheBytes},
    create::CreateOptions,
};
use refrain_czip_format::{Stream, header::Profile};

use crate::get::{Place, archive_of, creating, noise, options, release, serve};

/// Names of all chunks, with the stream that they are in.
fn names(archive: &[u8]) -> Vec<(Stream, [u8; 20])> {
    let archive = Archive::open(archive.to_vec(), CacheBytes::default()).expect("an archive");
    let mut names = Vec::new();
    for stream in Stream::ALL {
        for row in 0..archive.root().stream(stream).chunks.rows().len() {
            let of_row = archive.chunk_names(stream, row).expect("a part");
            names.extend(of_row.into_iter().map(|name| (stream, name.0)));
        }
    }
    names
}

#[test]
fn all_archives_are_fetched_without_anything_here() {
    let content = release(3);
    for profile in [Profile::Shared, Profile::Small] {
        for is_woven in [true, false] {
            for has_footer in [false, true] {
                let creating = refrain_czip::create::CreateOptions {
                    is_woven,
                    ..creating(profile)
                };
                let archive = archive_of(&content, &creating, has_footer);
                let chunks = names(&archive).len() as u64;
                let (server, place) = (serve(archive), Place::new());
                let report = place.get(&server, &options()).expect("a file");
                place.assert_is(&content);
                assert_eq!(report.from_server.chunks, chunks);
                assert_eq!(
                    report.transferred().requests,
                    server.requests().len() as u64
                );
                assert_eq!(report.plain_bytes, Some(content.len() as u64));
            }
        }
    }
}

#[test]
fn an_empty_archive_has_an_empty_file() {
    let archive = archive_of(&[], &creating(Profile::Small), false);
    let place = Place::new();
    place.get(&serve(archive), &options()).expect("a file");
    place.assert_is(&[]);
}

#[test]
fn with_its_predecessor_here_only_news_are_fetched() {
    for profile in [Profile::Shared, Profile::Small] {
        let (old, new) = (release(1), release(2));
        let old_names = names(&archive_of(&old, &creating(profile), false));
        let archive = archive_of(&new, &creating(profile), false);
        let news = names(&archive).into_iter();
        let news = news.filter(|name| !old_names.contains(name)).count() as u64;
        let place = Place::new();
        let mut options = options();
        options.seeds = vec![place.with("seed", &old)];
        let archive_bytes = archive.len() as u64;
        let report = place.get(&serve(archive), &options).expect("a file");
        place.assert_is(&new);
        // The catalog of a file and that of a stream have other names in them.
        assert!(
            report.from_server.chunks.abs_diff(news) <= 1,
            "{report:?} {news}"
        );
        assert!(report.transferred().bytes < archive_bytes / 2, "{report:?}");
    }
}

#[test]
fn a_base_that_is_here_is_not_fetched() {
    let old = noise(5, 400_000);
    let mut edited = old.clone();
    edited.iter_mut().step_by(3_001).for_each(|byte| *byte ^= 1);
    let content = [&old[..], &edited].concat();
    let archive = archive_of(&content, &creating(Profile::Small), false);
    // Noise compresses to itself, but beside what it was.
    assert!(archive.len() < 500_000, "{}", archive.len());
    for (has_seed, most) in [(true, 80_000), (false, 500_000)] {
        let place = Place::new();
        let mut options = options();
        if has_seed {
            options.seeds = vec![place.with("seed", &old)];
        }
        let report = place
            .get(&serve(archive.clone()), &options)
            .expect("a file");
        place.assert_is(&content);
        assert!(report.from_server.chunks > 50, "{report:?}");
        assert!(report.frames.bytes < most, "{report:?}");
    }
}

#[test]
fn what_is_made_after_an_earlier_archive_is_fetched_without_chunks_of_that() {
    let (old, new) = (release(1), release(2));
    let place = Place::new();
    let seed = place.with("seed", &old);
    let earlier = place.with(
        "earlier",
        &archive_of(&old, &creating(Profile::Small), false),
    );
    let fetched = |earlier: Vec<PathBuf>| {
        let creating = CreateOptions {
            earlier,
            ..creating(Profile::Small)
        };
        let archive = archive_of(&new, &creating, false);
        let place = Place::new();
        let mut options = options();
        options.seeds = vec![seed.clone()];
        options.remote.gap_bytes = 0;
        options.requests_max = 1_000;
        let report = place.get(&serve(archive), &options).expect("a file");
        place.assert_is(&new);
        report
    };
    let (without, with) = (fetched(Vec::new()), fetched(vec![earlier]));
    assert_eq!(with.from_server, without.from_server);
    // What is new is noise.
    let news = with.from_server.bytes;
    assert!(with.frames.bytes < news * 102 / 100, "{with:?}");
    assert!(without.frames.bytes > news * 110 / 100, "{without:?}");
}

#[test]
fn a_row_of_the_table_of_which_all_is_known_is_not_fetched() {
    // So long that the table is not all in what is asked for first.
    let content = noise(7, 12 << 20);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    let parsed = Archive::open(archive.clone(), CacheBytes::default()).expect("an archive");
    let lists = parsed.root().stream(Stream::Content);
    let mut table = 0;
    for list in [&lists.chunks, &lists.frames, &lists.lengths] {
        table += (list.rows().iter())
            .map(|row| u64::from(row.place.stored_bytes))
            .sum::<u64>();
    }
    assert!(table > 80_000, "{table}");
    let place = Place::new();
    let mut options = options();
    options.seeds = vec![place.with("seed", &content)];
    let report = place.get(&serve(archive), &options).expect("a file");
    place.assert_is(&content);
    assert!(report.table.bytes < 2_000, "{report:?}");
}

#[test]
fn requests_are_few_and_more_are_allowed_for_more_bytes() {
    let archive = archive_of(&release(2), &creating(Profile::Shared), false);
    for requests_max in [1, 4, 8, 20] {
        let place = Place::new();
        let mut options = options();
        options.requests_max = requests_max;
        options.remote.gap_bytes = 0;
        options.remote.piece_bytes = 4 << 10;
        options.seeds = vec![place.with("seed", &release(1))];
        let server = serve(archive.clone());
        place.get(&server, &options).expect("a file");
        // One for the header, one for the table and one for frames cannot be less.
        assert!(
            server.requests().len() <= requests_max.max(3),
            "{requests_max}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_byte_is_asked_for_twice_and_none_beyond_gaps(
        old in 0..6_u64,
        new in 0..6_u64,
        is_shared: bool,
        has_footer: bool,
        gap_bytes in 0..5_000_u64,
        requests_max in 1..40_usize,
    ) {
        let profile = if is_shared { Profile::Shared } else { Profile::Small };
        let archive = archive_of(&release(new), &creating(profile), has_footer);
        let len = archive.len() as u64;
        let (server, place) = (serve(archive), Place::new());
        let mut options = options();
        options.requests_max = requests_max;
        options.remote.gap_bytes = gap_bytes;
        options.seeds = vec![place.with("seed", &release(old))];
        let report = place.get(&server, &options).expect("a file");
        place.assert_is(&release(new));
        let requests = server.requests();
        let mut ranges: Vec<_> = requests.iter().filter_map(|it| it.range(len)).collect();
        prop_assert_eq!(ranges.len(), requests.len());
        ranges.sort_by_key(|range| range.start);
        // The first bytes and the last are asked for before anything is known.
        let known: Vec<_> = ranges.iter().filter(|range| range.start > 0).collect();
        for pair in known.windows(2) {
            prop_assert!(has_footer || pair[0].end <= pair[1].start, "{:?}", ranges);
        }
        let asked: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        prop_assert_eq!(report.transferred().bytes, asked);
    }
}

#[test]
fn an_archive_that_is_kept_is_the_archive() {
    for profile in [Profile::Shared, Profile::Small] {
        for has_footer in [false, true] {
            for has_seed in [false, true] {
                let archive = archive_of(&release(2), &creating(profile), has_footer);
                let place = Place::new();
                let mut options = options();
                options.keeps_archive = true;
                if has_seed {
                    options.seeds = vec![place.with("seed", &release(1))];
                }
                let report = place.get(&serve(archive.clone()), &options);
                let report = report.expect("an archive");
                place.assert_is(&archive);
                if has_seed && profile == Profile::Shared {
                    let bytes = report.transferred().bytes as usize;
                    assert!(bytes < archive.len() / 2, "{report:?}");
                }
            }
        }
    }
}
