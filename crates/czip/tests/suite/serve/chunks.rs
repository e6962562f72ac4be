//! Chunks by name.

use std::{fs, sync::Arc};

use refrain_czip::{
    archive::{Archive, CacheBytes, FileSource},
    create::{CreateOptions, EncryptOptions},
    crypt::Recipients,
};
use refrain_czip_format::{ChunkName, Stream, header::Profile, method::decompress};

use super::world::{World, letters, options};

/// The chunks of an archive: names, and frames as stored.
fn chunks(world: &World, name: &str) -> Vec<(ChunkName, Vec<u8>)> {
    let file = fs::File::open(world.path(name)).expect("it is there");
    let source = FileSource::new(file).expect("a file");
    let archive = Archive::open(source, CacheBytes::default()).expect("an archive");
    let stored = fs::read(world.path(name)).expect("it is there");
    let content = Stream::Content;
    let numbers = 0..archive.root().stream(content).chunks.items();
    let chunk = |number| {
        let name = archive.name(content, number).expect("it is there");
        let frame = archive.frame_row(content, number).expect("it is there");
        let frame = &stored[frame.offset as usize..][..frame.stored_bytes as usize];
        (name, frame.to_vec())
    };
    numbers.map(chunk).collect()
}

#[test]
fn a_chunk_is_at_its_name_for_ever() {
    let world = World::new();
    let content = letters(1, 1_000_000);
    world.archive("small.czip", &content, &options(Profile::Small));
    world.archive("a.czip", &content, &options(Profile::Shared));
    let chunks = chunks(&world, "a.czip");
    assert!(chunks.len() > 5);
    for (name, stored) in &chunks {
        let path = format!("/.czip/chunk/{name}");
        let answer = world.get(&path, &[]);
        assert_eq!(answer.status, 200);
        assert!(answer.body == *stored);
        let plain = decompress(&answer.body, None, 1 << 20).expect("a frame");
        assert_eq!(ChunkName::of(&plain), *name);
        let immutable = Some("public, max-age=31536000, immutable");
        assert_eq!(answer.header("cache-control"), immutable);
        let range = world.get(&path, &[("Range", "bytes=3-")]);
        assert_eq!((range.status, &range.body[..]), (206, &stored[3..]));
        let tag = answer.header("etag").expect("a tag");
        assert_eq!(world.get(&path, &[("If-None-Match", tag)]).status, 304);
        let upper = format!("/.czip/chunk/{}", name.to_string().to_uppercase());
        assert_eq!(world.get(&upper, &[]).status, 200);
    }
    let none = format!("/.czip/chunk/{}", "0".repeat(40));
    assert_eq!(world.get(&none, &[]).status, 404);
}

#[test]
fn chunks_of_archives_that_come_and_go_do_so_too() {
    let world = World::new();
    world.archive("a.czip", &letters(1, 300_000), &options(Profile::Shared));
    let (name, stored) = chunks(&world, "a.czip").swap_remove(0);
    let path = format!("/.czip/chunk/{name}");
    assert_eq!(world.get(&path, &[]).body, stored);
    fs::remove_file(world.path("a.czip")).expect("it is there");
    assert_eq!(world.get(&path, &[]).status, 404);
    world.archive("b.czip", &letters(1, 300_000), &options(Profile::Shared));
    // The folder is looked over once a second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(world.get(&path, &[]).body, stored);
}

#[test]
fn an_encrypted_archive_is_served_as_it_is_and_its_chunks_are_sealed_still() {
    const RECIPIENT: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
    let world = World::new();
    let content = letters(1, 500_000);
    let encryption = Arc::new(EncryptOptions {
        recipients: Recipients::parse(&[RECIPIENT]).expect("a recipient"),
        group_secret: None,
        is_padded: false,
    });
    for profile in [Profile::Small, Profile::Shared] {
        let encrypted = CreateOptions {
            encryption: Some(encryption.clone()),
            ..options(profile)
        };
        world.archive("a.czip", &content, &encrypted);
        let stored = fs::read(world.path("a.czip")).expect("it was made");
        assert!(world.get("/a.czip", &[]).body == stored);
        assert_eq!(world.get("/a", &[]).status, 404);
        assert_eq!(world.get("/a/", &[]).status, 404);
    }
    for (name, stored) in chunks(&world, "a.czip") {
        let answer = world.get(&format!("/.czip/chunk/{name}"), &[]);
        assert!(answer.body == stored);
    }
}
