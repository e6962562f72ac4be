//! Origins that send no parts of files: their archives come as wholes.

use std::thread;

use refrain_czip_format::header::Profile;

use super::world::{World, archive_of, bound, creating, noise, release};

/// Puts an archive of `content` beside `path`, where nothing is.
fn put(world: &World, path: &str, content: &[u8]) -> usize {
    let stored = archive_of(content, &creating(Profile::Small), false);
    let archive = format!("{path}.czip");
    world.origin.put(&archive, &stored, "\"archive\"");
    stored.len()
}

/// How often an archive was fetched.
fn fetches(world: &World, path: &str) -> usize {
    let asked = world.origin.requests_for(&format!("{path}.czip"));
    asked.iter().filter(|asked| asked.method == "GET").count()
}

#[test]
fn an_archive_comes_once_as_a_whole_whoever_asks_for_what_of_it() {
    let world = World::new();
    let content = release(1);
    put(&world, "/x", &content);
    world.origin.send_wholes();
    thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| assert!(world.get("/x", &[]).body == content));
        }
    });
    let part = world.get("/x", &[("Range", "bytes=100000-199999")]);
    assert_eq!(part.status, 206);
    assert!(part.body == content[100_000..200_000]);
    assert_eq!(world.head("/x", &[]).status, 200);
    assert_eq!(fetches(&world, "/x"), 1);
    assert_eq!(world.status().answers_from_archives, 10);
    // What is in the folder has no name.
    let names = std::fs::read_dir(world.cache()).expect("a folder");
    assert_eq!(names.count(), 0);
}

#[test]
fn where_one_is_too_long_the_plain_file_comes_or_the_reason_why_not() {
    let content = release(1);
    let stored = archive_of(&content, &creating(Profile::Small), false);
    let world = World::with(|options| bound(options, stored.len() as u64 * 4 - 4));
    put(&world, "/x", &content);
    put(&world, "/y", &content);
    world.origin.put("/x", &content, "\"plain\"");
    world.origin.send_wholes();
    let answer = world.get("/x", &[]);
    assert_eq!(answer.header("etag"), Some("\"plain\""));
    assert!(answer.body == content);
    for _ in 0..2 {
        let answer = world.get("/y", &[]);
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 502);
        for part in ["/y.czip", "does not support Range requests", "too large"] {
            assert!(said.contains(part), "{said}");
        }
    }
    assert_eq!(world.get("/z", &[]).status, 404);
}

#[test]
fn older_ones_make_room_for_newer_ones() {
    let contents: Vec<Vec<u8>> = (0..6).map(|seed| noise(seed, 300_000)).collect();
    let longest = |content: &Vec<u8>| archive_of(content, &creating(Profile::Small), false).len();
    let longest = contents.iter().map(longest).max().expect("there are some");
    let world = World::with(|options| bound(options, longest as u64 * 4));
    world.origin.send_wholes();
    for (number, content) in contents.iter().enumerate() {
        let path = format!("/{number}");
        put(&world, &path, content);
        assert!(world.get(&path, &[]).body == *content);
    }
    for number in [5, 0] {
        let path = format!("/{number}");
        assert!(world.get(&path, &[]).body == contents[number]);
    }
    assert_eq!((fetches(&world, "/5"), fetches(&world, "/0")), (1, 2));
}

#[test]
fn where_one_is_damaged_the_plain_file_comes() {
    let content = release(1);
    let good = archive_of(&content, &creating(Profile::Small), false);
    let world = World::new();
    world.origin.send_wholes();
    for (number, at) in (0..good.len()).step_by(good.len() / 24).enumerate() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let path = format!("/{number}");
        world.origin.put(&path, &content, "\"plain\"");
        world.origin.put(&format!("{path}.czip"), &bad, "\"bad\"");
        // If damage shows only in the middle, the second answer is whole.
        let answer = world.try_get(&path, &[]);
        let answer = answer.unwrap_or_else(|| world.get(&path, &[]));
        assert!(answer.body == content, "{at}");
    }
    assert!(world.status().answers_fell_back > 0);
}
