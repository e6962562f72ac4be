//! Origins whose archives come, change and go.

use std::time::Duration;

use refrain_czip_format::header::Profile;

use super::{
    draft::Draft,
    world::{World, archive_of, creating, release},
};

#[test]
fn what_the_origin_said_is_remembered() {
    let world = World::new();
    world.origin.put("/x", b"plain", "\"plain\"");
    for _ in 0..3 {
        assert_eq!(world.get("/x", &[]).body, b"plain");
    }
    assert_eq!(world.origin.requests_for("/x").len(), 3);
    assert_eq!(world.origin.requests_for("/x.czip").len(), 1);
}

#[test]
fn an_archive_that_comes_changes_and_goes_is_noticed() {
    let world = World::with(|options| options.remembered = Duration::ZERO);
    let path = "/x.czip";
    let put = |number: u64, tag| {
        let stored = archive_of(&release(number), &creating(Profile::Small), false);
        world.origin.put(path, &stored, tag);
    };
    world.origin.put("/x", b"plain", "\"plain\"");
    assert_eq!(world.get("/x", &[]).body, b"plain");
    put(1, "\"1\"");
    assert!(world.get("/x", &[]).body == release(1));
    let before = world.origin.requests_for(path).len();
    assert!(world.get("/x", &[]).body == release(1));
    let more = world.origin.requests_for(path).len() - before;
    assert_eq!(more, 1, "its validators are the same");
    put(2, "\"2\"");
    assert!(world.get("/x", &[]).body == release(2));
    world.origin.remove(path);
    assert_eq!(world.get("/x", &[]).body, b"plain");
}

#[test]
fn an_archive_without_validators_is_opened_anew() {
    let world = World::with(|options| options.remembered = Duration::ZERO);
    world.origin.change(|_, reply| reply.without("ETag"));
    for number in [1, 2] {
        let stored = archive_of(&release(number), &creating(Profile::Small), false);
        world.origin.put("/x.czip", &stored, "");
        assert!(world.get("/x", &[]).body == release(number));
    }
}

#[test]
fn an_archive_without_validators_is_opened_anew_even_if_it_is_as_long() {
    let world = World::with(|options| options.remembered = Duration::ZERO);
    world.origin.change(|_, reply| reply.without("ETag"));
    for byte in *b"12" {
        let content = [byte; 3000];
        let stored = Draft::honest(&[&content]).build();
        world.origin.put("/x.czip", &stored, "");
        assert!(world.get("/x", &[]).body == content);
    }
}

#[test]
fn an_origin_that_fails_for_a_while_has_what_it_had() {
    let world = World::with(|options| options.remembered = Duration::ZERO);
    let stored = archive_of(&release(1), &creating(Profile::Small), false);
    world.origin.put("/x.czip", &stored, "\"1\"");
    assert!(world.get("/x", &[]).body == release(1));
    world
        .origin
        .change(|_, _| crate::server::Reply::new(503, "later"));
    assert!(world.get("/x", &[]).body == release(1));
    assert_eq!(world.get("/y", &[]).status, 503);
}

#[test]
fn an_archive_that_changes_while_it_is_open_gives_no_wrong_bytes() {
    // What is remembered of it is wrong now.
    let world = World::new();
    let stored = archive_of(&release(1), &creating(Profile::Small), false);
    world.origin.put("/x.czip", &stored, "\"1\"");
    world.origin.put("/x", &release(2), "\"plain\"");
    let part = world.get("/x", &[("Range", "bytes=0-9999")]);
    assert!(part.body == release(1)[..10_000]);
    let stored = archive_of(&release(2), &creating(Profile::Small), false);
    world.origin.put("/x.czip", &stored, "\"2\"");
    // It is cut off, or does not begin.
    if let Some(answer) = world.try_get("/x", &[]) {
        assert!(answer.body == release(2));
    }
    assert!(world.get("/x", &[]).body == release(2));
}

#[test]
fn equal_archives_of_several_servers_are_one_whatever_they_are_called() {
    for remembered in [Duration::ZERO, Duration::from_secs(600)] {
        let world = World::with(|options| options.remembered = remembered);
        let stored = archive_of(&release(1), &creating(Profile::Small), false);
        let mirrors = ["\"a\"", "\"b\"", "\"c\""].map(|etag| crate::server::File {
            bytes: stored.clone(),
            etag,
        });
        world.origin.put("/x.czip", &stored, "");
        world
            .origin
            .change(move |request, reply| match &request.path[..] {
                "/x.czip" => mirrors[request.number * request.number % 7 % 3].reply(request),
                _ => reply,
            });
        for begin in [0, 100_000, 700_000, 0] {
            let range = format!("bytes={begin}-");
            let answer = world.get("/x", &[("Range", &range)]);
            assert!(answer.body == release(1)[begin..], "{begin}");
        }
        assert_eq!(world.status().answers_passed, 0);
    }
}
