//! What is at which path.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use refrain_czip::create::Input;
use refrain_czip_format::header::Profile;

use super::world::{World, letters, options, tar_of};

#[test]
fn an_archive_is_served_as_it_is_and_its_content_beside_it() {
    let world = World::new();
    let content = letters(1, 3_000_000);
    for profile in [Profile::Small, Profile::Shared] {
        world.archive("a.txt.czip", &content, &options(profile));
        let stored = fs::read(world.path("a.txt.czip")).expect("it was made");
        let answer = world.get("/a.txt.czip", &[]);
        assert_eq!(answer.status, 200);
        assert!(answer.body == stored, "{profile}");
        let answer = world.get("/a.txt", &[]);
        assert_eq!(
            answer.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        assert!(answer.body == content, "{profile}");
        for (path, bytes) in [("/a.txt.czip", stored.len()), ("/a.txt", content.len())] {
            let answer = world.head(path, &[]);
            assert_eq!(answer.status, 200);
            assert_eq!(answer.header("content-length"), Some(&*bytes.to_string()));
            assert_eq!(answer.header("accept-ranges"), Some("bytes"));
            assert!(answer.header("last-modified").is_some());
        }
    }
}

#[test]
fn what_is_woven_is_unwoven_while_it_is_sent() {
    let world = World::new();
    let members = [5, 100_000, 0, 512, 3_000_000, 40_000, 511, 1].repeat(3);
    let content = tar_of(1, members);
    for profile in [Profile::Small, Profile::Shared] {
        world.archive("a.tar.czip", &content, &options(profile));
        assert!(world.get("/a.tar", &[]).body == content, "{profile}");
    }
}

#[test]
fn an_empty_file_is_served() {
    let world = World::new();
    world.archive("empty.czip", b"", &options(Profile::Small));
    fs::write(world.path("plain"), b"").expect("a new file");
    for path in ["/empty", "/plain"] {
        let answer = world.get(path, &[]);
        assert_eq!(
            (answer.status, answer.header("content-length")),
            (200, Some("0"))
        );
        let range = world.get(path, &[("Range", "bytes=0-")]);
        assert_eq!(
            (range.status, range.header("content-range")),
            (416, Some("bytes */0"))
        );
    }
}

#[test]
fn files_of_an_archive_of_several_have_a_path_each_and_folders_listings() {
    let world = World::new();
    let beside = tempfile::tempdir().expect("a temporary folder");
    let folder = beside.path().join("f");
    fs::create_dir_all(folder.join("b")).expect("a new folder");
    let inner = [("a", 200_000), ("b/c", 300_000), ("b-d", 10)];
    for (number, (name, bytes)) in inner.into_iter().enumerate() {
        fs::write(folder.join(name), letters(number as u64, bytes)).expect("a new file");
    }
    fs::hard_link(folder.join("a"), folder.join("b/hard <&> link")).expect("a link");
    std::os::unix::fs::symlink("/etc/passwd", folder.join("soft")).expect("a link");
    let inner_folder = fs::File::open(folder.join("b")).expect("it was made");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    inner_folder.set_modified(time).expect("its time");
    for profile in [Profile::Small, Profile::Shared] {
        let inputs = vec![Input::Path(folder.clone())];
        world.archive_of("x.czip", inputs, &options(profile));
        for (number, (name, bytes)) in inner.into_iter().enumerate() {
            let answer = world.get(&format!("/x/f/{name}"), &[]);
            assert!(
                answer.body == letters(number as u64, bytes),
                "{name} {profile}"
            );
        }
        assert_eq!(
            world.get("/x/f/b/hard%20%3C&%3E%20link", &[]).body,
            letters(0, 200_000)
        );
        for (path, status) in [
            ("/x", 301),
            ("/x/f", 301),
            ("/x/f/a/", 404),
            ("/x/f/soft", 404),
            ("/x/f/none", 404),
            ("/x/f/a/b", 404),
            ("/x/../x/f/a", 404),
            ("/x/f/", 200),
        ] {
            assert_eq!(world.get(path, &[]).status, status, "{path}");
        }
        let json = world.get("/x/f/b/", &[]);
        assert_eq!(json.header("content-type"), Some("application/json"));
        let rows: serde_json::Value = serde_json::from_slice(&json.body).expect("JSON");
        assert_eq!(rows[1]["name"], "hard <&> link");
        assert_eq!(rows[1]["link"], "./hard%20%3C%26%3E%20link");
        let json = world.get("/x/f/", &[("Accept", "text/html")]);
        let rows: serde_json::Value = serde_json::from_slice(&json.body).expect("JSON");
        let names: Vec<_> = rows
            .as_array()
            .expect("rows")
            .iter()
            .map(|row| &row["name"])
            .collect();
        assert_eq!(names, ["a", "b", "b-d"]);
        assert_eq!(rows[0]["bytes"], 200_000);
        assert_eq!(rows[1]["kind"], "folder");
        assert_eq!(rows[1]["modified"], "Tue, 14 Nov 2023 22:13:20 GMT");
    }
}

#[test]
fn plain_files_and_folders_are_served_too() {
    let world = World::new();
    fs::create_dir(world.path("sub")).expect("a new folder");
    let content = letters(3, 1_000_000);
    fs::write(world.path("sub/plain"), &content).expect("a new file");
    assert!(world.get("/sub/plain", &[]).body == content);
    let part = world.get("/sub/plain", &[("Range", "bytes=500000-500009")]);
    assert_eq!(
        (part.status, &part.body[..]),
        (206, &content[500_000..500_010])
    );
    assert_eq!(world.get("/sub", &[]).header("location"), Some("./sub/"));
    let page = String::from_utf8(world.get("/sub/", &[]).body).expect("UTF-8");
    assert!(
        page.contains("./plain") && page.contains("1000000"),
        "{page}"
    );
    assert_eq!(world.get("/sub/plain/", &[]).status, 404);
}

#[test]
fn plain_files_are_served_from_the_disk_as_from_memory() {
    let world = World::new();
    let content = letters(3, 5_000_001);
    let path = world.path("plain");
    fs::write(&path, &content).expect("a new file");
    for _ in 0..2 {
        let file = fs::File::open(&path).expect("it is there");
        file.sync_all().expect("a disk");
        #[cfg(target_os = "linux")]
        {
            let advice = rustix::fs::Advice::DontNeed;
            rustix::fs::fadvise(&file, 0, None, advice).expect("a file");
        }
        // The second half is in memory then, and the first one not.
        let half = world.get("/plain", &[("Range", "bytes=2500000-")]);
        assert!(half.body == content[2_500_000..]);
        assert!(world.get("/plain", &[]).body == content);
        assert!(world.get("/plain", &[]).body == content);
    }
}

#[test]
fn a_plain_file_that_becomes_shorter_is_cut_off() {
    let world = World::new();
    let content = letters(4, 40_000_000);
    fs::write(world.path("plain"), &content).expect("a new file");
    let mut client = world.client();
    client.ask("GET", "/plain", &[], b"");
    assert_eq!(client.head().expect("an answer").status, 200);
    let file = fs::OpenOptions::new().write(true).open(world.path("plain"));
    file.expect("it is there").set_len(5).expect("shorter");
    let mut received = 0;
    loop {
        let piece = client.read_some(1 << 20);
        if piece.is_empty() {
            break;
        }
        assert!(piece == content[received..received + piece.len()]);
        received += piece.len();
    }
    assert!(received < content.len(), "the rest is gone");
}

#[test]
fn other_methods_are_refused_and_the_status_counts() {
    let world = World::new();
    fs::write(world.path("plain"), b"0123456789").expect("a new file");
    let mut client = world.client();
    client.ask("DELETE", "/plain", &[], b"");
    let answer = client.answer(false).expect("an answer");
    assert_eq!(
        (answer.status, answer.header("allow")),
        (405, Some("GET, HEAD"))
    );
    client.ask("GET", "/plain", &[], b"");
    assert_eq!(client.answer(false).expect("an answer").body, b"0123456789");
    let before = world.get("/.czip/status", &[]);
    let status: serde_json::Value = serde_json::from_slice(&before.body).expect("JSON");
    assert_eq!(status["requests"], 3);
    assert!(status["disk_bytes"].as_u64() >= Some(10), "{status}");
    assert!(status["sent_bytes"].as_u64() >= Some(10), "{status}");
}
