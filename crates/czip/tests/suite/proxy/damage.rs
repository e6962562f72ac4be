//! Archives that cannot be used: never wrong bytes, and never worse than without the proxy.

use std::{
    fs,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use refrain_czip::create::Input;
use refrain_czip_format::header::Profile;

use super::{
    draft::{CONTENT, Draft, with_header_digest},
    server::{Ending, Reply},
    world::{Origin, World, archive, archive_of, creating, noise, release},
};

/// Asks until the answer is whole, which it is the second time at the latest.
#[track_caller]
fn get_twice(world: &World, path: &str) -> Vec<u8> {
    match world.try_get(path, &[]) {
        Some(answer) => {
            assert_eq!(answer.status, 200);
            answer.body
        }
        None => world.get(path, &[]).body,
    }
}

#[test]
fn where_an_archive_is_damaged_the_plain_file_comes() {
    let content = release(1);
    for profile in [Profile::Small, Profile::Shared] {
        let good = archive_of(&content, &creating(profile), false);
        let world = World::new();
        let mut fell_back = 0;
        for (number, at) in (0..good.len()).step_by(good.len() / 24).enumerate() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let path = format!("/{number}");
            world.origin.put(&path, &content, "\"plain\"");
            world.origin.put(&format!("{path}.czip"), &bad, "\"bad\"");
            assert!(get_twice(&world, &path) == content, "{profile} at {at}");
            fell_back = world.status().answers_fell_back;
        }
        // The first is in the header. What is kept of others may do for some of the damage.
        assert!(fell_back > 0);
    }
}

#[test]
fn where_an_archive_of_a_folder_is_damaged_the_plain_file_comes_or_the_reason_why_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = folder.path().join("site");
    fs::create_dir(&site).expect("a folder");
    // In one frame.
    fs::write(site.join("page"), noise(1, 10_000)).expect("written");
    let good = archive(vec![Input::Path(site)], &creating(Profile::Small), false);
    // In the header, and in the frame, where the first answer shows it.
    for at in [100, good.len() / 2] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let world = World::new();
        world.origin.put("/x.czip", &bad, "\"bad\"");
        for path in ["/x/site/page", "/x/site/page", "/x/site/", "/x"] {
            let answer = world.get(path, &[]);
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(answer.status, 502, "{path} {at}: {said}");
            let reason = format!("does not have {path}, and its archive /x.czip cannot be used: ");
            assert!(said.contains(&reason), "{said}");
        }
        assert_eq!(world.status().answers_fell_back, 4);
        assert_eq!(world.get("/y/site/page", &[]).status, 404);
        world.origin.put("/x/site/page", b"plain", "\"plain\"");
        assert_eq!(world.get("/x/site/page", &[]).body, b"plain");
    }
}

#[test]
fn what_is_damaged_on_its_way_is_asked_for_again() {
    let content = release(1);
    for profile in [Profile::Small, Profile::Shared] {
        let world = World::new();
        // With no plain file to fall back on.
        let archive = archive_of(&content, &creating(profile), false);
        world.origin.put("/x.czip", &archive, "\"archive\"");
        // Every other answer; of the first one, a frame, since the root is far in front.
        let answers = AtomicU64::new(0);
        world.origin.change(move |request, mut reply| {
            let is_part = request.range(1 << 40).is_some();
            if is_part && answers.fetch_add(1, Relaxed).is_multiple_of(2) {
                *reply.body.last_mut().expect("not empty") ^= 1;
            }
            reply
        });
        assert!(world.get("/x", &[]).body == content, "{profile}");
        assert_eq!(world.status().answers_fell_back, 0, "{profile}");
    }
}

#[test]
fn where_an_archive_is_none_or_cut_the_plain_file_comes() {
    let content = release(1);
    let good = archive_of(&content, &creating(Profile::Small), false);
    let world = World::new();
    let cuts = [0, 1, 255, 256, good.len() / 2, good.len() - 1];
    for (number, cut) in cuts.into_iter().enumerate() {
        let path = format!("/{number}");
        world.origin.put(&path, &content, "\"plain\"");
        world
            .origin
            .put(&format!("{path}.czip"), &good[..cut], "\"bad\"");
        let answer = world.get(&path, &[]);
        assert!(answer.body == content, "cut at {cut}");
        assert_eq!(answer.header("etag"), Some("\"plain\""));
    }
    world.origin.put("/page", &content, "\"plain\"");
    world.origin.put(
        "/page.czip",
        b"<html>not found, with a status of 200",
        "\"bad\"",
    );
    assert!(world.get("/page", &[]).body == content);
}

#[test]
fn an_archive_that_claims_more_than_there_is_costs_no_memory() {
    let content = release(1);
    let good = archive_of(&content, &creating(Profile::Shared), false);
    let world = World::new();
    // Lengths of the file, of the content, of the unique and the stored bytes; chunks; the root.
    let claims = [40, 48, 56, 64, 80, 88, 128].into_iter();
    let claims = claims.flat_map(|at| [u64::MAX, 1 << 62, 1 << 40].map(|claimed| (at, claimed)));
    for (number, (at, claimed)) in claims.enumerate() {
        let mut hostile = good.clone();
        hostile[at..at + 8].copy_from_slice(&claimed.to_le_bytes());
        let path = format!("/{number}");
        world.origin.put(&path, &content, "\"plain\"");
        let hostile = with_header_digest(hostile);
        world
            .origin
            .put(&format!("{path}.czip"), &hostile, "\"bad\"");
        assert!(world.get(&path, &[]).body == content, "{at} {claimed}");
    }
}

#[test]
fn an_origin_that_encodes_archives_has_its_plain_files_passed() {
    let content = release(1);
    let world = World::new();
    let stored = archive_of(&content, &creating(Profile::Small), false);
    world.origin.put("/x", &content, "\"plain\"");
    world.origin.put("/x.czip", &stored, "\"archive\"");
    world.origin.change(|request, reply| match &*request.path {
        "/x.czip" => reply.with("Content-Encoding", "gzip"),
        _ => reply,
    });
    assert!(world.get("/x", &[]).body == content);
}

#[test]
fn what_may_not_be_shared_is_passed() {
    let content = release(1);
    let stored = archive_of(&content, &creating(Profile::Small), false);
    for (cache_control, is_shared) in [
        ("max-age=5, Private", false),
        ("no-store", false),
        ("max-age=5", true),
    ] {
        let world = World::new();
        world.origin.put("/x", b"plain", "\"plain\"");
        world.origin.put("/x.czip", &stored, "\"archive\"");
        world
            .origin
            .change(move |request, reply| match &*request.path {
                "/x.czip" => reply.with("Cache-Control", cache_control),
                _ => reply,
            });
        let expected = if is_shared { &content[..] } else { b"plain" };
        assert!(world.get("/x", &[]).body == expected, "{cache_control}");
    }
}

#[test]
fn an_archive_that_is_of_no_use_is_let_alone_for_a_while() {
    let world = World::with(|options| options.remembered = Duration::ZERO);
    world.origin.put("/x", b"plain", "\"plain\"");
    world.origin.put("/x.czip", &[7; 1000], "\"bad\"");
    for _ in 0..3 {
        assert_eq!(world.get("/x", &[]).body, b"plain");
    }
    let asked = world.origin.requests_for("/x.czip").into_iter();
    let heads = asked.filter(|request| request.method == "HEAD");
    assert_eq!(heads.count(), 1);
}

#[test]
fn an_archive_that_leads_to_another_server_is_not_followed() {
    let content = release(1);
    let stored = archive_of(&content, &creating(Profile::Small), false);
    let other = Origin::new();
    other.put("/x.czip", &stored, "\"archive\"");
    let location = format!("{}/x.czip", other.url());
    let world = World::new();
    world.origin.put("/x", b"plain", "\"plain\"");
    world.origin.put("/x.czip", &stored, "\"archive\"");
    world.origin.change(
        move |request, reply| match (&*request.path, &*request.method) {
            ("/x.czip", "GET") => Reply::new(302, "").with("Location", &location),
            _ => reply,
        },
    );
    assert_eq!(world.get("/x", &[]).body, b"plain");
    assert_eq!(other.server.requests().len(), 0);
}

#[test]
fn an_archive_of_pieces_without_number_has_its_plain_file_passed() {
    // One chunk of a byte, again and again.
    let count = 300_000;
    let mut draft = Draft::honest(&[b"."]);
    (draft.streams[CONTENT].runs).push(((count - 2) << 2 | 2, Some(0)));
    draft.catalog(&[(0, b"", count, b"")]);
    draft.plain_bytes = count;
    let world = World::new();
    world.origin.put("/x", b"plain", "\"plain\"");
    world.origin.put("/x.czip", &draft.build(), "\"archive\"");
    assert_eq!(world.get("/x", &[]).body, b"plain");
    assert_eq!(world.status().answers_fell_back, 1);
}

#[test]
fn an_origin_that_dies_in_the_middle_cuts_the_answer_short() {
    // More than is fetched at once.
    let content = noise(1, 12_000_000);
    let stored = archive_of(&content, &Default::default(), false);
    let world = World::new();
    world.origin.put("/x", &content, "\"plain\"");
    world.origin.put("/x.czip", &stored, "\"archive\"");
    let len = stored.len() as u64;
    world.origin.change(move |request, reply| {
        // Of frames, not of the table.
        let is_cut = |range: std::ops::Range<u64>| {
            range.start > 3_000_000 && range.end - range.start > 1_000_000
        };
        match request.range(len).is_some_and(is_cut) {
            true => reply.ending(Ending::Cut(1000)),
            false => reply,
        }
    });
    let mut client = world.client();
    client.ask("GET", "/x", &[], b"");
    let head = client.head().expect("an answer begins");
    assert_eq!(head.header("content-length"), Some("12000000"));
    assert_ne!(head.header("etag"), Some("\"plain\""));
    let mut body = Vec::new();
    loop {
        let piece = client.try_read(1 << 20);
        if piece.is_empty() {
            break;
        }
        body.extend_from_slice(&piece);
    }
    let (got, all) = (body.len(), content.len());
    assert!(0 < got && got < all, "{got} of {all}");
    assert!(content.starts_with(&body));
    // Who asks again gets the plain file.
    let again = world.get("/x", &[]);
    assert_eq!(again.header("etag"), Some("\"plain\""));
    assert!(again.body == content);
}

#[test]
fn an_archive_whose_frames_do_not_come_is_given_up_before_anything_is_promised() {
    let content = release(1);
    let stored = archive_of(&content, &creating(Profile::Shared), false);
    let world = World::new();
    world.origin.put("/x", &content, "\"plain\"");
    world.origin.put("/x.czip", &stored, "\"archive\"");
    world.origin.change(move |request, reply| {
        let range = request.range(1 << 40);
        match range.is_some_and(|range| range.end > 200_000) {
            true => Reply::new(403, "no"),
            false => reply,
        }
    });
    let answer = world.get("/x", &[]);
    assert_eq!(answer.header("etag"), Some("\"plain\""));
    assert!(answer.body == content);
    assert_eq!(world.status().answers_fell_back, 1);
}
