//! Conditional requests.

use std::fs;

use refrain_czip_format::header::Profile;

use super::world::{World, letters, options};

#[test]
fn conditions_hold_as_rfc_9110_says() {
    let world = World::new();
    let content = letters(1, 400_000);
    world.archive("a.czip", &content, &options(Profile::Small));
    fs::write(world.path("plain"), &content).expect("a new file");
    let old = fs::File::options()
        .write(true)
        .open(world.path("plain"))
        .expect("it is there");
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
    old.set_modified(time).expect("its time");
    let archive = fs::File::options().write(true).open(world.path("a.czip"));
    archive
        .expect("it is there")
        .set_modified(time)
        .expect("its time");
    let before = "Sun, 13 Sep 2020 12:26:39 GMT";
    let then = "Sun, 13 Sep 2020 12:26:40 GMT";
    for path in ["/a", "/a.czip", "/plain"] {
        let tag = world
            .get(path, &[])
            .header("etag")
            .expect("a tag")
            .to_owned();
        assert!(tag.starts_with('"'), "it is a strong one: {tag}");
        let weak = format!("W/{tag}");
        let several = format!("\"x\", {weak}");
        let range = ("Range", "bytes=5-9");
        for (headers, status) in [
            (vec![("If-None-Match", &*tag)], 304),
            (vec![("If-None-Match", &*several)], 304),
            (vec![("If-None-Match", "*")], 304),
            (vec![("If-None-Match", "\"x\"")], 200),
            (
                vec![("If-None-Match", "\"x\""), ("If-Modified-Since", then)],
                200,
            ),
            (vec![("If-Modified-Since", then)], 304),
            (vec![("If-Modified-Since", before)], 200),
            (vec![("If-Match", &*tag)], 200),
            (vec![("If-Match", &*weak)], 412),
            (vec![("If-Match", "\"x\"")], 412),
            (vec![("If-Unmodified-Since", then)], 200),
            (vec![("If-Unmodified-Since", before)], 412),
            (vec![range, ("If-Range", &*tag)], 206),
            (vec![range, ("If-Range", "\"x\"")], 200),
            (vec![range, ("If-Range", &*weak)], 200),
            (vec![range, ("If-Range", then)], 206),
            (vec![range, ("If-Range", before)], 200),
            (vec![range, ("If-None-Match", &*tag)], 304),
            (vec![("Range", "bytes=0-1,5-6")], 200),
            (vec![("Range", "bytes=99999999-")], 416),
        ] {
            let answer = world.get(path, &headers);
            assert_eq!(answer.status, status, "{path} {headers:?}");
            match status {
                206 => assert_eq!(answer.body.len(), 5),
                304 => assert_eq!(answer.header("etag"), Some(&*tag)),
                _ => {}
            }
        }
        let head = world.head(path, &[range]);
        assert_eq!(head.status, 200, "ranges are of GET alone");
    }
}

#[test]
fn equal_contents_have_equal_tags_and_others_others() {
    let world = World::new();
    let content = letters(1, 400_000);
    world.archive("one.czip", &content, &options(Profile::Small));
    world.archive("two.czip", &content, &options(Profile::Shared));
    world.archive("three.czip", &letters(2, 400_000), &options(Profile::Small));
    let tag = |path: &str| world.head(path, &[]).header("etag").map(str::to_owned);
    assert_eq!(tag("/one"), tag("/two"));
    assert_ne!(tag("/one"), tag("/three"));
    assert_ne!(tag("/one.czip"), tag("/two.czip"));
}

#[test]
fn a_date_tells_nothing_of_a_file_that_may_change_within_its_second() {
    let world = World::new();
    fs::write(world.path("plain"), letters(1, 1000)).expect("a new file");
    let modified = world.head("/plain", &[]);
    let modified = modified.header("last-modified").expect("a date");
    let answer = world.get("/plain", &[("Range", "bytes=0-1"), ("If-Range", modified)]);
    assert_eq!(answer.status, 200);
}
