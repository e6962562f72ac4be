//! The cache: one chunk, one read, whatever it is read for; and never more than it may take.

use std::{fs, thread};

use refrain_czip::{create::CreateOptions, serve::ServeOptions};
use refrain_czip_format::{
    header::Profile,
    method::{Compression, Method},
};

use super::world::{World, letters, options, tar_of};

/// Frames of two compressors differ, and their chunks do not.
fn shared(method: Method) -> CreateOptions {
    CreateOptions {
        compression: Compression::new(method),
        ..options(Profile::Shared)
    }
}

#[test]
fn a_chunk_of_two_files_is_read_once() {
    let world = World::new();
    let common = letters(1, 4_000_000);
    let one = [&letters(2, 200_000)[..], &common].concat();
    let two = [&letters(3, 300_000)[..], &common].concat();
    world.archive("one.czip", &one, &shared(Method::Zstd));
    world.archive("two.czip", &two, &shared(Method::Gzip));
    let stored = |name: &str| fs::metadata(world.path(name)).expect("it is there").len();
    assert!(world.get("/one", &[]).body == one);
    let first = world.status();
    assert!(first.disk_bytes >= stored("one.czip") * 9 / 10);
    assert!(world.get("/two", &[]).body == two);
    let second = world.status();
    let read = second.disk_bytes - first.disk_bytes;
    assert!(read < stored("two.czip") / 5, "{read}");
    assert!(world.get("/two", &[]).body == two);
    assert_eq!(
        world.status().disk_bytes,
        second.disk_bytes,
        "all is in memory"
    );
}

#[test]
fn who_asks_for_what_is_being_read_waits_for_it() {
    for profile in [Profile::Small, Profile::Shared] {
        let world = World::new();
        let content = tar_of(1, [2_000_000, 1_000_000]);
        world.archive("a.tar.czip", &content, &options(profile));
        let stored = fs::metadata(world.path("a.tar.czip"))
            .expect("it is there")
            .len();
        thread::scope(|scope| {
            for _ in 0..30 {
                scope.spawn(|| assert!(world.get("/a.tar", &[]).body == content));
            }
        });
        // The table's parts and the weave are an opening's own, and small.
        let read = world.status().disk_bytes;
        assert!(read < stored * 11 / 10 + 100_000, "{read} of {stored}");
        let bytes = world.status().cache_bytes;
        assert!(bytes < content.len() as u64 * 11 / 10 + 100_000, "{bytes}");
    }
}

#[test]
fn the_archive_as_it_is_takes_nothing_of_the_cache() {
    let world = World::new();
    world.archive("a.czip", &letters(1, 4_000_000), &options(Profile::Shared));
    let stored = fs::read(world.path("a.czip")).expect("it was made");
    assert!(world.get("/a.czip", &[]).body == stored);
    assert_eq!(world.status().cache_bytes, 0);
}

#[test]
fn the_cache_keeps_its_bound() {
    let cache_bytes = 2 << 20;
    let world = World::with(ServeOptions {
        cache_bytes,
        ..ServeOptions::default()
    });
    let contents: Vec<_> = (0..4).map(|seed| letters(seed, 2_000_000)).collect();
    for (number, content) in contents.iter().enumerate() {
        let profile = if number % 2 == 0 {
            Profile::Small
        } else {
            Profile::Shared
        };
        world.archive(&format!("{number}.czip"), content, &options(profile));
    }
    thread::scope(|scope| {
        for (number, content) in contents.iter().enumerate() {
            let world = &world;
            scope.spawn(move || {
                for _ in 0..3 {
                    assert!(world.get(&format!("/{number}"), &[]).body == *content);
                    assert!(world.status().cache_bytes <= cache_bytes);
                }
            });
        }
    });
    assert!(world.status().cache_bytes > cache_bytes / 2);
}

#[test]
fn three_hundred_slow_clients_get_what_they_asked_for() {
    let world = World::with(ServeOptions {
        cache_bytes: 16 << 20,
        ..ServeOptions::default()
    });
    let contents: Vec<_> = (0..3)
        .map(|seed| tar_of(seed, [400_000, 1_200_000]))
        .collect();
    for (number, content) in contents.iter().enumerate() {
        let options = options(Profile::Shared);
        world.archive(&format!("{number}.tar.czip"), content, &options);
    }
    // All ask first; then all take a little in turn, so that each waits for 299 others.
    let mut clients: Vec<_> = (0..300)
        .map(|number| {
            let mut client = world.client();
            client.ask("GET", &format!("/{}.tar", number % 3), &[], b"");
            client
        })
        .collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let head = client.head().expect("an answer");
        let expected = contents[number % 3].len().to_string();
        assert_eq!(head.header("content-length"), Some(&*expected));
    }
    let mut received = vec![Vec::new(); clients.len()];
    let mut is_all_there = false;
    while !is_all_there {
        is_all_there = true;
        for (number, client) in clients.iter_mut().enumerate() {
            let (received, expected) = (&mut received[number], &contents[number % 3]);
            if received.len() < expected.len() {
                is_all_there = false;
                let piece = client.read_some(100_000);
                assert!(!piece.is_empty(), "cut off");
                let at = received.len();
                assert!(
                    piece == expected[at..at + piece.len()],
                    "client {number} at {at}"
                );
                received.extend_from_slice(&piece);
            }
        }
    }
    assert_eq!(world.status().requests_failed, 0);
}
