//! What each subcommand writes, and how it fails.

use std::{ffi::OsStr, fs, io::Write, os::unix::ffi::OsStrExt, process::Stdio};

use serde_json::{Value, json};

use super::{World, noise};
use crate::common::command::command;

#[test]
fn standard_input_goes_to_standard_output_and_back() {
    let world = World::new();
    let content = [noise(1, 300_000), noise(2, 10_000), noise(1, 300_000)].concat();
    let made = world.run_with(&["create", "-", "-o", "-", "--json"], &content);
    let report: Value = serde_json::from_slice(&made.stderr).expect("JSON");
    assert_eq!(report["plain_bytes"], content.len());
    assert_eq!(report["archive_bytes"], made.stdout.len());
    assert!(
        made.stdout.len() < 330_000,
        "repeats are stored once: {}",
        made.stdout.len()
    );
    for arguments in [&["cat", "-"][..], &["extract", "-", "-o", "-"]] {
        let read = world.run_with(arguments, &made.stdout);
        assert!(
            read.status.success() && read.stdout == content,
            "{arguments:?}"
        );
    }
    let list = world.run_with(&["list", "-"], &made.stdout);
    assert!(String::from_utf8_lossy(&list.stdout).contains("(standard input)"));

    world.write("pages.czip", &made.stdout);
    let list = world.run(&["list", "pages.czip"]);
    assert!(String::from_utf8_lossy(&list).ends_with(" pages\n"));
    assert_eq!(
        world.json(&["list", "pages.czip"])["entries"][0]["path"],
        ""
    );
    for name in ["pages", "./pages"] {
        assert!(world.run(&["cat", "pages.czip", name]) == content, "{name}");
        assert!(world.run(&["extract", "pages.czip", name, "-o", "-"]) == content);
    }
    world.run(&["extract", "pages.czip", "-o", "out"]);
    assert!(fs::read(world.path("out/pages")).expect("named as the archive") == content);
    let nameless = world.run_with(&["extract", "-", "-o", "out"], &made.stdout);
    let error = String::from_utf8_lossy(&nameless.stderr);
    assert!(error.contains("write it to standard output"), "{error}");
}

#[test]
fn any_range_of_any_file_is_written() {
    let world = World::new();
    let (one, two) = (noise(1, 200_000), noise(2, 100_000));
    world.write("d/one", &one);
    world.write("d/two", &two);
    world.run(&["create", "d", "-o", "d.czip"]);
    let all = [&one[..], &two].concat();
    for (arguments, expected) in [
        (&["cat", "d.czip"][..], &all[..]),
        (
            &["cat", "d.czip", "--range", "199990-200010"],
            &all[199_990..200_010],
        ),
        (&["cat", "d.czip", "--range", "250K-"], &all[250_000..]),
        (&["cat", "d.czip", "--range", "0-0"], &[]),
        (&["cat", "d.czip", "d/two"], &two),
        (
            &["cat", "d.czip", "d/two", "--range", "10K-10K+64"],
            &two[10_000..10_064],
        ),
        (&["cat", "d.czip", "d/two", "--range", "100000-"], &[]),
    ] {
        assert!(world.run(arguments) == expected, "{arguments:?}");
    }
    for (arguments, parts) in [
        (
            &["cat", "d.czip", "d/two", "--range", "0-100001"][..],
            &["d.czip", "100000 bytes"][..],
        ),
        (
            &["cat", "d.czip", "d/two", "--range", "100001-"],
            &["d.czip: \"d/two\": ", "100000 bytes", "ends at 100001"],
        ),
        (&["cat", "d.czip", "d"], &["d.czip", "directory"]),
        (&["cat", "d.czip", "two"], &["d.czip", "list"]),
    ] {
        let (code, error) = world.fails(arguments);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let (code, _) = world.fails(&["cat", "d.czip", "--range", "2-1"]);
    assert_eq!(code, Some(2));
}

#[test]
fn every_report_is_one_json_object() {
    let world = World::new();
    world.write("d/one", &noise(1, 200_000));
    world.write("d/two", &noise(1, 200_000));
    let created = world.json(&["create", "d", "-o", "d.czip", "--profile", "shared"]);
    assert_eq!(created["profile"], "shared");
    assert_eq!(created["entries"], 3);
    assert_eq!(created["special_files"], 0);

    let list = world.json(&["list", "d.czip"]);
    let entries = list["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), 3);
    assert_eq!(
        (&entries[2]["path"], &entries[2]["offset"]),
        (&"d/two".into(), &200_000.into())
    );

    let stat = world.json(&["stat", "d.czip"]);
    assert_eq!(stat["plain_bytes"], 400_000);
    assert_eq!(stat["digest"], created["digest"]);
    assert_eq!(
        (&stat["chunker"], &stat["method"]),
        (&"pack".into(), &"zstd".into())
    );
    assert_eq!(stat["encrypted"], false);
    let redundancy = stat["redundancy"].as_f64().expect("a number");
    assert!((0.45..0.55).contains(&redundancy), "{redundancy}");
    assert_eq!(stat["streams"][0]["name"], "content");

    let verified = world.json(&["verify", "d.czip", "--content"]);
    assert_eq!(verified["plain_bytes"], 400_000);
    assert_eq!(verified["stored_bytes"], stat["stored_bytes"]);
    let extracted = world.json(&["extract", "d.czip", "-o", "out"]);
    assert_eq!(
        (&extracted["files"], &extracted["is_whole"]),
        (&2.into(), &true.into())
    );
}

#[test]
fn the_first_line_of_a_report_is_the_answer() {
    let world = World::new();
    world.write("d/one", &noise(1, 200_000));
    world.write("d/two", &noise(1, 200_000));
    for (arguments, begin, end) in [
        (
            &["create", "d", "-o", "d.czip"][..],
            "400 kB → ",
            " % of the input), 3 entries",
        ),
        (
            &["stat", "d.czip"],
            "400 kB of content in ",
            " %), 3 entries",
        ),
        (&["verify", "d.czip"], "OK: ", " kB"),
        (
            &["extract", "d.czip", "-o", "out"],
            "extracted 2 files, 1 directory",
            ", 400 kB",
        ),
    ] {
        let text = String::from_utf8(world.run(arguments)).expect("text");
        let first = text.lines().next().expect("a line");
        assert!(first.starts_with(begin) && first.ends_with(end), "{text}");
    }
}

#[test]
fn frames_with_a_base_are_counted() {
    let world = World::new();
    let old = noise(1, 600_000);
    let mut new = old.clone();
    for at in (0..new.len()).step_by(5000) {
        new[at] ^= 1;
    }
    world.write("d/1", &old);
    world.write("d/2", &new);
    for (options, is_some) in [
        (&[][..], true),
        (&["--no-delta"], false),
        (&["--profile", "shared"], false),
    ] {
        world.run(&[&["create", "d", "-o", "d.czip"], options].concat());
        let stat = world.json(&["stat", "d.czip"]);
        let with_base = stat["streams"][0]["frames_with_base"].as_u64();
        let with_base = with_base.expect("a number");
        assert_eq!(with_base > 0, is_some, "{options:?}");
        assert!(with_base < stat["streams"][0]["frames"].as_u64().expect("a number"));
        let lines = String::from_utf8(world.run(&["stat", "d.czip", "-v"])).expect("text");
        let said = format!(" frames, {with_base} of them with a base");
        assert_eq!(lines.contains(&said), is_some, "{lines}");
    }
}

#[test]
fn options_say_how_an_archive_is_made() {
    let world = World::new();
    let content = [noise(1, 300_000), vec![0; 300_000], noise(1, 300_000)].concat();
    world.write("file", &content);
    for (options, key, value) in [
        (&["--chunker", "modp"][..], "chunker", json!("modp")),
        (&["--chunker", "fixed"], "chunker", json!("fixed")),
        (&["--chunk-size", "8K"], "chunk_bytes", json!(8192)),
        (&["--compress", "gzip:9"], "method", json!("gzip")),
        (&["--compress", "bzip2"], "method", json!("bzip2")),
        (&["--compress", "none"], "method", json!("none")),
        (&["--compress", "zstd:19"], "method", json!("zstd")),
        (&["--profile", "shared"], "profile", json!("shared")),
        (&["--no-containers"], "is_woven", json!(false)),
        (&["--stream"], "has_footer", json!(true)),
        (&["--frame-size", "0"], "frame_bytes_max", json!(131_072)),
        (
            &["--no-delta", "--index-memory", "1M", "--threads", "1"],
            "plain_bytes",
            json!(900_000),
        ),
    ] {
        world.run(&[&["create", "file", "-o", "file.czip"], options].concat());
        let stat = world.json(&["stat", "file.czip"]);
        assert_eq!(stat[key], value, "{options:?}");
        assert!(world.run(&["cat", "file.czip"]) == content, "{options:?}");
    }
    for wrong in [
        &["--chunk-size", "3M"][..],
        &["--chunker", "gear"],
        &["--compress", "lz4"],
        &["--compress", "gzip:10"],
        &["--frame-size", "9MiB"],
        &["--profile", "tiny"],
        &["--index-memory", "0"],
        &["--index-memory", "999kB"],
    ] {
        let (code, error) = world.fails(&[&["create", "file", "-o", "x.czip"], wrong].concat());
        assert_eq!(code, Some(2), "{error}");
        assert!(
            error.contains(wrong[0]) && error.contains("invalid value"),
            "{error}"
        );
    }
    for of_frames in [&["--frame-size", "1MiB"][..], &["--after", "file.czip"]] {
        let create = ["create", "file", "-o", "x.czip", "--profile", "shared"];
        let (_, error) = world.fails(&[&create[..], of_frames].concat());
        assert!(error.contains("are for profile `small`"), "{error}");
    }
    let (_, error) = world.fails(&["cat", "file.czip", "--range", "-5"]);
    assert!(error.contains("the start is missing (0-5 "), "{error}");
    assert!(!world.path("x.czip").exists());
}

#[test]
fn a_directory_is_not_opened_as_an_archive() {
    let world = World::new();
    world.write("d/file", b"content");
    for command in ["list", "cat", "verify"] {
        let (_, error) = world.fails(&[command, "d"]);
        assert!(error.starts_with("error: cannot open \"d\": "), "{error}");
        assert!(error.contains("is a directory"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_url_of_another_scheme_is_not_taken_for_a_file() {
    let world = World::new();
    for command in ["list", "cat", "extract", "verify", "stat"] {
        let (code, error) = world.fails(&[command, "ftp://localhost/x.czip"]);
        assert_eq!(code, Some(2), "{error}");
        assert!(
            error.contains(": ftp is not supported") && error.contains("https URL"),
            "{error}"
        );
    }
    // A directory may be called so.
    world.write("ftp:/x", b"content");
    let (code, error) = world.fails(&["list", "ftp://x"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("not a CZIP archive"), "{error}");
}

#[test]
fn damage_is_found_and_named() {
    let world = World::new();
    world.write("file", &noise(1, 300_000));
    world.run(&["create", "file", "-o", "file.czip", "--compress", "none"]);
    let mut archive = fs::read(world.path("file.czip")).expect("there");
    let middle = archive.len() / 2;
    archive[middle] ^= 1;
    world.write("file.czip", &archive);
    for arguments in [
        &["verify", "file.czip"][..],
        &["cat", "file.czip"],
        &["extract", "file.czip"],
    ] {
        let (code, error) = world.fails(arguments);
        assert_eq!(code, Some(1), "{arguments:?}");
        let (_, said) = error.split_once(": ").expect("a level");
        assert!(said.starts_with("file.czip: frame "), "{error}");
    }
    archive.truncate(middle);
    world.write("file.czip", &archive);
    let (_, error) = world.fails(&["list", "file.czip"]);
    assert!(error.contains("the archive is truncated: "), "{error}");
    assert!(!error.contains("--skip-damaged"), "{error}");
    let verified = world.run_with(&["verify", "file.czip"], b"");
    let text = String::from_utf8_lossy(&verified.stdout);
    assert_eq!(verified.status.code(), Some(1));
    assert!(
        text.starts_with("damaged: the archive is truncated"),
        "{text}"
    );
    // The reason is there once, and what to do.
    let error = String::from_utf8_lossy(&verified.stderr);
    assert!(!error.contains("truncated"), "{error}");
    assert!(error.contains("copy or create it again"), "{error}");
    let skip_damaged = ["extract", "file.czip", "-o", "out", "--skip-damaged"];
    let (_, error) = world.fails(&skip_damaged);
    assert!(error.contains("list of files"), "{error}");
    let verified = world.run_with(&["verify", "file.czip", "--json"], b"");
    let report: Value = serde_json::from_slice(&verified.stdout).expect("JSON");
    assert_eq!(report["is_whole"], false);
    assert_eq!(report["damaged_parts"], 1);
    let error = report["damaged"][0]["error"].as_str().expect("text");
    assert!(error.contains("truncated: expected "), "{error}");
    world.write("empty", b"");
    world.write("short", b"text");
    world.write("cut", &archive[..100]);
    for (name, words) in [
        ("file", "not a CZIP archive"),
        ("missing.czip", "No such file"),
        ("empty", "it is empty"),
        ("short", "not a CZIP archive"),
        ("cut", "truncated"),
    ] {
        let (_, error) = world.fails(&["stat", name]);
        assert!(error.contains(words), "{error}");
        let times = 1 + words.matches(name).count();
        assert_eq!(error.matches(name).count(), times, "{error}");
        // Only what begins as an archive does is a damaged one.
        let verified = world.run_with(&["verify", name], b"");
        assert_eq!(verified.status.code(), Some(1));
        let is_damaged = verified.stdout.starts_with(b"damaged: ");
        assert_eq!(is_damaged, name == "cut", "{verified:?}");
    }
}

#[test]
fn the_first_line_of_verify_has_once_that_an_archive_is_damaged() {
    let world = World::new();
    world.write("d/file", &noise(1, 300_000));
    world.run(&["create", "d", "-o", "d.czip"]);
    let archive = fs::read(world.path("d.czip")).expect("there");
    let first_line = |archive: &[u8]| {
        world.write("damaged.czip", archive);
        let verified = world.run_with(&["verify", "damaged.czip"], b"");
        let text = String::from_utf8(verified.stdout).expect("text");
        text.lines().next().expect("a line").to_owned()
    };
    let flipped = |at: usize| {
        let mut damaged = archive.clone();
        damaged[at] ^= 1;
        damaged
    };
    let header = first_line(&flipped(100));
    let is_of = |line: &str, part: &str| {
        line.starts_with("damaged: ") && line.contains(&format!("checksum of the {part} "))
    };
    assert!(
        is_of(&header, "header") && !header.contains("later version"),
        "{header}"
    );
    let extract = ["extract", "damaged.czip", "-o", "out", "--skip-damaged"];
    for command in [&["verify", "damaged.czip"][..], &extract] {
        let (_, error) = world.fails(command);
        assert!(
            error.contains("nothing can be extracted") && error.contains("another copy"),
            "{error}"
        );
    }
    let version = first_line(&flipped(8));
    assert!(
        is_of(&version, "header") && version.contains("later version"),
        "{version}"
    );
    let root = u64::from_le_bytes(archive[128..136].try_into().expect("8 bytes"));
    let root = first_line(&flipped(root as usize));
    assert!(is_of(&root, "root"), "{root}");
    for damaged in [
        flipped(archive.len() / 2),
        archive[..archive.len() - 1].to_vec(),
        [&archive[..], b"x"].concat(),
    ] {
        let line = first_line(&damaged);
        assert!(line.starts_with("damaged: "), "{line}");
        assert_eq!(line.matches("damaged").count(), 1, "{line}");
    }
}

#[test]
fn all_take_as_many_threads_as_there_may_be_and_no_more() {
    let world = World::new();
    world.write("file", &noise(1, 300_000));
    world.run(&["create", "file", "-o", "file.czip", "--threads", "1024"]);
    for arguments in [
        &["create", "file", "-o", "x.czip"][..],
        &["extract", "file.czip", "-o", "out"],
        &["cat", "file.czip"],
        &["verify", "file.czip", "--content"],
        &["get", "http://localhost:1/x.czip", "-o", "x"],
    ] {
        for wrong in ["0", "1025", "100000", "-1", "x"] {
            let threads = format!("--threads={wrong}");
            let (code, error) = world.fails(&[arguments, &[&threads]].concat());
            assert!(code == Some(2) && error.contains("--threads"), "{error}");
        }
        if arguments[0] != "get" {
            world.run(&[arguments, &["--threads", "1024"]].concat());
        }
    }
}

#[test]
fn a_pipe_that_finds_no_room_is_told_where_there_was_none() {
    let world = World::new();
    world.write("file", b"content");
    let archive = world.run(&["create", "file", "-o", "-"]);
    let mut list = command(&["czip", "list", "-"]);
    let mut list = list
        .env("TMPDIR", world.path("missing"))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = list.stdin.take().expect("it is piped");
    let _ = stdin.write_all(&archive);
    drop(stdin);
    let output = list.wait_with_output().expect("it ends");
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains("/missing\": No such file") && error.contains("(set TMPDIR"),
        "{error}"
    );
}

#[test]
fn verify_tells_all_damage_and_the_files_that_it_hits() {
    let world = World::new();
    for (file, seed) in [("a", 1), ("b", 2), ("c", 3), ("d", 2)] {
        world.write(&format!("d/{file}"), &noise(seed, 500_000));
    }
    world.run(&["create", "d", "-o", "d.czip", "--compress", "none"]);
    let archive = fs::read(world.path("d.czip")).expect("there");
    let middle_of = |seed| {
        let middle = &noise(seed, 500_000)[250_000..250_032];
        let mut at = archive.windows(32);
        at.position(|window| window == middle)
            .expect("it is stored")
    };
    for (seeds, hit) in [
        (&[1][..], &["d/a"][..]),
        (&[2], &["d/b", "d/d"]),
        (&[1, 2], &["d/a", "d/b", "d/d"]),
    ] {
        let mut damaged = archive.clone();
        for &seed in seeds {
            damaged[middle_of(seed)] ^= 1;
        }
        world.write("damaged.czip", &damaged);
        for threads in ["1", "3"] {
            let verify = ["verify", "damaged.czip", "--json", "--threads", threads];
            let output = world.run_with(&verify, b"");
            assert_eq!(output.status.code(), Some(1));
            let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!(report["is_whole"], false);
            assert_eq!(report["damaged_parts"], seeds.len());
            let stream_of = |part: &Value| part["stream"].as_str().expect("text").to_owned();
            let parts = report["damaged"].as_array().expect("parts").iter();
            assert!(parts.map(stream_of).all(|stream| stream == "content"));
            let files = report["files"].as_array().expect("files").iter();
            let files: Vec<_> = files
                .map(|file| file["path"].as_str().expect("text"))
                .collect();
            assert_eq!(files, hit);
            assert_eq!(report["damaged_files"], hit.len());
            let error = String::from_utf8(output.stderr).expect("text");
            for file in hit {
                assert!(
                    error.contains(&format!("refrain: damaged: {file}\n")),
                    "{error}"
                );
            }
            assert!(error.contains("extract --skip-damaged"), "{error}");
        }
        assert_eq!(world.code_unread(&["verify", "damaged.czip"]), Some(1));
        let extract = ["extract", "damaged.czip", "-o", "out", "--skip-damaged"];
        assert_eq!(world.code_unread(&extract), Some(1));
    }
}

#[test]
fn what_lies_behind_the_end_keeps_nobody_from_the_files() {
    let world = World::new();
    world.write("d/a", &noise(1, 300_000));
    world.run(&["create", "d", "-o", "d.czip"]);
    let longer = [&fs::read(world.path("d.czip")).expect("there")[..], b"\n"].concat();
    world.write("longer.czip", &longer);
    let (_, error) = world.fails(&["extract", "longer.czip", "-o", "out"]);
    assert_eq!(error.matches("the archive is too long: ").count(), 1);
    assert!(error.contains("extract --skip-damaged"), "{error}");
    let verified = world.run_with(&["verify", "longer.czip"], b"");
    let error = String::from_utf8_lossy(&verified.stderr);
    assert!(!error.contains("too long"), "{error}");
    assert!(error.contains("extract --skip-damaged"), "{error}");
    assert!(
        verified
            .stdout
            .starts_with(b"damaged: the archive is too long")
    );
    let extract = ["extract", "longer.czip", "-o", "out", "--skip-damaged"];
    let output = world.run_with(&extract, b"");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(
        error.contains("longer.czip: the archive is too long: "),
        "{error}"
    );
    let extracted = fs::read(world.path("out/d/a")).expect("there");
    assert!(extracted == noise(1, 300_000));
}

#[test]
fn names_are_taken_as_list_shows_them() {
    let world = World::new();
    let names = [&b"new\nline"[..], b"\xff", b"back\\slash", b"plain"];
    for name in names {
        let path = world.0.path().join("d").join(OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, name).expect("written");
    }
    world.run(&["create", "d", "-o", "d.czip"]);
    let list = String::from_utf8(world.run(&["list", "d.czip"])).expect("text");
    let shown = list.lines().filter(|line| line.starts_with('-'));
    let shown: Vec<_> = shown
        .map(|line| line.rsplit(' ').next().expect("a name"))
        .collect();
    assert_eq!(shown.len(), names.len(), "{list}");
    let mut contents: Vec<_> =
        (shown.iter().map(|name| world.run(&["cat", "d.czip", name]))).collect();
    contents.sort();
    let mut expected = names.map(<[u8]>::to_vec);
    expected.sort();
    assert_eq!(contents, expected);
    let extract = [&["extract", "d.czip", "-o", "out"], &shown[..]].concat();
    world.run(&extract);
    for name in names {
        let path = world.0.path().join("out/d").join(OsStr::from_bytes(name));
        assert_eq!(fs::read(path).expect("extracted"), name);
    }
    world.run(&["extract", "d.czip", ".", "-o", "all"]);
    assert_eq!(super::names(&world.path("all/d")).len(), names.len());
}

#[test]
fn arguments_that_make_no_sense_together_are_wrong_ones() {
    let world = World::new();
    world.write("a", b"one");
    world.write("d/a", b"other");
    for arguments in [
        &[
            "create",
            "a",
            "-o",
            "x",
            "--profile",
            "shared",
            "--frame-size",
            "1MiB",
        ][..],
        &["create", "a", "-", "-o", "x"],
        &["create", "a", "d/a", "-o", "x"],
        &["create", "a", "-o", "a"],
        &["get", "ftp://localhost/x", "-o", "x"],
        &["get", "-o", "x", "--seed", "a", "http://localhost/x"],
        &["list", "http://localhost/x", "--header", "no colon"],
        &[
            "proxy", "--listen", "[::1]:0", "--origin", "x", "--cache", "c",
        ],
    ] {
        let (code, error) = world.fails(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert!(!world.path("x").exists(), "{arguments:?}");
    }
}
