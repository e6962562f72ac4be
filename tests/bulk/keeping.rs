//! `refrain bulk -o`: a chunk store of what is read.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use refrain_codec::{chunk::stream::StreamChunks, marker::PackMask};
use refrain_store::{ChunkSource, DiskStore, Realm, StoreConfig};

use super::{bulk, json, run, tree};

/// All that is below a folder: what it is, its permissions, and what it holds or says.
fn all_below(folder: &Path) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for below in fs::read_dir(folder).unwrap() {
        let path = below.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        let content = match metadata {
            _ if metadata.is_dir() => {
                all.extend(all_below(&path).into_iter().map(|(below, what)| {
                    let name = path.file_name().unwrap();
                    (Path::new(name).join(below), what)
                }));
                Vec::new()
            }
            _ if metadata.is_symlink() => fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes(),
            _ => fs::read(&path).unwrap(),
        };
        let mode = metadata.permissions().mode();
        let links = if metadata.is_file() {
            metadata.nlink()
        } else {
            0
        };
        let what = format!(
            "{mode:o}, {links} links, {:?}",
            metadata.modified().unwrap()
        );
        all.insert(path.file_name().unwrap().into(), (what, content));
    }
    all
}

#[test]
fn what_is_found_can_become_history_in_a_chunk_store() {
    let tree = tree();
    let folder = tree.path();
    let key = "-----BEGIN PRIVATE KEY-----\nMFECAQ\n-----END PRIVATE KEY-----\n";
    fs::write(folder.join("in/below/deploy"), key).unwrap();
    let arguments = ["in", "-o", "store", "--realm", "songs", "--json"];
    let mut known = 0;
    for round in 0..2 {
        let output = bulk(folder, &arguments);
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("deploy\": a private key"), "{said}");
        let kept = &json(&output)["kept"]["store"];
        let count = |name: &str| kept[name].as_u64().unwrap();
        assert_eq!(count("passed_over"), 1);
        // The empty one has nothing to remember.
        assert_eq!(count("files"), 4);
        match round {
            0 => known = count("known_chunks") + count("new_chunks"),
            _ => assert_eq!((count("new_chunks"), count("known_chunks")), (0, known)),
        }
    }
    run(folder, &["store", "verify", "--store", "store"]);

    // What a near end cuts of the same bytes is there, and what follows it.
    let config = StoreConfig::of(&folder.join("store")).unwrap().unwrap();
    let mut store = DiskStore::open(&folder.join("store"), config).unwrap();
    let realm = Realm::named("songs");
    let song = fs::read(folder.join("in/below/b")).unwrap();
    let mask = PackMask::with_bits(config.chunking.mask_bits).unwrap();
    let mut cutter = StreamChunks::new(mask, config.chunking.bounds);
    let mut chunks = Vec::new();
    cutter.feed(&song, &mut chunks);
    cutter.finish(&mut chunks);
    assert!(chunks.len() > 10);
    let bytes = |chunk: &Range<u64>| &song[chunk.start as usize..chunk.end as usize];
    for pair in chunks.windows(2) {
        let [one, next] = pair else { unreachable!() };
        let digest = config.chunking.hasher.digest(bytes(one));
        assert!(store.contains(realm, &digest));
        let places = store.places_after(realm, &digest);
        let chains = places
            .iter()
            .map(|&place| store.read(place, 1, 1 << 20).unwrap());
        let follow: Vec<_> = chains.flat_map(|chain| chain.chunks).collect();
        assert!(follow.iter().any(|chunk| &chunk.bytes[..] == bytes(next)));
    }
    assert!(!store.contains(realm, &config.chunking.hasher.digest(key.as_bytes())));

    drop(store);
    let all = bulk(
        folder,
        &["in", "-o", "store", "--realm", "songs", "--json", "--all"],
    );
    assert_eq!(json(&all)["kept"]["store"]["passed_over"], 0);
}

#[test]
fn what_cannot_be_kept_is_said_before_anything_is_read() {
    let tree = tree();
    let folder = tree.path();
    run(folder, &["bulk", "in", "-o", "store", "--realm", "songs"]);
    for (arguments, exit_code, why) in [
        // Archives are made by `czip create`.
        (&["in", "-o", "x.czip"][..], 2, "--realm"),
        (
            &[
                "in",
                "-o",
                "store",
                "--realm",
                "songs",
                "--chunk-size",
                "4KiB",
            ],
            2,
            "--chunk-size cannot be given with -o: ",
        ),
        (
            &[
                "in",
                "-o",
                "store",
                "--realm",
                "songs",
                "--chunk-hash",
                "sha1",
            ],
            2,
            "--chunk-hash cannot be given with -o: ",
        ),
        (&["in", "--realm", "songs"], 2, "--output"),
        (
            &[
                "in",
                "-o",
                "store",
                "--realm",
                "songs",
                "--store-size",
                "1MB",
            ],
            2,
            "--store-size",
        ),
        (
            &["in", "-o", "in/a", "--realm", "songs"],
            1,
            "in/a\" is not a directory",
        ),
        (
            &["none", "-o", "x", "--realm", "songs"],
            1,
            "nothing was written",
        ),
    ] {
        let output = bulk(folder, arguments);
        assert_eq!(output.status.code(), Some(exit_code), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(!folder.join("x").exists());
    }
}

#[test]
fn what_finds_no_room_in_a_store_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = 1_u64;
    let noise = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
        (random >> 33) as u8
    });
    fs::write(
        folder.path().join("noise"),
        noise.take(40_000_000).collect::<Vec<_>>(),
    )
    .unwrap();
    let arguments = ["noise", "-o", "store", "--realm", "r", "--json"];
    let output = bulk(
        folder.path(),
        &[&arguments[..], &["--store-size", "20MB"]].concat(),
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let kept = &json(&output)["kept"]["store"];
    assert_eq!(kept["new_bytes"], 40_000_000);
    assert!(kept["held_bytes"].as_u64().unwrap() < 20_000_000);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("of 40.0 MB of new data"), "{said}");
    assert!(said.contains("see --store-size"), "{said}");
}

#[test]
fn without_anything_to_keep_nothing_is_made_and_what_is_there_stays() {
    let tree = tree();
    let folder = tree.path();
    fs::create_dir(folder.join("empty")).unwrap();
    fs::write(folder.join("empty/file"), "").unwrap();
    let key = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n";
    fs::create_dir(folder.join("keys")).unwrap();
    fs::write(folder.join("keys/id"), key).unwrap();
    for input in ["missing", "empty", "keys"] {
        let output = bulk(folder, &[input, "-o", "store", "--realm", "x"]);
        assert_eq!(output.status.code(), Some(1), "{input}: {output:?}");
        assert!(!folder.join("store").exists(), "{input}");
    }
    run(folder, &["bulk", "in", "-o", "store", "--realm", "x"]);
    let before = all_below(&folder.join("store"));
    for input in ["missing", "empty", "keys"] {
        let arguments = [
            input,
            "-o",
            "store",
            "--realm",
            "other",
            "--store-size",
            "90GB",
        ];
        let output = bulk(folder, &arguments);
        assert_eq!(output.status.code(), Some(1), "{input}: {output:?}");
        assert_eq!(all_below(&folder.join("store")), before, "{input}");
    }
    // What cannot be opened is said before hours of reading.
    fs::write(folder.join("file"), "").unwrap();
    let output = bulk(folder, &["missing", "-o", "file/store", "--realm", "x"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("file/store"), "{error}");
}
