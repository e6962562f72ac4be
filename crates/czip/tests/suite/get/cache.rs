//! The cache that gets share.

use std::{fs, path::PathBuf, thread};

use refrain_czip::get::{CacheOptions, GetOptions};
use refrain_czip_format::header::Profile;

use crate::get::{Place, archive_of, creating, noise, options, release, serve};

fn with_cache(place: &Place, bytes_max: u64) -> (GetOptions, PathBuf) {
    let folder = place.0.path().join("cache");
    let mut options = options();
    options.cache = Some(CacheOptions {
        folder: folder.clone(),
        bytes_max,
    });
    (options, folder)
}

fn bytes_in(folder: &PathBuf) -> u64 {
    let files = fs::read_dir(folder).expect("a folder");
    files
        .map(|file| file.and_then(|file| file.metadata()).expect("a file").len())
        .sum()
}

#[test]
fn what_was_fetched_once_is_not_fetched_again_in_this_archive_or_another() {
    for profile in [Profile::Shared, Profile::Small] {
        let place = Place::new();
        let (options, _) = with_cache(&place, 1 << 30);
        let old = archive_of(&release(1), &creating(profile), false);
        let first = place.get(&serve(old.clone()), &options).expect("a file");
        let again = place.get(&serve(old), &options).expect("a file");
        place.assert_is(&release(1));
        assert_eq!(again.from_server.chunks, 0);
        assert_eq!(again.from_cache.chunks, first.from_server.chunks);
        let new = archive_of(&release(2), &creating(profile), false);
        let next = place.get(&serve(new), &options).expect("a file");
        place.assert_is(&release(2));
        assert!(next.from_cache.chunks > next.from_server.chunks, "{next:?}");
    }
}

#[test]
fn rows_of_the_table_come_from_the_cache_too() {
    let content = noise(7, 12 << 20);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    let place = Place::new();
    let (options, _) = with_cache(&place, 1 << 30);
    let first = place
        .get(&serve(archive.clone()), &options)
        .expect("a file");
    let again = place.get(&serve(archive), &options).expect("a file");
    assert!(first.table.bytes > 20_000, "{first:?}");
    assert!(again.table.bytes < 2_000, "{again:?}");
}

#[test]
fn lengths_that_the_cache_has_wrong_make_no_row_of_the_table() {
    let content = noise(7, 12 << 20);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    let place = Place::new();
    let (options, folder) = with_cache(&place, 1 << 30);
    place
        .get(&serve(archive.clone()), &options)
        .expect("a file");
    for file in fs::read_dir(&folder).expect("a folder") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|it| it == "index") {
            let mut bytes = fs::read(&path).expect("a file");
            // The lengths in some of the entries, which have 32 bytes.
            let lengths = bytes.iter_mut().skip(20).step_by(32 * 50);
            lengths.for_each(|byte| *byte ^= 1);
            fs::write(&path, bytes).expect("it can be written");
        }
    }
    let report = place.get(&serve(archive), &options).expect("a file");
    place.assert_is(&content);
    assert!(
        report.from_cache.chunks > report.from_server.chunks,
        "{report:?}"
    );
}

#[test]
fn damage_is_noticed_and_costs_a_download() {
    for damage in 0..5 {
        let place = Place::new();
        let (options, folder) = with_cache(&place, 1 << 30);
        let archive = archive_of(&release(1), &creating(Profile::Shared), false);
        place
            .get(&serve(archive.clone()), &options)
            .expect("a file");
        for file in fs::read_dir(&folder).expect("a folder") {
            let path = file.expect("a file").path();
            let is_index = path
                .extension()
                .is_some_and(|extension| extension == "index");
            let mut bytes = fs::read(&path).expect("a file");
            match damage {
                0 if !is_index => bytes.iter_mut().step_by(20_000).for_each(|byte| *byte ^= 1),
                1 if is_index => bytes.iter_mut().step_by(100).for_each(|byte| *byte ^= 1),
                2 if !is_index => bytes.truncate(bytes.len() / 2),
                3 if is_index => bytes.truncate(bytes.len() / 2 + 3),
                4 if !is_index => {
                    fs::remove_file(&path).expect("it is there");
                    continue;
                }
                _ => continue,
            }
            fs::write(&path, bytes).expect("it can be written");
        }
        let report = place
            .get(&serve(archive.clone()), &options)
            .expect("a file");
        place.assert_is(&release(1));
        assert!(report.from_server.chunks > 0, "{damage}");
        // What is not there at all, or not to be found, is not told from what never was.
        let is_told = damage < 3;
        assert_eq!(report.cache_damaged > 0, is_told, "{damage}: {report:?}");
        // And what was damaged has been replaced.
        let again = place.get(&serve(archive), &options).expect("a file");
        assert_eq!(again.from_server.chunks, 0, "{damage}");
        assert_eq!(again.cache_damaged, 0, "{damage}");
    }
}

#[test]
fn it_stays_within_its_bound_and_forgets_the_oldest() {
    let place = Place::new();
    let bytes_max = 3 << 20;
    let (options, folder) = with_cache(&place, bytes_max);
    for number in 0..6 {
        let content = noise(number, 1 << 20);
        let archive = archive_of(&content, &creating(Profile::Shared), false);
        place
            .get(&serve(archive.clone()), &options)
            .expect("a file");
        assert!(bytes_in(&folder) <= bytes_max, "{}", bytes_in(&folder));
        let again = place.get(&serve(archive), &options).expect("a file");
        // The few that all of them have went with the oldest.
        assert!(again.from_server.chunks <= 3, "{again:?}");
    }
    let first = archive_of(&noise(0, 1 << 20), &creating(Profile::Shared), false);
    let report = place.get(&serve(first), &options).expect("a file");
    assert!(report.from_server.chunks > 200, "{report:?}");
}

#[test]
fn many_gets_share_it_at_once() {
    let cache = Place::new();
    let (options, _) = with_cache(&cache, 1 << 30);
    thread::scope(|scope| {
        for number in 0..4 {
            let options = &options;
            scope.spawn(move || {
                for round in 0..3 {
                    let place = Place::new();
                    let content = release((number + round) % 4);
                    let archive = archive_of(&content, &creating(Profile::Shared), false);
                    place.get(&serve(archive), options).expect("a file");
                    place.assert_is(&content);
                }
            });
        }
    });
    let place = Place::new();
    let archive = archive_of(&release(3), &creating(Profile::Shared), false);
    let report = place.get(&serve(archive), &options).expect("a file");
    assert_eq!(report.from_server.chunks, 0);
}

#[test]
fn a_cache_that_cannot_be_written_is_told_and_done_without() {
    let place = Place::new();
    let (options, folder) = with_cache(&place, 1 << 30);
    fs::create_dir(&folder).expect("a new folder");
    // A folder where the lock should be.
    fs::create_dir(folder.join("lock")).expect("a new folder");
    let archive = archive_of(&release(1), &creating(Profile::Shared), false);
    let report = place.get(&serve(archive), &options).expect("a file");
    place.assert_is(&release(1));
    assert!(report.cache_failure.is_some());
}
