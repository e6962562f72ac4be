//! Archives that appear, change and go while the server runs.

use std::{
    fs,
    os::unix::fs::FileExt,
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
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
fn an_archive_that_changes_while_it_is_sent_is_cut_off_and_never_mixed() {
    let world = World::with(refrain_czip::serve::ServeOptions {
        cache_bytes: 1 << 20,
        ..Default::default()
    });
    let content = letters(1, 20_000_000);
    world.archive("of", &content, &options(Profile::Shared));
    let stored = fs::read(world.path("of")).expect("it was made");
    let zeros = vec![0; stored.len()];
    let file = world.path("a.czip");
    let put = |bytes: &[u8]| {
        fs::write(world.path("new"), bytes).expect("a new file");
        fs::rename(world.path("new"), &file).expect("it replaces");
    };
    for (path, old) in [("/a", &content), ("/a.czip", &stored)] {
        for change in ["written over", "truncated", "replaced"] {
            put(&stored);
            let opened = fs::File::options().write(true).open(&file);
            let opened = opened.expect("it is there");
            // Clocks of file systems are coarse.
            opened.set_modified(UNIX_EPOCH).expect("its time");
            let mut client = world.client();
            client.ask("GET", path, &[], b"");
            assert_eq!(client.head().expect("an answer").status, 200);
            let mut received = client.read_some(100_000).len();
            match change {
                "written over" => opened.write_all_at(&zeros, 0).expect("written over"),
                "truncated" => opened.set_len(stored.len() as u64 / 2).expect("shorter"),
                _ => put(&zeros),
            }
            // Behind a whole answer the connection stays open.
            while received < old.len() {
                let piece = client.read_some(1 << 20);
                if piece.is_empty() {
                    break;
                }
                let expected = &old[received..received + piece.len()];
                assert!(piece == expected, "{path} {change}");
                received += piece.len();
            }
            let is_whole = received == old.len();
            assert_eq!(is_whole, change == "replaced", "{path}: {received}");
        }
    }
}
