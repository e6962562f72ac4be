//! Chunks that are here already: in files, folders and archives.

use std::{fs, ops::ControlFlow};

use refrain_czip::get::{Phase, get};
use refrain_czip_format::{
    chunker::{Chunking, ChunkingMethod},
    header::Profile,
};

use crate::get::{Place, archive_of, creating, noise, options, release, serve};

#[test]
fn a_seed_that_is_the_file_leaves_next_to_nothing_to_fetch() {
    let methods = [
        ChunkingMethod::Fixed,
        ChunkingMethod::Modp,
        ChunkingMethod::Pack,
    ];
    for (method, is_woven) in methods
        .into_iter()
        .flat_map(|method| [(method, true), (method, false)])
    {
        let mut creating = creating(Profile::Shared);
        creating.chunking = Chunking::new(method, 4 << 10).expect("a power of two");
        creating.is_woven = is_woven;
        let place = Place::new();
        let mut options = options();
        options.seeds = vec![place.with("seed", &release(4))];
        let archive = archive_of(&release(4), &creating, false);
        let report = place.get(&serve(archive), &options).expect("a file");
        place.assert_is(&release(4));
        // The catalog alone.
        assert_eq!(report.from_server.chunks, 1, "{method} {is_woven}");
    }
}

#[test]
fn what_the_output_is_by_now_is_a_seed() {
    for profile in [Profile::Shared, Profile::Small] {
        let place = Place::new();
        fs::write(place.output(), release(4)).expect("written");
        let archive = archive_of(&release(4), &creating(profile), false);
        let report = place.get(&serve(archive), &options()).expect("a file");
        place.assert_is(&release(4));
        assert_eq!(report.from_server.chunks, 1, "{report:?}");
    }
}

#[test]
fn an_archive_that_is_damaged_is_mended_by_what_is_damaged_alone() {
    let place = Place::new();
    let archive = archive_of(&release(4), &creating(Profile::Small), false);
    let mut damaged = archive.clone();
    *damaged.last_mut().expect("a frame") ^= 1;
    fs::write(place.output(), &damaged).expect("written");
    let mut options = options();
    options.keeps_archive = true;
    let report = place
        .get(&serve(archive.clone()), &options)
        .expect("a file");
    place.assert_is(&archive);
    assert_eq!(report.frames.requests, 1, "{report:?}");
    assert!(report.frames.bytes < 10_000, "{report:?}");
    // What is no archive has none of its frames, which nobody who did not name it has to be told.
    fs::write(place.output(), release(4)).expect("written");
    let report = place
        .get(&serve(archive.clone()), &options)
        .expect("a file");
    place.assert_is(&archive);
    assert!(report.unused_seeds.is_empty(), "{report:?}");
}

#[test]
fn an_archive_is_as_good_a_seed_as_what_is_in_it() {
    for seed_profile in [Profile::Shared, Profile::Small] {
        let place = Place::new();
        let mut options = options();
        let seed = archive_of(&release(4), &creating(seed_profile), false);
        options.seeds = vec![place.with("seed.czip", &seed)];
        let archive = archive_of(&release(4), &creating(Profile::Shared), false);
        let report = place.get(&serve(archive), &options).expect("a file");
        place.assert_is(&release(4));
        assert_eq!(report.from_server.chunks, 0);
    }
}

#[test]
fn a_folder_of_releases_gives_what_each_of_them_has() {
    let place = Place::new();
    let folder = place.0.path().join("seeds");
    fs::create_dir(&folder).expect("a new folder");
    for number in 0..6 {
        // Large enough to be files of their own.
        let tar = [release(number), noise(99, 1 << 20)].concat();
        fs::write(folder.join(format!("{number}.tar")), tar).expect("a new file");
    }
    fs::write(folder.join("readme"), "small").expect("a new file");
    let mut options = options();
    options.seeds = vec![folder];
    let content = [release(5), noise(99, 1 << 20)].concat();
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    let report = place.get(&serve(archive), &options).expect("a file");
    place.assert_is(&content);
    assert_eq!(report.from_server.chunks, 1, "{report:?}");
    assert_eq!(report.table.requests, 0, "{report:?}");
}

#[test]
fn a_seed_that_cannot_be_read_is_told_and_done_without() {
    let place = Place::new();
    let mut options = options();
    let there = place.with("seed", &release(4));
    options.seeds = vec![place.0.path().join("missing"), there];
    let archive = archive_of(&release(4), &creating(Profile::Shared), false);
    let report = place.get(&serve(archive), &options).expect("a file");
    place.assert_is(&release(4));
    assert_eq!(report.unread_seeds.len(), 1);
    assert_eq!(report.from_server.chunks, 1);
}

#[test]
fn a_seed_that_changes_while_it_is_read_gives_no_wrong_byte() {
    let (place, content) = (Place::new(), release(4));
    let seed = place.with("seed", &content);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    for change in 0..3 {
        fs::write(&seed, &content).expect("it can be written");
        let mut options = options();
        options.seeds = vec![seed.clone()];
        let server = serve(archive.clone());
        let mut is_changed = false;
        let report = get(&server.url(), &place.output(), &options, &mut |now| {
            // By now its chunks have names, and none of them was taken.
            if now.phase == Phase::Chunks && !is_changed {
                is_changed = true;
                let mut changed = content.clone();
                match change {
                    0 => changed[100_000..200_000].fill(7),
                    1 => changed.truncate(300_000),
                    _ => drop(changed.drain(50_000..51_000)),
                }
                fs::write(&seed, changed).expect("it can be written");
            }
            ControlFlow::Continue(())
        });
        let report = report.expect("a file");
        place.assert_is(&content);
        assert!(is_changed && report.from_server.chunks > 10, "{report:?}");
        assert!(report.from_seeds.chunks > 5, "{report:?}");
    }
}
