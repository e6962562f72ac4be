//! What lies in the target, what goes wrong, and what is left of it.

use std::{
    fs::{self, File},
    io::Read,
    ops::ControlFlow,
    os::unix::fs::symlink,
    path::PathBuf,
    thread,
};

use refrain_czip::{
    archive::{Archive, CacheBytes},
    extract::{ExtractError, extract},
};

use super::{archive_of, extracted, go_on, options, seen};

/// A folder with a source, its archive, and a target with an older version of some of it.
struct World {
    top: tempfile::TempDir,
    archive: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let top = tempfile::tempdir().expect("a folder");
        let source = top.path().join("s");
        for folder in ["a", "b"] {
            fs::create_dir_all(source.join(folder)).expect("made");
            for file in ["x", "y"] {
                let content = format!("{folder}{file} ").repeat(100_000);
                fs::write(source.join(folder).join(file), content).expect("written");
            }
        }
        symlink("a/x", source.join("link")).expect("made");
        fs::hard_link(source.join("a/x"), source.join("x")).expect("made");
        let archive = archive_of(&source);
        let world = Self { top, archive };
        fs::create_dir_all(world.target().join("s/a")).expect("made");
        fs::create_dir_all(world.outside()).expect("made");
        fs::write(world.target().join("s/a/x"), "old").expect("written");
        world
    }

    fn target(&self) -> PathBuf {
        self.top.path().join("target")
    }

    fn outside(&self) -> PathBuf {
        self.top.path().join("outside")
    }

    /// What an extraction that fails must leave as it was: all but folders' times.
    fn state(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let all = seen(&self.target())
            .into_iter()
            .chain(seen(&self.outside()));
        all.map(|seen| (seen.path, seen.content)).collect()
    }
}

#[test]
fn whoever_has_a_file_open_keeps_what_was_in_it() {
    let world = World::new();
    let mut old = File::open(world.target().join("s/a/x")).expect("there");
    extracted(&world.archive, &world.target(), &[], &mut go_on).expect("extracted");
    let mut content = String::new();
    old.read_to_string(&mut content).expect("readable");
    assert_eq!(content, "old");
    let new = fs::read_to_string(world.target().join("s/a/x")).expect("there");
    assert!(new.starts_with("ax ax "));
}

#[test]
fn whenever_it_is_stopped_all_is_as_it_was() {
    let world = World::new();
    let before = world.state();
    let mut steps = 0;
    extracted(
        &world.archive,
        &world.top.path().join("other"),
        &[],
        &mut |_| {
            steps += 1;
            ControlFlow::Continue(())
        },
    )
    .expect("extracted");
    assert!(steps > 8, "{steps}");
    for stop in 0..steps {
        let mut step = 0;
        let stopped = extracted(&world.archive, &world.target(), &[], &mut |_| {
            step += 1;
            match step > stop {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        assert!(matches!(stopped, Err(ExtractError::Interrupted)), "{stop}");
        assert_eq!(world.state(), before, "{stop}");
    }
    fs::remove_dir_all(world.target()).expect("ours");
    let stopped = extracted(&world.archive, &world.target(), &[], &mut |_| {
        ControlFlow::Break(())
    });
    assert!(
        stopped.is_err() && !world.target().exists(),
        "the target was not there"
    );
}

#[test]
fn a_damaged_archive_changes_nothing() {
    let mut world = World::new();
    // So much that some of it is written before the damage is met.
    let mut noise = vec![0; 5 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    let source = world.top.path().join("s");
    fs::write(source.join("noise"), &noise).expect("written");
    world.archive = archive_of(&source);
    let before = world.state();
    let mut refused = 0;
    for at in (256..world.archive.len()).step_by(world.archive.len() / 100) {
        let mut damaged = world.archive.clone();
        damaged[at] ^= 0x10;
        let Ok(archive) = Archive::open(damaged, CacheBytes::default()) else {
            continue;
        };
        let target = world.target();
        match extract(&archive, &target, &options(&[]), &mut go_on) {
            Ok(_) => {
                // A name, which is not needed to extract.
                let there = fs::read(target.join("s/noise")).expect("there");
                assert!(there == noise, "{at}");
                fs::remove_dir_all(&target).expect("ours");
                fs::create_dir_all(target.join("s/a")).expect("made");
                fs::write(target.join("s/a/x"), "old").expect("written");
            }
            Err(_) => {
                refused += 1;
                assert_eq!(world.state(), before, "{at}");
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

/// Extracts where `path` of the target leads to the outside.
fn through_a_link(world: &World, path: &str) -> ExtractError {
    let path = world.target().join(path);
    let _ = fs::remove_dir_all(&path);
    symlink(world.outside(), &path).expect("made");
    let before = world.state();
    let error = extracted(&world.archive, &world.target(), &[], &mut go_on).expect_err("a link");
    assert_eq!(world.state(), before);
    error
}

#[test]
fn links_to_folders_in_the_target_are_not_followed() {
    for path in ["s/b", "s"] {
        let error = through_a_link(&World::new(), path);
        let text = error.to_string();
        assert!(
            matches!(error, ExtractError::NoFolder { .. }),
            "{path}: {text}"
        );
        assert!(text.contains("in the way"), "{text}");
    }
}

#[test]
fn a_folder_that_becomes_a_link_meanwhile_is_not_followed() {
    let world = World::new();
    let swapped = world.target().join("s/b");
    let mut is_done = false;
    let result = extracted(&world.archive, &world.target(), &[], &mut |now| {
        // All folders are there, and nothing is written yet.
        if now.is_syncing && !is_done {
            is_done = true;
            fs::rename(&swapped, world.top.path().join("away")).expect("ours");
            symlink(world.outside(), &swapped).expect("made");
            fs::write(world.outside().join("x"), "good").expect("written");
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(ExtractError::NoFolder { .. })));
    let outside: Vec<_> = seen(&world.outside())
        .into_iter()
        .map(|it| it.content)
        .collect();
    assert_eq!(outside, [Some(b"good".to_vec())]);
}

#[test]
fn a_file_through_a_link_replaces_the_link() {
    let world = World::new();
    let there = world.outside().join("there");
    fs::write(&there, "good").expect("written");
    fs::remove_file(world.target().join("s/a/x")).expect("ours");
    symlink(&there, world.target().join("s/a/x")).expect("made");
    extracted(&world.archive, &world.target(), &[], &mut go_on).expect("extracted");
    assert_eq!(fs::read_to_string(there).expect("there"), "good");
    let new = fs::symlink_metadata(world.target().join("s/a/x")).expect("there");
    assert!(new.is_file());
}

#[test]
fn a_folder_in_the_place_of_a_file_stays_and_nothing_is_extracted() {
    let world = World::new();
    fs::create_dir_all(world.target().join("s/link/full")).expect("made");
    let before = world.state();
    let result = extracted(&world.archive, &world.target(), &[], &mut go_on);
    assert!(matches!(result, Err(ExtractError::Folder { .. })));
    assert_eq!(world.state(), before);
}

#[test]
fn a_path_that_is_not_there_is_told_before_anything_is_written() {
    let world = World::new();
    let before = world.state();
    for path in ["s/c", "", "/", "s/a/xx", "../s", "s/x/y"] {
        let result = extracted(&world.archive, &world.target(), &["s/b", path], &mut go_on);
        let error = result.expect_err(path);
        assert!(
            matches!(error, ExtractError::Missing { .. }),
            "{path}: {error}"
        );
        assert_eq!(world.state(), before);
    }
}

#[test]
fn two_that_make_the_same_folders_at_once_do_not_disturb_each_other() {
    let top = tempfile::tempdir().expect("a folder");
    let source = top.path().join("s");
    for number in 0..200 {
        let folder = source.join(format!("{number}/deeper"));
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("file"), format!("{number}")).expect("written");
    }
    let archive = archive_of(&source);
    let target = top.path().join("target");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| extracted(&archive, &target, &[], &mut go_on).expect("extracted"));
        }
    });
    assert_eq!(seen(&target.join("s")), seen(&source));
}
