//! Damaged and encrypted archives.

use std::fs;

use refrain_czip::format::header::Profile;

use super::world::{World, letters, options};

#[test]
fn a_damaged_archive_fails_its_own_requests_alone() {
    let world = World::new();
    let content = letters(1, 500_000);
    for profile in [Profile::Small, Profile::Shared] {
        world.archive("good.czip", &content, &options(profile));
        let good = fs::read(world.path("good.czip")).expect("it was made");
        for at in (0..good.len()).step_by(good.len() / 40) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(world.path("bad.czip"), &bad).expect("a new file");
            for (path, whole) in [("/bad", &content), ("/bad.czip", &bad)] {
                let mut client = world.client();
                client.ask("GET", path, &[], b"");
                match client.answer(false) {
                    // Room that nothing points to is nobody's.
                    Some(answer) if answer.status == 200 => {
                        assert!(answer.body == *whole, "{path} at {at} {profile}");
                    }
                    Some(answer) => assert_eq!(answer.status, 500, "{path} at {at}"),
                    None => {}
                }
            }
            let answer = world.get("/good", &[]);
            assert!(answer.body == content, "{at} {profile}");
        }
        for cut in [0, 1, 255, 256, good.len() / 2, good.len() - 1] {
            fs::write(world.path("bad.czip"), &good[..cut]).expect("a new file");
            assert_eq!(world.get("/bad", &[]).status, 500, "cut at {cut}");
            assert_eq!(world.get("/bad.czip", &[]).status, 500, "cut at {cut}");
        }
    }
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
