//! Archives that are kept as they are: stored frames that are here are not fetched.

use std::{fs, path::Path};

use refrain_czip::{
    archive::{Archive, CacheBytes},
    create::CreateOptions,
    get::{CacheOptions, UnusedSeed},
};
use refrain_czip_format::{Stream, header::Profile};

use crate::get::{
    Place, archive_of, creating, file,
    keys::Reader,
    noise, options, serve,
    server::{Ending, Server},
};

/// For an archive of more than a megabyte, one chunk of which is new: what is asked for first at both
/// ends, one frame, and parts of the table.
pub(crate) const FETCHED_MAX: u64 = 2 * (64 << 10) + 60_000;

/// A file with something like a copy in it, and a version of it with eight other bytes.
pub(crate) fn versions() -> [Vec<u8>; 2] {
    let mut content = noise(11, 1200 << 10);
    let mut edited = content[..200_000].to_vec();
    edited.iter_mut().step_by(3_001).for_each(|byte| *byte ^= 1);
    content.extend_from_slice(&edited);
    let mut new = content.clone();
    new[700_000..700_008].copy_from_slice(b"8 others");
    [content, new]
}

/// All that is in a folder's files.
pub(crate) fn bytes_of(folder: &Path) -> Vec<u8> {
    let files = fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| fs::read(file.expect("a file").path()).expect("readable"));
    files.flatten().collect()
}

/// Ways to make archives that others can be seeds for: not encrypted, and encrypted for a reader who is
/// not here, with a group secret and without.
fn ways() -> Vec<CreateOptions> {
    let reader = Reader::new();
    [Profile::Shared, Profile::Small]
        .into_iter()
        .flat_map(|profile| {
            let encrypted = [false, true].map(|has_secret| reader.encrypted(profile, has_secret));
            encrypted.into_iter().chain([creating(profile)])
        })
        .collect()
}

/// Frames of an archive.
fn frames(archive: &[u8]) -> u64 {
    let archive = Archive::open(archive.to_vec(), CacheBytes::default()).expect("an archive");
    let streams = Stream::ALL.into_iter();
    streams
        .map(|stream| archive.root().stream(stream).frames.items())
        .sum()
}

#[test]
fn an_archive_has_stored_frames_for_the_next_one() {
    let [old, new] = versions();
    for creating in ways() {
        for has_footer in [false, true] {
            let place = Place::new();
            let mut options = options();
            options.keeps_archive = true;
            let seed = archive_of(&old, &creating, has_footer);
            options.seeds = vec![place.with("old.czip", &seed)];
            let archive = archive_of(&new, &creating, has_footer);
            let report = place.get(&serve(archive.clone()), &options);
            let report = report.expect("an archive");
            place.assert_is(&archive);
            let fetched = report.transferred().bytes;
            assert!(fetched < FETCHED_MAX, "{creating:?} {report:?}");
            let stored = report.stored;
            // Those that came with the header are from the server too.
            assert!(stored.from_server.bytes < FETCHED_MAX, "{report:?}");
            let sum = [stored.from_seeds, stored.from_server].map(|count| count.frames);
            assert_eq!(sum.iter().sum::<u64>(), frames(&archive));
            assert_eq!(report.plain_bytes.is_none(), creating.encryption.is_some());
            assert!(report.unused_seeds.is_empty(), "{report:?}");
        }
    }
}

#[test]
fn a_cache_has_stored_frames_of_what_was_fetched() {
    let [old, new] = versions();
    for creating in ways() {
        let place = Place::new();
        let mut options = options();
        options.keeps_archive = true;
        options.cache = Some(CacheOptions {
            folder: place.0.path().join("cache"),
            bytes_max: 1 << 30,
        });
        let first = archive_of(&old, &creating, false);
        let report = place.get(&serve(first), &options).expect("an archive");
        assert_eq!(report.stored.from_cache.frames, 0);
        let archive = archive_of(&new, &creating, false);
        let report = place.get(&serve(archive.clone()), &options);
        let report = report.expect("an archive");
        place.assert_is(&archive);
        let fetched = report.transferred().bytes;
        assert!(fetched < FETCHED_MAX, "{creating:?} {report:?}");
        assert!(report.stored.from_cache.bytes > 1 << 20, "{report:?}");
        let again = place.get(&serve(archive), &options).expect("an archive");
        // Nothing but what comes with the header, and what no cache keeps of the table.
        assert!(again.stored.from_server.bytes <= 64 << 10, "{again:?}");
    }
}

#[test]
fn a_cache_of_stored_frames_is_one_of_chunks_too() {
    let [content, _] = versions();
    for profile in [Profile::Shared, Profile::Small] {
        let place = Place::new();
        let mut options = options();
        options.cache = Some(CacheOptions {
            folder: place.0.path().join("cache"),
            bytes_max: 1 << 30,
        });
        let server = serve(archive_of(&content, &creating(profile), false));
        options.keeps_archive = true;
        place.get(&server, &options).expect("an archive");
        options.keeps_archive = false;
        let report = place.get(&server, &options).expect("a file");
        place.assert_is(&content);
        assert!(report.transferred().bytes < FETCHED_MAX, "{report:?}");
        assert!(report.from_cache.bytes > 1 << 20, "{report:?}");
    }
}

#[test]
fn seeds_without_archives_are_said_to_be_of_no_use() {
    let [old, new] = versions();
    let reader = Reader::new();
    let small = (creating(Profile::Small), UnusedSeed::Frames);
    let sealed = (reader.encrypted(Profile::Shared, false), UnusedSeed::Sealed);
    for (creating, reason) in [small, sealed] {
        let place = Place::new();
        let mut options = options();
        options.keeps_archive = true;
        let seed = place.with("seed", &old);
        fs::create_dir(place.0.path().join("seeds")).expect("a new folder");
        place.with("seeds/file", &old);
        let archive = archive_of(&old, &creating, false);
        place.with("seeds/archive", &archive);
        let missing = place.0.path().join("missing");
        let folder = place.0.path().join("seeds");
        options.seeds = vec![seed.clone(), folder, missing.clone()];
        let archive = archive_of(&new, &creating, false);
        let report = place.get(&serve(archive.clone()), &options);
        let report = report.expect("an archive");
        place.assert_is(&archive);
        assert_eq!(report.unused_seeds, [(seed, reason)]);
        assert_eq!(report.unread_seeds.len(), 1, "{report:?}");
        assert_eq!(report.unread_seeds[0].0, missing);
        assert!(report.transferred().bytes < FETCHED_MAX, "{report:?}");
    }
}

#[test]
fn what_came_of_another_version_is_used_without_keys() {
    let [old, new] = versions();
    for creating in ways() {
        let place = Place::new();
        let mut options = options();
        options.keeps_archive = true;
        options.remote.retries = 0;
        options.remote.connections = 1;
        let old = file(archive_of(&old, &creating, false));
        let last = old.len() * 3 / 4;
        let dying = Server::start(move |request| {
            let reply = old.reply(request);
            match request.range(old.len()) {
                Some(range) if range.end > last => {
                    let left = last.saturating_sub(range.start) as usize;
                    reply.ending(Ending::Cut(left))
                }
                _ => reply,
            }
        });
        place.get(&dying, &options).expect_err("it breaks off");
        let archive = archive_of(&new, &creating, false);
        let all = archive.len() as u64;
        let report = place.get(&serve(archive.clone()), &options);
        let report = report.expect("an archive");
        place.assert_is(&archive);
        let stored = report.stored;
        let made = stored.made.bytes + stored.from_earlier.bytes;
        assert!(made > all / 2, "{creating:?} {report:?}");
        assert!(report.transferred().bytes < all / 2, "{report:?}");
    }
}

#[test]
fn a_damaged_seed_costs_a_download() {
    let content = noise(3, 1 << 20);
    for creating in ways() {
        let place = Place::new();
        let mut options = options();
        options.keeps_archive = true;
        let mut seed = archive_of(&content, &creating, false);
        let begin = seed.len() / 2;
        seed[begin..]
            .iter_mut()
            .step_by(50_000)
            .for_each(|byte| *byte ^= 1);
        options.seeds = vec![place.with("old.czip", &seed)];
        let archive = archive_of(&content, &creating, false);
        let report = place.get(&serve(archive.clone()), &options);
        let report = report.expect("an archive");
        place.assert_is(&archive);
        assert!(report.stored.from_server.frames > 3, "{report:?}");
        assert!(report.stored.from_seeds.bytes > 1 << 19, "{report:?}");
    }
}

#[test]
fn a_row_of_the_table_that_an_older_archive_has_is_not_fetched() {
    // So long that the table is not all in what is asked for first.
    let content = noise(7, 12 << 20);
    let ways = ways().into_iter();
    for creating in ways.filter(|way| way.profile == Profile::Shared) {
        let archive = archive_of(&content, &creating, false);
        let mut fetched = [true, false].map(|has_seed| {
            let place = Place::new();
            let mut options = options();
            options.keeps_archive = true;
            if has_seed {
                let seed = archive_of(&content, &creating, false);
                options.seeds = vec![place.with("old.czip", &seed)];
            }
            let report = place.get(&serve(archive.clone()), &options);
            place.assert_is(&archive);
            report.expect("an archive").table.bytes
        });
        // Of an encrypted one lengths, references and keys are another's.
        if creating.encryption.is_some() {
            fetched[1] = fetched[1] * 9 / 10;
        } else {
            fetched[1] = 3_000;
        }
        let [with, without] = fetched;
        assert!(with < without, "{with} {without} {creating:?}");
    }
}

#[test]
fn keys_that_were_changed_on_the_way_are_noticed() {
    let reader = Reader::new();
    for profile in [Profile::Shared, Profile::Small] {
        let archive = archive_of(&versions()[0], &reader.encrypted(profile, false), false);
        let header = Archive::open(archive.clone(), CacheBytes::default()).expect("an archive");
        let keys = header.header().keys.offset as usize;
        let mut changed = archive.clone();
        changed[keys + 20] ^= 1;
        let place = Place::new();
        let mut options = options();
        options.keeps_archive = true;
        let error = place.get(&serve(changed), &options);
        let error = error.expect_err("nobody could open it");
        assert!(error.to_string().contains("keys"), "{error}");
        assert!(!place.output().exists());
        // All else that came is of use.
        let report = place.get(&serve(archive.clone()), &options);
        let fetched = report.expect("an archive").transferred().bytes;
        place.assert_is(&archive);
        assert!(fetched < FETCHED_MAX, "{fetched}");
    }
}
