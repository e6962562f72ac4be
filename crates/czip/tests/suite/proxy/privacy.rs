//! What the origin sends to one client only.

use refrain_czip_format::header::Profile;

use super::{
    server::Reply,
    world::{World, archive_of, creating, release},
};

/// An origin whose archive has other content than the file beside it: so it shows which was sent.
fn world(change: impl Fn(Reply) -> Reply + Send + Sync + 'static) -> World {
    let world = World::new();
    let stored = archive_of(&release(1), &creating(Profile::Small), false);
    world.origin.put("/x.czip", &stored, "\"1\"");
    world.origin.put("/x", b"plain", "\"plain\"");
    world
        .origin
        .change(move |request, reply| match &request.path[..] {
            "/x.czip" => change(reply),
            _ => reply,
        });
    world
}

#[test]
fn an_archive_that_any_line_marks_private_is_not_shared() {
    for lines in [
        &["private"][..],
        &["max-age=60", "private"],
        &["private", "max-age=60"],
        &["max-age=60", "public", "x, No-Store"],
        &["max-age=60", "\u{fc}"],
    ] {
        let world = world(move |mut reply| {
            for line in lines {
                let field = ("Cache-Control".to_owned(), (*line).to_owned());
                reply.headers.push(field);
            }
            reply
        });
        assert_eq!(world.get("/x", &[]).body, b"plain", "{lines:?}");
        assert_eq!(world.status().folder_chunks, 0, "{lines:?}");
    }
    let world = world(|reply| reply.with("Vary", "*"));
    assert_eq!(world.get("/x", &[]).body, b"plain");
    let world = self::world(|reply| reply.with("Vary", "Accept-Encoding"));
    assert!(world.get("/x", &[]).body == release(1));
}

#[test]
fn a_client_that_says_who_it_is_gets_what_the_origin_has_for_it() {
    let world = world(|reply| reply);
    for (name, value) in [("Cookie", "me=1"), ("Authorization", "Basic bWU6eW91")] {
        // Before others have had it, and afterwards.
        for _ in 0..2 {
            let answer = world.get("/x", &[(name, value)]);
            assert_eq!(answer.body, b"plain", "{name}");
            assert!(world.get("/x", &[]).body == release(1));
        }
        let asked = world.origin.requests_for("/x");
        let name = name.to_lowercase();
        assert!(
            asked
                .iter()
                .any(|request| request.header(&name) == Some(value))
        );
    }
    // What is asked for the proxy itself has nothing of the clients.
    for request in world.origin.requests_for("/x.czip") {
        assert_eq!(
            (request.header("cookie"), request.header("authorization")),
            (None, None)
        );
    }
}
