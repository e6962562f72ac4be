//! `refrain bulk -o`: archives and chunk stores of what is read.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    ops::Range,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use refrain_codec::{chunk::stream::StreamChunks, marker::PackMask};
use refrain_store::{ChunkSource, DiskStore, Realm, StoreConfig};

use super::{
    bulk,
    common::{command::command, eventually},
    json, run, tree,
};

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
fn what_is_found_can_be_kept_in_an_archive() {
    let tree = tree();
    let folder = tree.path();
    run(
        folder,
        &[
            "czip",
            "create",
            "in",
            "-o",
            "created.czip",
            "--no-containers",
            "--chunk-size",
            "2KiB",
            "--chunker",
            "modp",
        ],
    );
    for method in ["naive", "pipeline"] {
        for profile in ["small", "shared"] {
            let arguments = [
                "in",
                "-o",
                "in.czip",
                "--json",
                "--method",
                method,
                "--profile",
                profile,
            ];
            let output = bulk(folder, &arguments);
            assert!(output.status.success(), "{output:?}");
            let kept = &json(&output)["kept"]["archive"];
            let bytes = fs::metadata(folder.join("in.czip")).unwrap().len();
            assert_eq!(kept["archive_bytes"], bytes);
            assert!(bytes < json(&output)["bytes"].as_u64().unwrap() / 3);
            run(folder, &["czip", "verify", "in.czip"]);
            run(folder, &["czip", "extract", "in.czip", "-o", "out"]);
            assert_eq!(
                all_below(&folder.join("out/in")),
                all_below(&folder.join("in"))
            );
            fs::remove_dir_all(folder.join("out")).unwrap();
            let list = |archive| run(folder, &["czip", "list", archive, "--json"]).stdout;
            assert_eq!(list("in.czip"), list("created.czip"));
        }
    }
}

#[test]
fn an_archive_is_not_in_itself_and_what_cannot_be_read_is_not_either() {
    let tree = tree();
    let folder = tree.path();
    for _ in 0..2 {
        let output = bulk(folder, &["in", "none", "-o", "in/all.czip", "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let found = json(&output);
        assert_eq!(
            (&found["unread_files"], &found["files"]),
            (&1.into(), &5.into())
        );
        let list = run(folder, &["czip", "list", "in/all.czip"]).stdout;
        let list = String::from_utf8(list).unwrap();
        assert!(
            list.contains("in/below/b") && !list.contains("all.czip"),
            "{list}"
        );
    }
    run(folder, &["czip", "verify", "in/all.czip"]);
}

#[test]
fn an_archive_of_standard_input_has_no_name_and_none_comes_of_half_of_it() {
    let tree = tree();
    let folder = tree.path();
    let mut child = command(&["bulk", "-", "-o", "stream.czip"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program runs");
    let song = fs::read(folder.join("in/a")).unwrap();
    child.stdin.take().unwrap().write_all(&song).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(
        run(folder, &["czip", "extract", "stream.czip", "-o", "-"]).stdout,
        song
    );

    let before = all_below(folder);
    let mut child = command(&["bulk", "-", "-o", "stream.czip"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program runs");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(&vec![7; 1 << 20]).unwrap();
    let kill = format!("kill -TERM {}", child.id());
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
    let ended = eventually("it ends", || child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(143));
    assert_eq!(all_below(folder), before);
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
        assert!(said.contains("deploy: a private key"), "{said}");
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
        (&["in", "-o", "in"][..], 1, "in is a folder"),
        (&["-", "in", "-o", "x.czip"], 2, "`-` is archived alone"),
        (
            &["in", "-o", "x.czip", "--hash", "sha1"],
            2,
            "archives know chunks by blake3",
        ),
        (&["in", "-o", "none/x.czip"], 1, "none/x.czip"),
        (
            &["in", "in/below/../../in", "-o", "x.czip"],
            1,
            "are called in",
        ),
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
            "--chunk-size",
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
            1,
            "store",
        ),
        (
            &["in", "-o", "in/a", "--realm", "songs"],
            1,
            "in/a is no folder",
        ),
        (&["in", "-o", "-"], 2, "give a file"),
        (&["none", "-o", "x.czip"], 1, "nothing is written"),
    ] {
        let output = bulk(folder, arguments);
        assert_eq!(output.status.code(), Some(exit_code), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(!folder.join("x.czip").exists());
    }
}

#[test]
fn a_pipe_is_written_to_and_not_replaced() {
    let tree = tree();
    let folder = tree.path();
    let made = Command::new("mkfifo").arg(folder.join("pipe")).status();
    assert!(made.unwrap().success());
    let reader = Command::new("cat")
        .arg(folder.join("pipe"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("cat is there");
    run(folder, &["bulk", "in", "-o", "pipe"]);
    let archive = reader.wait_with_output().unwrap().stdout;
    fs::write(folder.join("all.czip"), archive).unwrap();
    run(folder, &["czip", "extract", "all.czip", "-o", "out"]);
    assert_eq!(
        all_below(&folder.join("out/in")),
        all_below(&folder.join("in"))
    );
    assert!(!folder.join("pipe").is_file());
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
    assert!(said.contains("of 40.0 MB that are new"), "{said}");
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
