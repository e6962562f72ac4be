//! Archives whose tables name chunks falsely: who is served from another archive that shares chunks with
//! them gets no byte of theirs.

use refrain_czip_format::{
    ChunkName,
    method::{Compression, Compressor, Method},
};

use super::{
    draft::{CONTENT, Draft, SHARED},
    world::{World, noise},
};

const CHUNK_BYTES: usize = 5000;

/// Changes a draft, given that of the honest archive.
type Lie = fn(&mut Draft, &Draft);

fn chunks(seed: u64) -> [Vec<u8>; 3] {
    [0, 1, 2].map(|number| noise(seed * 10 + number, CHUNK_BYTES))
}

fn draft(chunks: &[Vec<u8>; 3], flags: u32) -> Draft {
    let mut draft = Draft::honest(&chunks.each_ref().map(|chunk| &chunk[..]));
    draft.flags = flags;
    draft
}

/// A frame of `plain`, compressed after `base`.
fn frame(plain: &[u8], base: Option<&[u8]>) -> Vec<u8> {
    let compression = Compression::new(Method::Zstd);
    let frame = Compressor::new(compression).compress(plain, base);
    frame.expect("memory takes it")
}

/// Puts a lie where the plain file is `plain`, has it asked for in `ranges`, and holds what is then
/// served of the archive of `honest` against that: the lie first, and the other way round.
#[track_caller]
fn assert_harmless(
    what: &str,
    (honest, honest_archive): (&[Vec<u8>; 3], &[u8]),
    (plain, lie): (&[u8], &[u8]),
    ranges: &[&str],
) {
    for honest_first in [false, true] {
        let world = World::new();
        world.origin.put("/lie", plain, "\"plain\"");
        world.origin.put("/lie.czip", lie, "\"lie\"");
        world
            .origin
            .put("/honest.czip", honest_archive, "\"honest\"");
        let assert_right = || {
            let answer = world.get("/honest", &[]);
            assert!(answer.body == honest.concat(), "{what}, {honest_first}");
        };
        if honest_first {
            assert_right();
        }
        for range in ranges {
            // Cut off, or right, or of the plain file: what comes of it is the lie's own affair.
            let _ = world.try_get("/lie", &[("Range", range)]);
        }
        assert_right();
        // Nor from the disk.
        let mut world = world;
        world.stop();
        world.wait();
        let again = world.again();
        assert!(again.get("/honest", &[]).body == honest.concat(), "{what}");
    }
}

#[test]
fn other_bytes_under_the_name_of_a_chunk_reach_nobody() {
    let (honest, other) = (chunks(1), chunks(2));
    for flags in [0, SHARED] {
        let honest_draft = draft(&honest, flags);
        let honest_archive = honest_draft.build();
        let lies: [(&str, Lie); 5] = [
            ("the name of a chunk", |lie, honest| {
                lie.streams[CONTENT].names[1] = honest.streams[CONTENT].names[1];
            }),
            ("all names", |lie, honest| {
                lie.streams[CONTENT].names = honest.streams[CONTENT].names.clone();
            }),
            ("the name of a chunk twice", |lie, honest| {
                let name = honest.streams[CONTENT].names[2];
                lie.streams[CONTENT].names = vec![name, lie.streams[CONTENT].names[1], name];
            }),
            ("a frame that is shorter than its chunk", |lie, honest| {
                lie.streams[CONTENT].names[1] = honest.streams[CONTENT].names[1];
                lie.streams[CONTENT].frames[1].stored.truncate(100);
            }),
            ("a frame that is longer than its chunk", |lie, honest| {
                lie.streams[CONTENT].names[1] = honest.streams[CONTENT].names[1];
                lie.streams[CONTENT].frames[1].stored.extend([7; 100]);
            }),
        ];
        for (what, tell) in lies {
            let mut lie = draft(&other, flags);
            tell(&mut lie, &honest_draft);
            assert_harmless(
                what,
                (&honest, &honest_archive),
                (&other.concat(), &lie.build()),
                &["bytes=0-", "bytes=5000-9999", "bytes=10000-"],
            );
        }
    }
}

#[test]
fn what_nobody_asked_for_is_kept_under_its_own_name_alone() {
    let (honest, other) = (chunks(1), chunks(2));
    // A frame of two chunks, of which the first has the name of another.
    let mut lie = draft(&other, 0);
    let content = &mut lie.streams[CONTENT];
    content.frames[0].stored = [&[0], &other[0][..], &other[1]].concat();
    content.frames.remove(1);
    content.places = vec![[1, 0, 0], [0, 2, 0]];
    content.names[0] = ChunkName::of(&honest[0]).0;
    let world = World::new();
    world.origin.put("/lie.czip", &lie.build(), "\"lie\"");
    let answer = world.get("/lie", &[("Range", "bytes=5000-9999")]);
    assert!(answer.body == other[1]);
    assert_eq!(world.status().folder_chunks, 1);
    let honest_archive = draft(&honest, 0).build();
    world.origin.put("/honest.czip", &honest_archive, "\"1\"");
    assert!(world.get("/honest", &[]).body == honest.concat());
}

#[test]
fn a_base_that_is_not_what_its_names_say_reaches_nobody() {
    let (honest, other) = (chunks(1), chunks(2));
    let honest_archive = draft(&honest, 0).build();
    // What the second frame is made after: the bytes that the names say, which are kept, or those of the
    // first frame.
    for base in [&honest[0], &other[0]] {
        let mut similar = base.clone();
        similar[17] ^= 1;
        let mut lie = draft(&[other[0].clone(), similar.clone(), other[2].clone()], 0);
        let content = &mut lie.streams[CONTENT];
        content.names[0] = ChunkName::of(&honest[0]).0;
        content.frames[1].stored = frame(&similar, Some(base));
        content.frames[1].back = 1;
        let plain = [&other[0][..], &similar, &other[2]].concat();
        assert_harmless(
            "a base",
            (&honest, &honest_archive),
            (&plain, &lie.build()),
            &["bytes=5000-9999", "bytes=0-", "bytes=5000-"],
        );
        // The chunk with the right name comes all the same.
        let world = World::new();
        world.origin.put("/lie", &plain, "\"plain\"");
        world.origin.put("/lie.czip", &lie.build(), "\"lie\"");
        world
            .origin
            .put("/honest.czip", &honest_archive, "\"honest\"");
        assert!(world.get("/honest", &[]).body == honest.concat());
        let answer = world.get("/lie", &[("Range", "bytes=5000-9999")]);
        assert!(answer.body == similar);
        assert_eq!(world.status().answers_fell_back, 0);
    }
}
