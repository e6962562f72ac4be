//! Damaged and encrypted archives.

use std::fs;

use refrain_czip_format::header::Profile;

use super::world::{World, letters, options};

#[test]
fn a_damaged_archive_fails_its_own_requests_alone() {
    let world = World::new();
    let content = letters(1, 500_000);
    for profile in [Profile::Small, Profile::Shared] {
        world.archive("good.czip", &content, &options(profile));
        let good = fs::read(world.path("good.czip")).expect("it was made");
        // From now on the server has intact parts in memory.
        assert!(world.get("/good.czip", &[]).body == good);
        assert!(world.get("/good", &[]).body == content);
        for at in (0..good.len()).step_by(good.len() / 40) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(world.path("bad.czip"), &bad).expect("a new file");
            // The archive as it is has the damage of the file, for its readers to find.
            assert!(world.get("/bad.czip", &[]).body == bad, "{at} {profile}");
            let last = (at + 99).min(bad.len() - 1);
            let range = format!("bytes={at}-{last}");
            let part = world.get("/bad.czip", &[("Range", &range)]);
            assert_eq!(part.status, 206, "{at} {profile}");
            assert!(part.body == bad[at..=last], "{at} {profile}");
            let mut client = world.client();
            client.ask("GET", "/bad", &[], b"");
            match client.answer(false) {
                // Room that nothing points to is nobody's.
                Some(answer) if answer.status == 200 => {
                    assert!(answer.body == content, "{at} {profile}");
                }
                // What does not begin as an archive does is none.
                Some(answer) if at < 8 => assert_eq!(answer.status, 404),
                Some(answer) => assert_eq!(answer.status, 500, "{at}"),
                None => {}
            }
            let answer = world.get("/good", &[]);
            assert!(answer.body == content, "{at} {profile}");
        }
        for cut in [0, 1, 255, 256, good.len() / 2, good.len() - 1] {
            fs::write(world.path("bad.czip"), &good[..cut]).expect("a new file");
            // Of nothing it cannot be said that it began as an archive.
            let status = if cut == 0 { 404 } else { 500 };
            assert_eq!(world.get("/bad", &[]).status, status, "cut at {cut}");
            assert!(world.get("/bad.czip", &[]).body == good[..cut], "{cut}");
        }
    }
}

#[test]
fn a_file_that_is_called_an_archive_and_is_none_is_served_as_it_is() {
    let world = World::new();
    world.archive("good.czip", b"content", &options(Profile::Shared));
    for junk in [&b"junk"[..], &[b'x'; 10_000]] {
        fs::write(world.path("junk.czip"), junk).expect("a new file");
        let answer = world.get("/junk.czip", &[("Range", "bytes=1-2")]);
        assert_eq!((answer.status, &answer.body[..]), (206, &junk[1..3]));
        assert!(world.get("/junk.czip", &[]).body == junk);
        for path in ["/junk", "/junk/", "/junk/within"] {
            assert_eq!(world.get(path, &[]).status, 404, "{path}");
        }
        assert_eq!(world.get("/good", &[]).body, b"content");
    }
    assert_eq!(world.status().requests_failed, 0);
}

#[test]
fn no_archive_passes_its_bytes_off_as_those_of_another() {
    let world = World::new();
    let content = letters(1, 500_000);
    world.archive("good.czip", &content, &options(Profile::Shared));
    let honest = fs::read(world.path("good.czip")).expect("it was made");
    world.archive("bad.czip", &letters(2, 500_000), &options(Profile::Shared));
    let other = fs::read(world.path("bad.czip")).expect("it was made");
    // Frames of another content, under the table of this one.
    let mut bad = honest.clone();
    let common = bad.len().min(other.len());
    let (from, to) = (common / 4, common / 2);
    bad[from..to].copy_from_slice(&other[from..to]);
    fs::write(world.path("bad.czip"), bad).expect("a new file");
    let mut client = world.client();
    client.ask("GET", "/bad", &[], b"");
    let answer = client.answer(false);
    assert!(answer.is_none_or(|answer| answer.status == 500));
    assert!(world.get("/good", &[]).body == content);
}
