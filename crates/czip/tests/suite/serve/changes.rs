//! Archives that appear, change and go while the server runs.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use refrain_czip_format::header::Profile;

use super::world::{World, letters, options};

#[test]
fn what_appears_is_there_and_what_goes_is_not() {
    let world = World::new();
    assert_eq!(world.get("/a", &[]).status, 404);
    world.archive("a.czip", &letters(1, 100_000), &options(Profile::Shared));
    assert_eq!(world.get("/a", &[]).body, letters(1, 100_000));
    world.archive("a.czip", &letters(2, 100_000), &options(Profile::Shared));
    assert_eq!(world.get("/a", &[]).body, letters(2, 100_000));
    fs::remove_file(world.path("a.czip")).expect("it is there");
    assert_eq!(world.get("/a", &[]).status, 404);
}

#[test]
fn an_archive_that_is_replaced_under_load_is_served_whole_the_old_or_the_new() {
    let world = World::new();
    let contents: Vec<_> = (0..3)
        .map(|seed| [letters(seed, 700_000), letters(9, 1_500_000)].concat())
        .collect();
    for (number, content) in contents.iter().enumerate() {
        let profile = if number == 1 {
            Profile::Small
        } else {
            Profile::Shared
        };
        world.archive(&format!("{number}.of"), content, &options(profile));
    }
    let put = |number: usize| {
        fs::copy(world.path(&format!("{number}.of")), world.path("new")).expect("a copy");
        fs::rename(world.path("new"), world.path("a.czip")).expect("it replaces");
    };
    put(0);
    let end = Instant::now() + Duration::from_secs(3);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let answer = world.get("/a", &[]);
                    let of = contents.iter().position(|content| *content == answer.body);
                    let number = of.expect("old or new, and whole");
                    let tag = answer.header("etag").expect("a tag");
                    // The tag is the content's, so that nobody joins parts of two.
                    let range = world.get("/a", &[("Range", "bytes=1000-"), ("If-Range", tag)]);
                    match range.status {
                        206 => assert!(range.body == contents[number][1000..]),
                        _ => assert!(contents.contains(&range.body)),
                    }
                }
            });
        }
        for number in (0..3).cycle() {
            if Instant::now() >= end {
                break;
            }
            put(number);
            thread::sleep(Duration::from_millis(30));
        }
    });
    assert_eq!(world.status().requests_failed, 0);
}

#[test]
fn an_archive_that_is_written_over_in_place_is_cut_off_and_never_mixed() {
    let world = World::with(refrain_czip::serve::ServeOptions {
        cache_bytes: 1 << 20,
        ..Default::default()
    });
    let old = letters(1, 20_000_000);
    world.archive("a.czip", &old, &options(Profile::Shared));
    let mut client = world.client();
    client.ask("GET", "/a", &[], b"");
    let head = client.head().expect("an answer");
    assert_eq!(head.status, 200);
    let begun = client.read_some(100_000);
    assert!(begun == old[..begun.len()]);
    let bytes = fs::metadata(world.path("a.czip"))
        .expect("it is there")
        .len();
    fs::write(world.path("a.czip"), vec![0; bytes as usize]).expect("written over");
    let mut received = begun.len();
    loop {
        let piece = client.read_some(1 << 20);
        if piece.is_empty() {
            break;
        }
        assert!(piece == old[received..received + piece.len()]);
        received += piece.len();
    }
    assert!(received < old.len(), "the rest is gone");
}
