//! Many clients, and the bounds of what is kept.

use std::{fs, thread};

use refrain_czip_format::header::Profile;

use super::world::{World, archive_of, bound, creating, noise, release};

#[test]
fn what_many_ask_for_at_once_is_fetched_once() {
    for profile in [Profile::Small, Profile::Shared] {
        let world = World::new();
        let content = release(1);
        let stored = archive_of(&content, &creating(profile), false);
        world.origin.put("/1.tar.czip", &stored, "\"1\"");
        thread::scope(|scope| {
            for client in 0..30 {
                let (world, content) = (&world, &content);
                scope.spawn(move || {
                    // Half of them begin elsewhere.
                    let begin = if client % 2 == 0 { 0 } else { 10_007 * client };
                    let range = format!("bytes={begin}-");
                    let answer = world.get("/1.tar", &[("Range", &range)]);
                    assert!(answer.body == content[begin..]);
                });
            }
        });
        let sent = world.origin.server.sent_bytes();
        let most = stored.len() as u64 * 11 / 10;
        assert!(sent < most, "{profile}: {sent} of {}", stored.len());
        assert_eq!(world.origin.requests_for("/1.tar").len(), 0);
        let heads = world.origin.requests_for("/1.tar.czip").into_iter();
        assert_eq!(heads.filter(|request| request.method == "HEAD").count(), 1);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_done_without() {
    for profile in [Profile::Small, Profile::Shared] {
        let world = World::with(|options| {
            fs::write(&options.cache.folder, b"a file").expect("written");
        });
        let content = release(1);
        let stored = archive_of(&content, &creating(profile), false);
        world.origin.put("/1.tar.czip", &stored, "\"1\"");
        for _ in 0..2 {
            assert!(world.get("/1.tar", &[]).body == content);
        }
        let status = world.status();
        assert!(!status.folder_is_writable);
        assert_eq!(status.folder_chunks, 0);
        // Memory has them.
        let sent = world.origin.server.sent_bytes();
        assert!(sent < stored.len() as u64 * 11 / 10, "{profile}: {sent}");
    }
}

#[test]
fn with_no_room_at_all_the_content_is_right() {
    for profile in [Profile::Small, Profile::Shared] {
        let world = World::with(|options| {
            bound(options, 0);
            options.serve.cache_bytes = 0;
        });
        let content = noise(1, 300_000);
        let stored = archive_of(&content, &creating(profile), false);
        world.origin.put("/x.czip", &stored, "\"1\"");
        assert!(world.get("/x", &[]).body == content);
        assert!(world.status().clients.cache_bytes == 0);
    }
}

#[test]
fn memory_and_folder_keep_their_bounds() {
    let bytes_max = 3 << 20;
    let world = World::with(|options| {
        bound(options, bytes_max);
        options.serve.cache_bytes = 1 << 20;
    });
    for number in 0..4 {
        let content = noise(number, 2_000_000);
        let stored = archive_of(&content, &creating(Profile::Small), false);
        let path = format!("/{number}");
        world.origin.put(&format!("{path}.czip"), &stored, "\"1\"");
        assert!(world.get(&path, &[]).body == content);
        assert!(world.status().clients.cache_bytes <= 1 << 20);
        let files = fs::read_dir(world.cache()).expect("a folder");
        let taken: u64 = files
            .map(|file| file.expect("a file").metadata().expect("readable").len())
            .sum();
        assert!(taken <= bytes_max, "{taken}");
    }
}

#[test]
fn damage_on_disk_costs_fetching_and_no_more() {
    let mut world = World::new();
    let content = release(1);
    let stored = archive_of(&content, &creating(Profile::Small), false);
    world.origin.put("/1.tar.czip", &stored, "\"1\"");
    assert!(world.get("/1.tar", &[]).body == content);
    world.stop();
    world.wait();
    for file in fs::read_dir(world.cache()).expect("a folder") {
        let path = file.expect("a file").path();
        let mut bytes = fs::read(&path).expect("readable");
        let step = (bytes.len() / 10).max(1);
        for at in (0..bytes.len()).step_by(step) {
            bytes[at] ^= 1;
        }
        fs::write(&path, bytes).expect("written");
    }
    let world = world.again();
    assert!(world.get("/1.tar", &[]).body == content);
    assert!(world.status().chunks_fetched > 0);
}

#[test]
fn it_ends_when_what_is_being_sent_is_sent() {
    let mut world = World::new();
    let content = noise(1, 6_000_000);
    let stored = archive_of(&content, &Default::default(), false);
    world.origin.put("/x.czip", &stored, "\"1\"");
    let mut client = world.client();
    client.ask("GET", "/x", &[], b"");
    let head = client.head().expect("it begins");
    assert_eq!(head.status, 200);
    world.stop();
    let mut body = Vec::new();
    while body.len() < content.len() {
        let piece = client.try_read(1 << 20);
        assert!(!piece.is_empty(), "cut at {}", body.len());
        body.extend_from_slice(&piece);
    }
    assert!(body == content);
    world.wait();
}
