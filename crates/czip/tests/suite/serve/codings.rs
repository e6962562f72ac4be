//! What is encoded while it is sent decodes to what it is of.

use std::io::Read;

use refrain_czip_format::header::Profile;

use super::world::{World, letters, options, tar_of};

fn decode(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let read = match coding {
        "zstd" => return zstd::decode_all(body).expect("zstd"),
        "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut plain),
        other => panic!("{other}"),
    };
    read.expect(coding);
    plain
}

#[test]
fn every_coding_decodes_to_the_content_and_has_a_tag_of_its_own() {
    let world = World::new();
    let content = tar_of(1, [300_000, 700_000, 12]);
    world.archive("a.tar.czip", &content, &options(Profile::Small));
    let plain = world.get("/a.tar", &[]);
    assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
    let mut tags = vec![plain.header("etag").expect("a tag").to_owned()];
    for coding in ["zstd", "gzip"] {
        let accept = ("Accept-Encoding", coding);
        let answer = world.get("/a.tar", &[accept]);
        assert_eq!(answer.header("content-encoding"), Some(coding));
        assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
        assert!(answer.body.len() < content.len() * 9 / 10, "{coding}");
        assert!(decode(coding, &answer.body) == content, "{coding}");
        let tag = answer.header("etag").expect("a tag").to_owned();
        let again = world.get("/a.tar", &[accept, ("If-None-Match", &tag)]);
        assert_eq!(again.status, 304, "{coding}");
        let identity = world.get("/a.tar", &[("If-None-Match", &tag)]);
        assert_eq!(identity.status, 200, "{coding}");
        assert!(!tags.contains(&tag), "{coding}");
        tags.push(tag);
        let head = world.head("/a.tar", &[accept]);
        assert_eq!(head.header("content-encoding"), Some(coding));
        assert_eq!(head.header("content-length"), None, "nobody knows it yet");
    }
}

#[test]
fn ranges_and_what_does_not_compress_are_sent_as_they_are() {
    let world = World::new();
    let mut random = fastrand::Rng::with_seed(1);
    let noise: Vec<u8> = (0..300_000).map(|_| random.u8(..)).collect();
    world.archive("noise.czip", &noise, &options(Profile::Shared));
    let letters = letters(1, 300_000);
    world.archive("letters.czip", &letters, &options(Profile::Shared));
    let accept = ("Accept-Encoding", "zstd, gzip");
    let answer = world.get("/noise", &[accept]);
    assert_eq!(answer.header("content-encoding"), None);
    assert!(answer.body == noise);
    let archive = world.get("/letters.czip", &[accept]);
    assert_eq!(archive.header("content-encoding"), None);
    let range = world.get("/letters", &[accept, ("Range", "bytes=100-200000")]);
    assert_eq!(
        (range.status, range.header("content-encoding")),
        (206, None)
    );
    assert!(range.body == letters[100..=200_000]);
}

#[test]
fn past_the_number_of_encoders_bytes_go_as_they_are() {
    let world = World::with(refrain_czip::serve::ServeOptions {
        encoders_max: 0,
        ..Default::default()
    });
    let letters = letters(1, 300_000);
    world.archive("letters.czip", &letters, &options(Profile::Shared));
    let answer = world.get("/letters", &[("Accept-Encoding", "gzip")]);
    assert_eq!(answer.header("content-encoding"), None);
    assert!(answer.body == letters);
}
