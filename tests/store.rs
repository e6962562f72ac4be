//! `refrain store`, as its users run it.

mod common;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use common::command::{command, keygen, refrain, refrain_fails};
use refrain_codec::chunk::hash::ChunkHasher;
use refrain_store::{ChunkSource, DiskStore, Realm, StoreConfig};
use serde_json::Value;

fn content(seed: u32, bytes: u32) -> Vec<u8> {
    let numbers =
        (0..bytes / 4).map(|n| (n ^ seed << 20).wrapping_mul(0x9e37_79b1).rotate_left(13));
    numbers
        .flat_map(|n| n.wrapping_mul(n | 1).to_le_bytes())
        .collect()
}

/// Runs `refrain store` with `--json`, and reads what it prints.
#[track_caller]
fn json(store: &Path, arguments: &[&str]) -> Value {
    let store = store.display().to_string();
    let arguments = [&["store"], arguments, &["--store", &store, "--json"]].concat();
    let output = refrain(&arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    assert!(error.is_empty(), "no progress but on a terminal: {error}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        fs::create_dir_all(world.files().join("below")).expect("made");
        fs::write(world.files().join("one"), content(1, 500_000)).expect("written");
        fs::write(world.files().join("below/two"), content(2, 200_000)).expect("written");
        world
    }

    fn files(&self) -> std::path::PathBuf {
        self.folder.path().join("files")
    }

    fn store(&self) -> std::path::PathBuf {
        self.folder.path().join("store")
    }

    #[track_caller]
    fn add(&self) -> Value {
        let files = self.files().display().to_string();
        json(&self.store(), &["add", &files, "--realm", "mirror"])
    }
}

#[test]
fn files_are_added_shown_and_verified() {
    let world = World::new();
    let added = world.add();
    assert_eq!(
        (&added["added_files"], &added["added_bytes"]),
        (&2.into(), &700_000.into())
    );
    assert_eq!(world.add()["unchanged_files"], 2);

    let stat = json(&world.store(), &["stat"]);
    assert_eq!(
        (&stat["files"], &stat["chunks"]),
        (&2.into(), &added["added_chunks"])
    );
    assert_eq!(stat["realms"][0]["name"], "mirror");
    assert_eq!(stat["disk_bytes_max"], 100_000_000_000_u64);
    let verified = json(&world.store(), &["verify"]);
    assert_eq!(
        (&verified["bytes"], &verified["damaged_chunks"]),
        (&700_000.into(), &0.into())
    );

    let store = world.store().display().to_string();
    for (subcommand, words) in [
        ("stat", ["of 100 GB on disk, ", "mirror"]),
        ("verify", ["OK: ", " chunks, 700 kB\n"]),
    ] {
        // The store's name may come from the environment.
        let mut refrain = command(&["store", subcommand]);
        let output = refrain
            .env("REFRAIN_STORE", &store)
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    let details = refrain(&["store", "stat", "--store", &store, "--verbose"]);
    let text = String::from_utf8_lossy(&details.stdout);
    for part in ["memory when open", "chunk order", "flow openings"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // All chunks are in the added files: the index is no share of nothing.
    assert!(!text.contains("(-"), "{text}");
}

#[test]
fn keys_and_stores_are_passed_over_and_named() {
    let world = World::new();
    refrain(&["keygen", &world.files().join("far").display().to_string()]);
    // Its public half is no secret, and is added.
    DiskStore::open(&world.files().join("kept"), StoreConfig::new(64 << 20)).expect("it opens");
    let (store, files) = (
        world.store().display().to_string(),
        world.files().display().to_string(),
    );
    let add = [
        "store", "add", &files, "--realm", "mirror", "--store", &store,
    ];
    let added = refrain(&add);
    let (said, told) = (
        String::from_utf8_lossy(&added.stdout),
        String::from_utf8_lossy(&added.stderr),
    );
    assert!(
        added.status.success() && said.starts_with("added 3 files, "),
        "{said}{told}"
    );
    for part in [
        "files/far\": a private key",
        "files/kept\": a chunk store",
        "--all",
    ] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    let all = refrain(&[&add[..], &["--all"]].concat());
    let told = String::from_utf8_lossy(&all.stderr);
    assert!(all.status.success() && told.is_empty(), "{all:?}");

    // The realm is new to a store that has another.
    let other = [
        "store", "add", &files, "--realm", "miror", "--store", &store,
    ];
    let told = String::from_utf8_lossy(&refrain(&other).stderr).into_owned();
    assert!(
        told.contains("miror\" is new ") && told.contains("has: mirror"),
        "{told}"
    );
}

#[test]
fn a_store_is_readable_by_its_owner_alone_whatever_the_umask() {
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let world = World::new();
    let theirs = world.folder.path().join("theirs");
    fs::create_dir(&theirs).expect("made");
    fs::set_permissions(&theirs, Permissions::from_mode(0o750)).expect("changed");
    let new = world.folder.path().join("new/store");
    for (store, expected) in [(&new, 0o700), (&theirs, 0o750)] {
        let added = Command::new("sh")
            .args(["-c", "umask 000; exec \"$@\"", "sh"])
            .args([
                env!("CARGO_BIN_EXE_refrain"),
                "store",
                "add",
                "--realm",
                "mirror",
            ])
            .args([Path::new("--store"), store, &world.files()])
            .output()
            .expect("it runs");
        assert!(added.status.success(), "{added:?}");
        assert_eq!(mode(store), expected);
        let files = fs::read_dir(store).expect("a folder");
        let names: Vec<_> = files.map(|file| file.expect("listed").path()).collect();
        for name in [
            "format",
            "lock",
            "realms",
            "00000001.chunks",
            "00000002.files",
        ] {
            assert!(names.contains(&store.join(name)), "{name} of {names:?}");
        }
        for file in &names {
            assert_eq!(mode(file), 0o600, "{file:?}");
        }
    }
}

#[test]
fn a_file_that_changed_is_history_no_more_until_it_is_added_again() {
    let world = World::new();
    world.add();
    fs::write(world.files().join("one"), content(3, 400_000)).expect("written");
    let verified = json(&world.store(), &["verify"]);
    assert_eq!(
        (&verified["bytes"], &verified["damaged_chunks"]),
        (&200_000.into(), &0.into())
    );
    assert_ne!(verified["changed_chunks"], 0);
    let store = world.store().display().to_string();
    let verified = refrain(&["store", "verify", "--store", &store]);
    let text = String::from_utf8_lossy(&verified.stdout);
    assert!(
        verified.status.success() && text.starts_with("changed: "),
        "{text}"
    );
    assert!(
        text.lines().any(|line| line.starts_with("intact  ")),
        "{text}"
    );
    let added = world.add();
    assert_eq!(
        (&added["added_files"], &added["dropped_files"]),
        (&1.into(), &1.into())
    );
    assert_eq!(json(&world.store(), &["verify"])["bytes"], 600_000);
}

/// Puts chunks of 8 KiB into a store.
fn keep(store: &mut DiskStore, bytes: &[u8]) {
    let recipe = store.begin(Realm::named("mirror"), None);
    for chunk in bytes.chunks(8 << 10) {
        let digest = ChunkHasher::default().digest(chunk);
        store.append(recipe, &digest, chunk).expect("appended");
    }
}

#[test]
fn a_bound_that_takes_history_is_refused_where_some_is_added() {
    let world = World::new();
    let large = StoreConfig::new(1 << 30);
    let mut store = DiskStore::open(&world.store(), large).expect("it opens");
    keep(&mut store, &content(1, 12 << 20));
    let chunks = store.stat().chunks;
    store.close().expect("closed");
    let (store, files) = (
        world.store().display().to_string(),
        world.files().display().to_string(),
    );
    let add = [
        "store", "add", &files, "--realm", "mirror", "--store", &store,
    ];
    let (code, error) = refrain_fails(&[&add[..], &["--store-size", "16MiB"]].concat());
    assert_eq!(code, 1, "{error}");
    for part in ["uses 12.6 MB", "--store-size 16.8 MB", "12.6 MB of its"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    assert_eq!(json(&world.store(), &["stat"])["chunks"], chunks);
    // All fits this one.
    let added = refrain(&[&add[..], &["--store-size", "500MiB"]].concat());
    assert!(added.status.success(), "{added:?}");
    assert!(json(&world.store(), &["stat"])["chunks"].as_u64() > Some(chunks));
}

#[test]
fn damage_is_told_by_the_exit_code() {
    let world = World::new();
    let mut store = DiskStore::open(&world.store(), StoreConfig::new(64 << 20)).expect("it opens");
    keep(&mut store, &content(1, 5 << 20));
    store.close().expect("closed");
    let segment = world.store().join("00000001.chunks");
    let mut content = fs::read(&segment).expect("there");
    content[50_000] ^= 1;
    fs::write(&segment, content).expect("written");

    let store = world.store().display().to_string();
    let verify = ["store", "verify", "--store", &store];
    let output = refrain(&verify);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("damaged: 1 chunk\nintact  "), "{text}");
    let (code, error) = refrain_fails(&verify);
    assert_eq!(code, 1);
    for part in ["00000001.*\"", "No action is needed"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn errors_say_what_to_do() {
    let world = World::new();
    world.add();
    let (store, files) = (
        world.store().display().to_string(),
        world.files().display().to_string(),
    );
    let fails = |arguments: &[&str], code: i32, words: &[&str]| {
        let (found, error) = refrain_fails(&[&["store"], arguments].concat());
        assert_eq!(found, code, "{arguments:?}: {error}");
        for word in words {
            assert!(error.contains(word), "{arguments:?} says: {error}");
        }
    };
    let add = |dir, more: &[&str], code, words: &[&str]| {
        let arguments = ["add", dir, "--realm", "mirror", "--store", &store];
        fails(&[&arguments, more].concat(), code, words);
    };
    fails(&["stat"], 2, &["--store"]);
    fails(&["add", &files, "--store", &store], 2, &["--realm"]);
    for name in ["", "a\nb"] {
        let add = ["add", &files, "--store", &store, "--realm", name];
        fails(&add, 2, &["--realm", "control characters"]);
    }
    fails(&["stat", "--store", ""], 2, &["--store"]);
    fails(
        &["stat", "--store", "Cargo.toml"],
        1,
        &["\"Cargo.toml\" is not a directory"],
    );
    fails(
        &["stat", "--store", &files],
        1,
        &["does not contain a store", &files],
    );
    fails(
        &["stat", "--store", "nosuch"],
        1,
        &["\"nosuch\" does not exist"],
    );
    add("/nowhere/at/all", &[], 1, &["/nowhere/at/all"]);
    add("Cargo.toml", &[], 1, &["not a directory"]);
    add(&files, &["--chunk-size", "5000"], 2, &["power of two"]);
    add(
        &files,
        &["--chunk-size", "4KiB"],
        1,
        &[
            "was made with",
            "not with --chunk-size 4KiB",
            "(give --chunk-size 8KiB, ",
        ],
    );
    add(&files, &["--chunk-min", "64KiB"], 1, &["48"]);
    add(
        &files,
        &["--store-size", "100"],
        2,
        &["--store-size", "at least 16MiB", "such as 100GB"],
    );
    fails(
        &["add", &store, "--realm", "x", "--store", &files],
        1,
        &["not empty", "not a store"],
    );

    assert!(!world.files().join("lock").exists(), "left as it was");

    let owner = DiskStore::open(&world.store(), StoreConfig::new(64 << 20)).expect("it opens");
    let user = format!("process {} uses this store", std::process::id());
    add(&files, &[], 1, &[&user]);
    // Looking needs no lock.
    assert_eq!(json(&world.store(), &["stat"])["files"], 2);
    assert_eq!(json(&world.store(), &["verify"])["bytes"], 700_000);
    drop(owner);

    fs::write(
        world.store().join("format"),
        "refrain chunk store\nversion = 9\n",
    )
    .expect("written");
    fails(
        &["stat", "--store", &store],
        1,
        &["format 9", "this program reads"],
    );
}

#[test]
fn what_somebody_has_to_see_to_ends_the_start_as_it_ends_a_dry_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (near, far) = (at("near.key"), at("far.key"));
    keygen(Path::new(&near));
    let peer_key = keygen(Path::new(&far));
    fs::write(at("file"), "content").expect("written");
    fs::create_dir(at("foreign")).expect("made");
    fs::write(at("foreign/file"), "content").expect("written");
    for store in ["file", "file/below", "foreign"].map(at) {
        let near = [
            "near",
            "--key",
            &near,
            "--peer",
            "127.0.0.1:1",
            "--peer-key",
            &peer_key,
            "--socks5",
            "127.0.0.1:0",
            "--store",
            &store,
        ];
        let (code, error) = refrain_fails(&near);
        let (dry_code, dry_error) = refrain_fails(&[&near[..], &["--dry-run"]].concat());
        assert_eq!((code, dry_code), (1, 1), "{error}{dry_error}");
        for error in [error, dry_error] {
            // Of the way to a folder, what is there is named.
            assert!(error.contains(store.trim_end_matches("/below")), "{error}");
        }
    }
    assert_eq!(fs::read_to_string(at("file")).expect("there"), "content");
}

#[test]
fn no_store_is_made_of_nothing() {
    let world = World::new();
    let empty = world.folder.path().join("empty");
    fs::create_dir(&empty).expect("made");
    fs::write(empty.join("file"), "").expect("written");
    let store = world.store();
    let [empty, at] = [&empty, &store].map(|path| path.display().to_string());
    let (code, error) = refrain_fails(&["store", "add", &empty, "--realm", "x", "--store", &at]);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("nothing to add"), "{error}");
    assert!(!store.exists());
}
