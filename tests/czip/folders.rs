//! Folders with all that folders have in them.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    process::{Command, Output},
};

use super::{World, names, noise};
use crate::common::command::program_in;

#[test]
fn odd_names_links_and_holes_come_back() {
    let world = World::new();
    world.write("d/plain", &noise(1, 100_000));
    world.write("d/empty", b"");
    world.write("d/ leading and trailing ", b"spaces");
    world.write("d/new\nline", b"newline");
    world.write("d/-o", b"an option");
    world.write("d/deep/er/and/deeper", b"deep");
    fs::create_dir(world.path("d/empty folder")).expect("made");
    let odd = OsStr::from_bytes(b"no \xff\xfe utf-8");
    fs::write(world.path("d").join(odd), "odd").expect("written");
    fs::hard_link(world.path("d/plain"), world.path("d/same")).expect("made");
    symlink("plain", world.path("d/link")).expect("made");
    symlink("/nowhere/at all", world.path("d/dangling")).expect("made");
    let sparse = File::create(world.path("d/sparse")).expect("made");
    sparse.write_all_at(b"end", 8 << 20).expect("written");
    fs::set_permissions(world.path("d/plain"), Permissions::from_mode(0o640)).expect("ours");

    world.run(&["create", "d", "-o", "d.czip"]);
    world.run(&["extract", "d.czip", "-o", "out"]);
    assert_eq!(names(&world.path("d")), names(&world.path("out/d")));
    let same = Command::new("diff")
        .args(["-r", "--no-dereference", "d", "out/d"])
        .current_dir(world.0.path())
        .output()
        .expect("diff is there");
    let difference = String::from_utf8_lossy(&same.stdout);
    assert!(same.status.success(), "{difference}");
    let there = |name: &str| fs::symlink_metadata(world.path(name)).expect("there");
    assert_eq!(there("out/d/plain").ino(), there("out/d/same").ino());
    assert_eq!(there("out/d/plain").permissions().mode() & 0o7777, 0o640);
    assert_eq!(
        there("out/d/plain").mtime_nsec(),
        there("d/plain").mtime_nsec()
    );
    assert_eq!(
        there("out/d/deep").mtime_nsec(),
        there("d/deep").mtime_nsec()
    );
    assert!(
        there("out/d/sparse").blocks() * 512 < 1 << 20,
        "a hole stays one"
    );

    let listed = world.run(&["list", "d.czip"]);
    let listed = String::from_utf8(listed).expect("text");
    assert!(listed.contains("d/new\\nline"), "{listed}");
    assert!(listed.contains("d/same link to d/plain"), "{listed}");
    let entries = world.json(&["list", "d.czip"]);
    let entries = entries["entries"].as_array().expect("entries");
    let odd = entries.iter().find(|entry| entry["path_hex"].is_string());
    assert_eq!(odd.expect("one")["path_hex"], "642f6e6f20fffe207574662d38");
}

#[test]
fn what_is_asked_for_replaces_what_is_there_and_nothing_else() {
    let world = World::new();
    world.write("d/one", b"one");
    world.write("d/two", b"two");
    world.run(&["create", "d", "-o", "d.czip"]);
    world.write("d/one", b"changed");
    world.write("d/two", b"changed");
    world.write("d/three", b"mine");
    world.run(&["extract", "d.czip", "d/one"]);
    let content = |name: &str| fs::read_to_string(world.path(name)).expect("there");
    assert_eq!(content("d/one"), "one");
    assert_eq!(content("d/two"), "changed");
    assert_eq!(content("d/three"), "mine");
    let (_, error) = world.fails(&["extract", "d.czip", "d/on"]);
    assert!(error.contains("\"d/on\" not found"), "{error}");
    // As a shell completes them.
    let said = world.run(&["extract", "d.czip", "./d/two"]);
    assert!(String::from_utf8_lossy(&said).starts_with("extracted 1 file, "));
    assert_eq!(content("d/two"), "two");
    assert_eq!(world.run(&["cat", "d.czip", "././d/two"]), b"two");
    world.write("y", b"mine");
    let (_, error) = world.fails(&["extract", "d.czip", "d/two", "-o", "y"]);
    assert!(error.contains("\"y\" is not a directory"), "{error}");
    assert_eq!(content("y"), "mine");
}

#[test]
fn what_is_damaged_can_be_left_out() {
    let world = World::new();
    let names = ["d/one", "d/three", "d/two"];
    for (seed, name) in names.iter().enumerate() {
        world.write(name, &noise(seed as u64, 500_000));
    }
    world.run(&["create", "d", "-o", "d.czip"]);
    let mut damaged = fs::read(world.path("d.czip")).expect("made");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    world.write("damaged.czip", &damaged);
    let (code, error) = world.fails(&["extract", "damaged.czip", "-o", "out"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("(--skip-damaged extracts the"), "{error}");
    assert!(!world.path("out").exists());
    let made = world.run_with(
        &[
            "extract",
            "damaged.czip",
            "-o",
            "out",
            "--skip-damaged",
            "--json",
        ],
        b"",
    );
    let told = String::from_utf8(made.stderr).expect("text");
    let report: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    assert_eq!(made.status.code(), Some(1));
    let named = report["damaged"].as_array().expect("files");
    assert_eq!(report["damaged_files"], named.len());
    assert!((1..=2).contains(&named.len()), "{report}");
    for name in names {
        let content = fs::read(world.path(&format!("out/{name}")));
        if named.iter().any(|file| file["path"] == name) {
            assert!(content.is_err(), "{name}");
            assert!(
                told.contains(&format!("skipped \"{name}\": frame ")),
                "{told}"
            );
        } else {
            let expected = fs::read(world.path(name)).expect("there");
            assert!(content.expect("sound") == expected, "{name}");
        }
    }
    let skipped = format!("; {} file", named.len());
    assert!(
        told.contains("all intact files") && told.contains(&skipped),
        "{told}"
    );
}

#[test]
fn where_no_file_is_intact_none_is_said_to_be_extracted() {
    let world = World::new();
    world.write("d/one", &noise(1, 500_000));
    world.run(&["create", "d", "-o", "d.czip"]);
    let mut damaged = fs::read(world.path("d.czip")).expect("made");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    world.write("d.czip", &damaged);
    let (code, error) = world.fails(&["extract", "d.czip", "-o", "out", "--skip-damaged"]);
    assert_eq!(code, Some(1));
    let last = error.lines().last().unwrap_or_default();
    for part in ["error: ", "no file is intact", "1 file skipped"] {
        assert!(last.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn one_file_of_a_folder_goes_to_standard_output() {
    let world = World::new();
    world.write("d/one", b"one");
    world.write("d/two", b"two");
    world.run(&["create", "d", "-o", "d.czip"]);
    assert_eq!(
        world.run(&["extract", "d.czip", "-o", "-", "d/two"]),
        b"two"
    );
    for (paths, words) in [
        (&[][..], "3 files, directories"),
        (&["d/one", "d/two"], "one file"),
    ] {
        let (_, error) = world.fails(&[&["extract", "d.czip", "-o", "-"], paths].concat());
        assert!(error.contains(words), "{error}");
    }
    let (_, error) = world.fails(&["extract", "d.czip", "-o", "-", "d/one", "--skip-damaged"]);
    assert!(error.contains("takes one file"), "{error}");
}

#[test]
fn what_is_excluded_is_not_in_the_archive_and_all_else_is() {
    let world = World::new();
    for name in [
        "a.o",
        "a.c",
        "target/x",
        "sub/target/y",
        "sub/b.o",
        "sub/cache/z",
        "cache/z",
    ] {
        world.write(&format!("d/{name}"), b"content");
    }
    let paths = |options: &[&str]| {
        world.run(&[&["create", "d", "-o", "d.czip"], options].concat());
        let entries = world.json(&["list", "d.czip"]);
        let entries = entries["entries"].as_array().expect("entries").clone();
        let paths = entries
            .iter()
            .map(|entry| entry["path"].as_str().expect("text").to_owned());
        paths.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        paths(&[
            "--exclude",
            "*.o",
            "--exclude=target/",
            "--exclude",
            "/d/cache"
        ]),
        "d d/a.c d/sub d/sub/cache d/sub/cache/z"
    );
    assert_eq!(
        paths(&["--exclude", "sub/*", "--exclude", "[ct]*"]),
        "d d/a.c d/a.o d/sub"
    );
    let (code, error) = world.fails(&["create", "d", "-o", "x.czip", "--exclude", "[a"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("--exclude") && error.contains("invalid pattern"),
        "{error}"
    );
    assert!(!world.path("x.czip").exists());
}

/// Runs `refrain czip` as a user without rights, if the tests may do so: root ignores permissions.
fn run_as_nobody(world: &World, arguments: &[&str]) -> Option<Output> {
    if !rustix::process::geteuid().is_root() {
        return Some(world.run_with(arguments, b""));
    }
    // Under /root nobody but root finds the program.
    let copy = world.path("program");
    if !copy.exists() {
        program_in(world.0.path());
        fs::set_permissions(world.0.path(), Permissions::from_mode(0o777)).expect("ours");
    }
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(copy)
        .arg("czip")
        .args(arguments)
        .current_dir(world.0.path())
        .output();
    let output = output
        .ok()
        .filter(|output| output.status.code() != Some(127));
    if output.is_none() {
        eprintln!("skipped: setpriv is not here, and root ignores permissions");
    }
    output
}

#[test]
fn folders_without_permissions_are_extracted_over_and_keep_their_modes() {
    let world = World::new();
    let mode_of = |name: &str| fs::metadata(world.path(name)).expect("there").mode() & 0o7777;
    let set_mode = |name: &str, mode| {
        fs::set_permissions(world.path(name), Permissions::from_mode(mode)).expect("ours");
    };
    for name in ["file", "pkg/file", "pkg/deep/file", "other/file"] {
        world.write(&format!("mod/{name}"), name.as_bytes());
    }
    for name in ["mod/pkg/deep", "mod/pkg", "mod/other", "mod"] {
        set_mode(name, 0o555);
    }
    let archive = |name: &str| world.run(&["create", "mod", "-o", name]);
    archive("mod.czip");
    for mode in [0o555, 0o311, 0o000] {
        // Those of the archive, and those of folders that are not in it or not asked for.
        let Some(output) = run_as_nobody(&world, &["extract", "mod.czip", "-o", "out"]) else {
            return;
        };
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{mode:o}: {error}");
        for name in [
            "out/mod/pkg/deep",
            "out/mod/pkg",
            "out/mod/other",
            "out/mod",
        ] {
            assert_eq!(mode_of(name), 0o555, "{name}");
            set_mode(name, mode);
        }
        set_mode("out", mode);
    }
    let extract = |arguments: &[&str]| {
        run_as_nobody(
            &world,
            &[&["extract", "mod.czip", "-o", "out"], arguments].concat(),
        )
    };
    // Of what is not asked for the modes stay, and so does that of the target.
    let output = extract(&["mod/pkg/deep/file"]).expect("it ran before");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    for name in [
        "out",
        "out/mod",
        "out/mod/pkg",
        "out/mod/pkg/deep",
        "out/mod/other",
    ] {
        assert_eq!(mode_of(name), 0, "{name}");
    }
    // After a failure, too: a folder is where a file is to be.
    set_mode("out", 0o500);
    set_mode("out/mod", 0o300);
    set_mode("out/mod/pkg", 0o500);
    fs::remove_file(world.path("out/mod/pkg/file")).expect("there");
    fs::create_dir(world.path("out/mod/pkg/file")).expect("made");
    let before = names(&world.path("out/mod/pkg"));
    let output = extract(&[]).expect("it ran before");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("is in the way"), "{error}");
    let modes = ["out", "out/mod", "out/mod/pkg", "out/mod/pkg/deep"].map(mode_of);
    assert_eq!(modes, [0o500, 0o300, 0o500, 0]);
    assert_eq!(names(&world.path("out/mod/pkg")), before);
    assert_eq!(names(&world.path("out")), ["mod"]);
}

#[test]
fn hard_links_that_cannot_be_made_are_files_with_the_same_content() {
    let world = World::new();
    world.write("d/a/first", &noise(1, 300_000));
    for name in ["d/a/second", "d/b/third", "d/b/fourth", "d/c/fifth"] {
        let path = world.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::hard_link(world.path("d/a/first"), path).expect("made");
    }
    let mode = Permissions::from_mode(0o640);
    fs::set_permissions(world.path("d/a/first"), mode).expect("ours");
    world.run(&["create", "d", "-o", "d.czip"]);
    let there = |name: &str| fs::metadata(world.path("out").join(name)).expect("there");
    let whole = world.json(&["extract", "d.czip", "-o", "out"]);
    assert_eq!(
        (&whole["links"], &whole["copied_links"]),
        (&4.into(), &0.into())
    );
    assert_eq!(there("d/a/first").nlink(), 5);

    let Some(_disk) = super::deaths::SmallDisk::mount(world.path("out/d/b")) else {
        return;
    };
    let output = world.run_with(&["extract", "d.czip", "-o", "out", "--json"], b"");
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{error}");
    assert!(error.contains("refused 1 hard link:"), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["links"], &report["copied_links"]),
        (&4.into(), &1.into())
    );
    for name in ["d/a/second", "d/b/third", "d/b/fourth", "d/c/fifth"] {
        let content = fs::read(world.path("out").join(name)).expect("there");
        assert!(content == noise(1, 300_000), "{name}");
        assert_eq!(there(name).permissions().mode() & 0o7777, 0o640);
        assert_eq!(there(name).mtime_nsec(), there("d/a/first").mtime_nsec());
    }
    // Where links can be made, they are: on the other file system to the one copy.
    assert_eq!(there("d/a/first").nlink(), 3);
    assert_eq!(there("d/b/third").nlink(), 2);
    assert_eq!(names(&world.path("out/d/b")), ["fourth", "third"]);
}
