//! What clients get where there are archives, and what that costs at the origin.

use std::fs;

use refrain_czip::create::Input;
use refrain_czip_format::header::Profile;

use super::world::{World, archive, archive_of, creating, noise, release};

const PROFILES: [Profile; 2] = [Profile::Small, Profile::Shared];

#[test]
fn the_plain_file_comes_out_of_the_archive() {
    for profile in PROFILES {
        for has_footer in [false, true] {
            let world = World::new();
            let contents = [release(1), noise(1, 3), noise(2, 2_000_000), Vec::new()];
            for content in &contents {
                let stored = archive_of(content, &creating(profile), has_footer);
                let path = format!("/{}", content.len());
                // What is plain at the origin would show.
                world.origin.put(&path, b"something else", "\"plain\"");
                world
                    .origin
                    .put(&format!("{path}.czip"), &stored, "\"archive\"");
                let answer = world.get(&path, &[]);
                assert_eq!(answer.status, 200);
                assert!(answer.body == *content, "{profile} {path} {has_footer}");
                let again = world.get(&path, &[]);
                assert!(again.body == *content);
                let as_it_is = world.get(&format!("{path}.czip"), &[]);
                assert!(as_it_is.body == stored);
                assert_eq!(as_it_is.header("etag"), Some("\"archive\""));
            }
            assert_eq!(world.status().answers_fell_back, 0);
            assert!(world.origin.requests_for("/3").is_empty());
        }
    }
}

#[test]
fn a_file_that_overlaps_costs_only_what_is_new() {
    for profile in PROFILES {
        let world = World::new();
        let first = archive_of(&release(1), &creating(profile), false);
        let second = archive_of(&release(2), &creating(profile), false);
        world.origin.put("/1.tar.czip", &first, "\"1\"");
        world.origin.put("/2.tar.czip", &second, "\"2\"");
        assert!(world.get("/1.tar", &[]).body == release(1));
        let before = world.origin.server.sent_bytes();
        assert!(before < first.len() as u64 * 11 / 10, "{before}");
        assert!(world.get("/2.tar", &[]).body == release(2));
        let news = world.origin.server.sent_bytes() - before;
        // Two in nine files are others, one of each release, and frames hold more beside them.
        let most = second.len() as u64 / 3;
        assert!(news < most, "{profile}: {news} of {}", second.len());
        let status = world.status();
        assert_eq!(status.origin_bytes, world.origin.server.sent_bytes());
        assert_eq!(
            status.clients.sent_bytes,
            (release(1).len() + release(2).len()) as u64
        );
        assert!(status.chunks_fetched > 0 && status.folder_chunks > 0);
        // All is here now.
        assert!(world.get("/2.tar", &[]).body == release(2));
        assert!(world.get("/1.tar", &[]).body == release(1));
        let after = world.origin.server.sent_bytes();
        assert_eq!(after, before + news);
    }
}

#[test]
fn a_proxy_that_starts_anew_has_what_it_had() {
    for profile in PROFILES {
        let mut world = World::new();
        let stored = archive_of(&release(1), &creating(profile), false);
        world.origin.put("/1.tar.czip", &stored, "\"1\"");
        assert!(world.get("/1.tar", &[]).body == release(1));
        world.stop();
        world.wait();
        let before = world.origin.server.sent_bytes();
        let world = world.again();
        assert!(world.get("/1.tar", &[]).body == release(1));
        let more = world.origin.server.sent_bytes() - before;
        assert!(more < 200_000, "{profile}: {more} of {}", stored.len());
        assert_eq!(world.status().chunks_fetched, 0);
    }
}

#[test]
fn ranges_heads_and_conditions_are_answered_as_a_server_does() {
    let world = World::new();
    let content = release(1);
    let stored = archive_of(&content, &creating(Profile::Small), false);
    world.origin.put("/1.tar.czip", &stored, "\"1\"");
    let head = world.head("/1.tar", &[]);
    let length = content.len().to_string();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), Some(length.as_str()));
    assert_eq!(head.header("accept-ranges"), Some("bytes"));
    assert_eq!(head.header("content-type"), Some("application/x-tar"));
    let before = world.origin.server.sent_bytes();
    let tag = head.header("etag").expect("a tag").to_owned();
    for (range, expected) in [
        ("bytes=0-99", &content[..100]),
        ("bytes=700000-700999", &content[700_000..701_000]),
        ("bytes=-10", &content[content.len() - 10..]),
    ] {
        let answer = world.get("/1.tar", &[("Range", range)]);
        assert_eq!(answer.status, 206);
        assert!(answer.body == expected, "{range}");
    }
    // Some frames, and the table.
    let read = world.origin.server.sent_bytes() - before;
    assert!(read < stored.len() as u64 / 4, "{read}");
    let beyond = format!("bytes={}-", content.len());
    assert_eq!(world.get("/1.tar", &[("Range", &beyond)]).status, 416);
    let range = ("Range", "bytes=5-6");
    let same = world.get("/1.tar", &[range, ("If-Range", &tag)]);
    assert_eq!(same.status, 206);
    let other = world.get("/1.tar", &[range, ("If-Range", "\"other\"")]);
    assert_eq!(other.status, 200);
    assert!(other.body == content);
    let mut client = world.client();
    client.ask("GET", "/1.tar", &[("If-None-Match", &tag)], b"");
    assert_eq!(client.answer(false).expect("an answer").status, 304);
    // The digest of the content, whatever the archive is like.
    let world = World::new();
    let stored = archive_of(&content, &creating(Profile::Shared), true);
    world.origin.put("/1.tar.czip", &stored, "\"1\"");
    assert_eq!(world.head("/1.tar", &[]).header("etag"), Some(&tag[..]));
}

#[test]
fn what_is_in_an_archive_of_a_folder_is_at_its_path() {
    let world = World::new();
    let folder = tempfile::tempdir().expect("a folder");
    let release = folder.path().join("release");
    fs::create_dir_all(release.join("a")).expect("a folder");
    fs::write(release.join("a/b.txt"), noise(1, 100_000)).expect("written");
    fs::write(release.join("c"), b"see").expect("written");
    let stored = archive(vec![Input::Path(release)], &creating(Profile::Small), false);
    world.origin.put("/pub/x.czip", &stored, "\"1\"");
    let inside = world.get("/pub/x/release/a/b.txt", &[]);
    assert_eq!(inside.status, 200);
    assert!(inside.body == noise(1, 100_000));
    let listed = world.get("/pub/x/release/", &[]);
    assert_eq!(listed.status, 200);
    assert!(String::from_utf8_lossy(&listed.body).contains("\"c\""));
    assert_eq!(world.get("/pub/x/release/none", &[]).status, 404);
    let none = world.get("/none/x/release/c", &[]);
    assert_eq!(none.status, 404);
    assert_eq!(none.body, b"there is no such file\n", "the origin's words");
    // What the origin has at the path comes first.
    world
        .origin
        .put("/pub/x/release/c", b"the origin's", "\"2\"");
    assert_eq!(world.get("/pub/x/release/c", &[]).body, b"the origin's");
    // And all files of an archive, one after the other, are not the content of one.
    world.origin.put("/pub/x", b"one file", "\"3\"");
    assert_eq!(world.get("/pub/x", &[]).body, b"one file");
    // Nor is anything in an archive of one.
    let single = archive_of(b"content", &creating(Profile::Small), false);
    world.origin.put("/y.czip", &single, "\"4\"");
    assert_eq!(world.get("/y/release/c", &[]).status, 404);
}

#[test]
fn a_question_and_an_archive_are_passed() {
    let world = World::new();
    let stored = archive_of(b"content", &creating(Profile::Small), false);
    world.origin.put("/x.czip", &stored, "\"1\"");
    world.origin.put("/x?y", b"an answer", "\"2\"");
    assert_eq!(world.get("/x?y", &[]).body, b"an answer");
    assert_eq!(world.get("/x", &[]).body, b"content");
    let range = world.get("/x.czip", &[("Range", "bytes=0-3")]);
    assert_eq!((range.status, &range.body[..]), (206, &stored[..4]));
    // What has a body is a question too.
    world.origin.put("/x", b"an answer", "\"3\"");
    let mut client = world.client();
    client.ask("GET", "/x", &[], b"why?");
    assert_eq!(client.answer(false).expect("an answer").body, b"an answer");
    assert_eq!(world.origin.requests_for("/x")[0].body, b"why?");
}

#[test]
fn chunks_that_are_kept_have_their_urls() {
    let world = World::new();
    let content = noise(1, 200_000);
    let stored = archive_of(&content, &creating(Profile::Small), false);
    world.origin.put("/x.czip", &stored, "\"1\"");
    assert!(world.get("/x", &[]).body == content);
    let archive = refrain_czip::archive::Archive::open(stored, Default::default());
    let archive = archive.expect("an archive");
    let stream = refrain_czip_format::Stream::Content;
    let name = archive.name(stream, 1).expect("a chunk");
    let digits: String = name.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let before = world.origin.server.requests().len();
    let answer = world.get(&format!("/.czip/chunk/{digits}"), &[]);
    assert_eq!(answer.status, 200);
    let plain = refrain_czip_format::method::decompress(&answer.body, None, 1 << 20);
    let plain = plain.expect("a frame");
    assert_eq!(refrain_czip_format::ChunkName::of(&plain), name);
    assert!(
        answer
            .header("cache-control")
            .expect("one")
            .contains("immutable")
    );
    assert_eq!(world.origin.server.requests().len(), before);
    // The origin may have others.
    let other = format!("/.czip/chunk/{}", "7".repeat(40));
    assert_eq!(world.get(&other, &[]).status, 404);
    assert_eq!(world.origin.requests_for(&other).len(), 1);
    let status = world.get("/.czip/status", &[]);
    let status: serde_json::Value = serde_json::from_slice(&status.body).expect("JSON");
    assert_eq!(status["answers_from_archives"], 1);
    assert!(status["sent_bytes"].as_u64() >= Some(200_000));
}
