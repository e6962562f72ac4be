//! Archives whose digests are right and whose table lies.

use std::ops::ControlFlow;

use proptest::prelude::*;
use refrain_czip::{archive::ReadError, format::Stream, verify::verify_names};

use crate::{
    draft::{
        CATALOG, CONTENT, Draft, FIELDS, FrameDraft, SHARED, StreamDraft, TIMES, WEAVE, varint,
    },
    memory::most_bytes,
    reading::{content, everything, open, read},
};

/// What a lie of some bytes may take: nothing that it speaks of.
const MOST_BYTES: usize = 12 << 20;

const CHUNKS: [&[u8]; 3] = [b"one chunk", b"another", b"and a third"];

/// Kind, path, length and target of an entry of the catalog.
type Entry<'a> = (u8, &'a [u8], u64, &'a [u8]);

type Lie = fn(&mut Draft);

/// An archive with a lie in its table.
fn lying(lie: impl FnOnce(&mut Draft)) -> Vec<u8> {
    let mut draft = Draft::honest(&CHUNKS);
    lie(&mut draft);
    draft.build()
}

/// A content with a lie in it.
fn lying_content(lie: impl FnOnce(&mut StreamDraft)) -> Vec<u8> {
    lying(|draft| lie(&mut draft.streams[CONTENT]))
}

#[track_caller]
fn assert_refused(what: &str, archive: &[u8]) {
    let (result, most) = most_bytes(|| everything(archive));
    let error = result.expect_err(what);
    // An error says something.
    assert!(!error.to_string().is_empty());
    assert!(most < MOST_BYTES, "{what}: {most} bytes");
}

#[test]
fn an_honest_draft_is_an_archive() {
    for flags in [0, SHARED] {
        let mut draft = Draft::honest(&CHUNKS);
        draft.flags = flags;
        let found = read(draft.build()).unwrap();
        assert_eq!(found.content, CHUNKS.concat());
        assert_eq!(
            everything(&draft.build()).map_err(|error| error.to_string()),
            Ok(())
        );
    }
    let woven = Draft::woven(b"content").build();
    assert_eq!(read(woven.clone()).unwrap().content, b"content");
    assert!(everything(&woven).is_ok());
}

#[test]
fn lies_that_a_recipient_sealed_are_refused() {
    let lies: [(&str, Lie); 10] = [
        ("nothing", |_| {}),
        ("bytes of a chunk", |draft| {
            draft.streams[CONTENT].lengths[1] += 1
        }),
        ("bytes of all chunks", |draft| {
            draft.streams[CONTENT].lengths_sum = Some(u64::MAX);
        }),
        ("a frame that is not there", |draft| {
            draft.streams[CONTENT].places[2][1] = u64::MAX;
        }),
        ("more new chunks", |draft| {
            draft.streams[CONTENT].runs.push((0, None));
        }),
        ("a frame's key", |draft| {
            draft.streams[CONTENT].keys[1][0] ^= 1
        }),
        ("fewer keys", |draft| {
            draft.streams[CONTENT].keys.truncate(2)
        }),
        ("chunks of the header", |draft| {
            draft.header = vec![(80, vec![0; 8])];
        }),
        ("a digest", |draft| draft.digest[0] ^= 1),
        ("a name", |draft| draft.streams[CONTENT].names[1][0] ^= 1),
    ];
    for flags in [0, SHARED] {
        for (what, lie) in lies {
            let mut draft = Draft::honest(&CHUNKS).encrypted();
            draft.flags |= flags;
            lie(&mut draft);
            match what {
                "nothing" => assert!(everything(&draft.build()).is_ok()),
                // Chunks have no places of their own where each is a frame.
                "a frame that is not there" if flags == SHARED => {}
                _ => assert_refused(what, &draft.build()),
            }
        }
    }
}

#[test]
fn names_of_other_content_are_refused() {
    for flags in [0, SHARED] {
        let archive = lying(|draft| {
            draft.flags = flags;
            draft.streams[CONTENT].names.swap(0, 1);
        });
        let names = |archive: &[u8]| {
            let archive = open(archive.to_vec())?;
            assert!(archive.can_name());
            verify_names(&archive, 2, &|_| ControlFlow::Continue(()))
        };
        assert!(matches!(
            names(&archive),
            Err(ReadError::Name {
                stream: Stream::Content,
                number: 0 | 1
            })
        ));
        let honest = lying(|draft| draft.flags = flags);
        assert_eq!(names(&honest).expect("right names"), Some(4));
    }
}

#[test]
fn references_to_what_is_not_there_are_refused() {
    for (what, runs) in [
        ("more new chunks than there are", vec![(4 * 3, None)]),
        ("new chunks near 2^62", vec![(u64::MAX - 3, None)]),
        (
            "a chunk before the first",
            vec![(0, None), (1, Some(1)), (4, None)],
        ),
        (
            "a chunk long before the first",
            vec![(8, None), (2, Some(u64::MAX))],
        ),
        (
            "more chunks in order than are known",
            vec![(8, None), (4 * 3 + 1, Some(2))],
        ),
        ("a chunk in terms of itself", vec![(1, Some(0)), (8, None)]),
        (
            "a repeated chunk in terms of itself",
            vec![(2, Some(0)), (8, None)],
        ),
        ("a run of no kind", vec![(8, None), (3, None)]),
        ("chunks that do not occur", vec![(4, None)]),
    ] {
        assert_refused(what, &lying_content(|content| content.runs = runs));
    }
}

#[test]
fn sums_that_lie_or_overflow_are_refused() {
    for bytes in [0, 1, u64::MAX / 2, u64::MAX] {
        assert_refused(
            "bytes of chunks",
            &lying_content(|content| content.lengths_sum = Some(bytes)),
        );
        for column in 0..3 {
            let lie = |content: &mut StreamDraft| {
                let mut sums = [3, CHUNKS.concat().len() as u64, 3];
                sums[column] = bytes;
                content.runs_sums = Some(sums);
            };
            assert_refused("bytes of references", &lying_content(lie));
        }
    }
    let repeated = lying(|draft| {
        let content = &mut draft.streams[CONTENT];
        content.runs = vec![(8, None), ((u64::MAX >> 3) << 2 | 2, Some(0))];
        draft.plain_bytes = content.runs.len() as u64;
    });
    assert_refused("a chunk 2^61 times", &repeated);
    for bytes in [0, CHUNKS.concat().len() as u64 - 1, 1 << 60, u64::MAX] {
        assert_refused("plain content", &lying(|draft| draft.plain_bytes = bytes));
    }
}

#[test]
fn a_header_that_contradicts_the_table_is_refused() {
    for at in [40, 48, 56, 64, 72, 80, 88, 96, 128, 136, 144] {
        for value in [0_u64, 1, u64::MAX / 2, u64::MAX] {
            let honest = Draft::honest(&CHUNKS).build();
            if honest[at..at + 8] == value.to_le_bytes() {
                continue;
            }
            let archive = lying(|draft| draft.header = vec![(at, value.to_le_bytes().to_vec())]);
            assert_refused(&format!("{value} at {at}"), &archive);
        }
    }
    for (at, value) in [
        (8, 2_u16),
        (10, 257),
        (12, 128),
        (12, 16),
        (12, 2),
        // A first header that says that it is the last, and ours would take it.
        (12, 3),
        (16, 3),
        (16, 200 << 8),
        (18, 1),
        // Chunks' average, and their shortest, of which the longest is 2^20.
        (22, 17),
        (24, 1),
        // Keys, and no encryption.
        (184, 1),
        (192, 1),
        (226, 1),
        (228, 1),
    ] {
        let archive = lying(|draft| draft.header = vec![(at, value.to_le_bytes().to_vec())]);
        assert_refused(&format!("{value} at {at}"), &archive);
    }
    for (chunk, frame) in [
        (0, 1),
        (9 << 20, 16 << 20),
        (1 << 20, 17 << 20),
        (2, 1),
        (u32::MAX, u32::MAX),
    ] {
        let archive = lying(|draft| {
            draft.chunk_bytes_max = chunk;
            draft.frame_bytes_max = frame;
        });
        assert_refused("bounds", &archive);
    }
}

#[test]
fn chunks_that_are_not_in_their_frame_are_refused() {
    let places = |places: [[u64; 3]; 3]| lying_content(|content| content.places = places.to_vec());
    let honest = [[0, 0, 0], [0, 2, 0], [0, 2, 0]];
    assert!(everything(&places(honest)).is_ok());
    for (run, of, value) in [
        (0, 0, 1),
        (0, 0, u64::MAX),
        (2, 0, u64::MAX - 1),
        (0, 1, 1),
        (2, 1, 4),
        (2, 1, u64::MAX),
        (2, 1, u64::MAX - 1),
        (0, 2, 1),
        (0, 2, 1 << 20),
        (0, 2, u64::MAX),
    ] {
        let mut lie = honest;
        lie[run][of] = value;
        assert_refused(&format!("{value} in column {of}"), &places(lie));
    }
    for length in [0, 10, 1 << 20, u64::MAX] {
        let archive = lying_content(|content| content.lengths[0] = length);
        assert_refused(&format!("a chunk of {length} bytes"), &archive);
    }
    assert_refused("no runs", &lying_content(|content| content.places.clear()));
}

#[test]
fn frames_that_are_not_there_are_refused() {
    for at in [0, 1 << 20, u64::MAX / 2, u64::MAX / 2 + 1] {
        let archive = lying_content(|content| content.frames_at = Some(at));
        assert_refused(&format!("the first at {at}"), &archive);
    }
    for (gap, stored_bytes) in [
        (1, None),
        (u64::MAX, None),
        (0, Some(0)),
        (0, Some(1 << 30)),
        (0, Some(u64::MAX)),
    ] {
        let archive = lying_content(|content| {
            content.frames[1].gap = gap;
            content.frames[1].stored_bytes = stored_bytes;
        });
        assert_refused("one between others", &archive);
    }
    for frame in [0, 2] {
        let archive = lying_content(|content| {
            content.frames.swap_remove(frame);
        });
        assert_refused("too few", &archive);
    }
}

#[test]
fn two_streams_may_have_the_same_frame() {
    let mut draft = Draft::honest(&CHUNKS);
    let first = 256;
    let stored = draft.streams[CONTENT].frames[0].clone();
    // The catalog's chunk is the content's: what is read is what is there, wherever it lies.
    let mut catalog = StreamDraft::default();
    catalog.push_stored(CHUNKS[0], stored.stored);
    catalog.frames_at = Some(first);
    draft.streams[CATALOG] = catalog;
    let archive = open(draft.build()).unwrap();
    assert_eq!(content(&archive, 0).unwrap(), CHUNKS.concat());
    assert!(archive.entries().is_err());
}

#[test]
fn bases_that_cannot_be_are_refused() {
    let base = b"what a chunk is compressed against";
    let new = zstd::bulk::Compressor::with_dictionary(3, base)
        .unwrap()
        .compress(base)
        .unwrap();
    let with_bases = |backs: [u64; 3], method: u8| {
        lying(|draft| {
            let content = &mut draft.streams[CONTENT];
            *content = StreamDraft::default();
            content.push(base);
            for back in [backs[1], backs[2]] {
                content.push_stored(base, [&[method], &new[..]].concat());
                content.frames.last_mut().unwrap().back = back;
            }
            content.frames[0].back = backs[0];
            let plain = base.repeat(3);
            draft.plain_bytes = plain.len() as u64;
            draft.digest = *blake3::hash(&plain).as_bytes();
            draft.catalog(&[(0, b"", draft.plain_bytes, b"")]);
        })
    };
    let honest = with_bases([0, 1, 2], 1);
    assert_eq!(read(honest).unwrap().content, base.repeat(3));
    assert_refused("before the first", &with_bases([1, 1, 2], 1));
    assert_refused("far before the first", &with_bases([0, 1, u64::MAX], 1));
    assert_refused("a base with a base", &with_bases([0, 1, 1], 1));
    for method in [0, 2, 3] {
        assert_refused("a method without bases", &with_bases([0, 1, 2], method));
    }
}

#[test]
fn frames_of_other_methods_or_with_more_behind_them_are_refused() {
    use std::io::Read;
    let plain = CHUNKS[0];
    let (mut gzip, mut bzip2) = (vec![2], vec![3]);
    flate2::bufread::GzEncoder::new(plain, flate2::Compression::default())
        .read_to_end(&mut gzip)
        .unwrap();
    bzip2::bufread::BzEncoder::new(plain, bzip2::Compression::default())
        .read_to_end(&mut bzip2)
        .unwrap();
    let zstd = [vec![1], zstd::bulk::compress(plain, 3).unwrap()].concat();
    for stored in [gzip, bzip2, zstd] {
        let with = |stored: Vec<u8>| lying_content(|content| content.frames[0].stored = stored);
        assert!(everything(&with(stored.clone())).is_ok(), "{stored:?}");
        let twice = [&stored[..], &stored[1..]].concat();
        for wrong in [
            twice,
            [&stored[..], &[0]].concat(),
            stored[..stored.len() - 1].to_vec(),
        ] {
            assert_refused("too much or too little", &with(wrong));
        }
        for method in (4..=255).chain(0..4).filter(|&method| method != stored[0]) {
            let mut other = stored.clone();
            other[0] = method;
            assert_refused("another method", &with(other));
        }
        assert_refused("only a method", &with(stored[..1].to_vec()));
    }
}

#[test]
fn a_weave_that_says_more_than_there_is_is_refused() {
    let woven = |weave: &[u8], point: Option<[u64; 5]>| {
        let mut draft = Draft::woven(b"content");
        draft.streams[WEAVE] = StreamDraft::default();
        draft.streams[WEAVE].push(weave);
        draft.points[0][1] = weave.len() as u64;
        draft.points = point.map_or(draft.points, |point| vec![point]);
        draft.build()
    };
    assert!(everything(&woven(&[0, 7], None)).is_ok());
    for (what, weave) in [
        ("an operation beyond the end", vec![0, 8]),
        (
            "an operation far beyond the end",
            [&[0][..], &[255; 9], &[1]].concat(),
        ),
        ("an operation behind the end", vec![0, 7, 3, 1]),
        (
            "a new beginning and more behind the end",
            vec![0, 7, 6, 3, 1],
        ),
        ("beginning anew twice", vec![0, 6, 6, 6, 0, 1]),
        ("fields that are not there", vec![0, 6, 1, 1]),
        ("times that are not there", vec![0, 6, 2, 1]),
        ("a header without fields", vec![4, 1]),
        ("no such operation", vec![7, 1]),
        ("half an operation", vec![0]),
        ("half a number", vec![0, 0x87]),
        ("a number in a longer form", vec![0, 0x87, 0]),
        ("nothing", vec![0, 0]),
        ("too little", vec![0, 6]),
        ("2^64 members", [&[4][..], &[255; 9], &[1]].concat()),
        ("beginning anew at the beginning", vec![6, 0, 7]),
    ] {
        assert_refused(what, &woven(&weave, None));
    }
    for of in 0..5 {
        for value in [0, 6, 8, u64::MAX] {
            let mut point = [7, 2, 7, 0, 0];
            if point[of] != value {
                point[of] = value;
                assert_refused("a weave index that lies", &woven(&[0, 7], Some(point)));
            }
        }
    }
}

#[test]
fn bytes_that_no_operation_takes_are_refused() {
    for of in 2..5 {
        let mut draft = Draft::woven(b"content");
        draft.points[0] = [7, 2, 7, 0, 0];
        let stream = &mut draft.streams[[0, 0, CONTENT, FIELDS, TIMES][of]];
        stream.push(b"more");
        draft.points[0][of] += 4;
        assert_refused("a stream with more", &draft.build());
    }
}

#[test]
fn stretches_between_restart_points_have_a_limit() {
    const LIMIT: u64 = 16 << 20;
    // Of the plain content.
    let with_zeros = |zeros: u64| {
        let mut draft = Draft::woven(b"content");
        let mut weave = vec![0, 7, 3];
        varint(&mut weave, zeros);
        draft.plain_bytes = 7 + zeros;
        draft.points = vec![[7 + zeros, weave.len() as u64, 7, 0, 0]];
        draft.streams[WEAVE] = StreamDraft::default();
        draft.streams[WEAVE].push(&weave);
        draft.catalog(&[(0, b"", 7 + zeros, b"")]);
        open(draft.build()).and_then(|archive| content(&archive, LIMIT - 7))
    };
    assert_eq!(with_zeros(LIMIT - 7).unwrap(), [0; 7]);
    assert!(with_zeros(LIMIT - 6).is_err());
    // Of a stream: one chunk over and over.
    let with_repeats = |stream: usize, times: u64| {
        let mut draft = Draft::woven(b"content");
        let repeated = &mut draft.streams[stream];
        repeated.push(b"x");
        repeated.runs.push(((times - 2) << 2 | 2, Some(0)));
        let of = [2, 1, 3, 4][stream];
        draft.points[0][of] += times;
        let archive = open(draft.build()).unwrap();
        content(&archive, 0).unwrap_err().to_string()
    };
    for stream in [FIELDS, TIMES] {
        assert!(with_repeats(stream, LIMIT).contains("more than the bytes"));
        let error = with_repeats(stream, LIMIT + 1);
        assert!(error.contains("between restart points"), "{error}");
    }
}

#[test]
fn a_frame_of_profile_shared_is_as_long_as_its_chunk() {
    let with = |more: &[u8]| {
        lying(|draft| {
            draft.flags = SHARED;
            draft.streams[CONTENT].frames[1]
                .stored
                .extend_from_slice(more);
        })
    };
    assert!(everything(&with(b"")).is_ok());
    assert_refused("a frame with more than its chunk", &with(b"x"));
}

#[test]
fn restart_points_that_lie_are_refused_or_give_other_bytes_than_the_digest() {
    // Two stretches, told apart in the wrong place.
    let mut draft = Draft::woven(b"contents");
    draft.streams[WEAVE] = StreamDraft::default();
    draft.streams[WEAVE].push(&[0, 4, 6, 0, 4]);
    draft.points = vec![[4, 3, 4, 0, 0], [4, 2, 4, 0, 0]];
    assert!(everything(&draft.build()).is_ok());
    for (of, by) in [(0, 1), (1, 1), (1, 2), (2, 1)] {
        let mut lie = draft.clone();
        lie.points[0][of] += by;
        lie.points[1][of] -= by;
        let archive = lie.build();
        let _ = everything(&archive);
        let wrong = open(archive).and_then(|archive| {
            let mut take = |_: &[u8]| Ok(());
            refrain_czip::verify::verify_content(&archive, 1, &mut take)
        });
        assert!(wrong.is_err(), "{of} by {by}");
    }
    let too_many = Draft {
        points: vec![[0, 0, 0, 0, 0]; 257],
        ..draft
    };
    assert_refused("more points than a part has", &too_many.build());
}

#[test]
fn beginning_anew_over_and_over_does_not_take_for_ever() {
    // One chunk over and over, as often as a stretch has room for.
    let mut draft = Draft::woven(b"content");
    let weave = &mut draft.streams[WEAVE];
    *weave = StreamDraft::default();
    weave.push(&[6; 64]);
    weave.push(&[0, 7]);
    weave.runs = vec![(0, None), (((1 << 17) - 1) << 2 | 2, Some(0)), (0, None)];
    draft.points[0][1] = 64 * ((1 << 17) + 1) + 2;
    assert_refused("an operation that gives nothing", &draft.build());
}

#[test]
fn names_in_the_catalog_that_lead_elsewhere_are_refused() {
    let bytes = CHUNKS.concat().len() as u64;
    let with = |entries: &[Entry]| lying(|draft| draft.catalog(entries));
    assert!(everything(&with(&[(1, b"a", 0, b""), (0, b"a/b", bytes, b"")])).is_ok());
    let long = [b'a'; 4097];
    for path in [
        &b"/etc/passwd"[..],
        b"..",
        b"../a",
        b"a/../b",
        b"a/..",
        b".",
        b"./a",
        b"a//b",
        b"a/",
        b"/",
        b"a\0b",
        &long,
    ] {
        assert_refused("a path", &with(&[(0, path, bytes, b"")]));
        assert_refused(
            "a folder",
            &with(&[(1, path, 0, b""), (0, b"b", bytes, b"")]),
        );
    }
    let wrong: [&[Entry]; 13] = [
        &[(0, b"a/b", bytes, b"")],
        &[(0, b"a/b", bytes, b""), (1, b"a", 0, b"")],
        &[
            (1, b"a", 0, b""),
            (1, b"a/b/c", 0, b""),
            (0, b"b", bytes, b""),
        ],
        &[(0, b"a", bytes, b""), (0, b"a", 0, b"")],
        &[(2, b"a", 2, b".."), (0, b"a/b", bytes, b"")],
        &[(0, b"a", bytes, b""), (0, b"a/b", 0, b"")],
        &[(0, b"a/b", bytes, b""), (2, b"a", 2, b"..")],
        &[(0, b"a", bytes, b""), (3, b"b", 1, b"c")],
        &[(0, b"a", bytes, b""), (3, b"b", 4, b"../a")],
        &[
            (2, b"l", 1, b"x"),
            (3, b"b", 1, b"l"),
            (0, b"a", bytes, b""),
        ],
        &[(0, b"a", bytes, b""), (2, b"l", 0, b"")],
        &[(0, b"a", bytes, b""), (2, b"l", 1, b"\0")],
        &[(0, b"", bytes, b""), (0, b"a", 0, b"")],
    ];
    for entries in wrong {
        assert_refused(&format!("{entries:?}"), &with(entries));
    }
    for length in [0, bytes - 1, bytes + 1, u64::MAX] {
        assert_refused("a file's length", &with(&[(0, b"a", length, b"")]));
    }
    assert_refused(
        "lengths beyond 64 bits",
        &with(&[(0, b"a", u64::MAX, b""), (0, b"b", bytes + 1, b"")]),
    );
    assert_refused("a kind that is none", &with(&[(4, b"a", bytes, b"")]));
    let entries = lying(|draft| draft.entries = 2);
    assert_refused("more entries than there are", &entries);
}

#[test]
fn a_root_of_rows_that_are_not_there_is_refused() {
    for rows in [1, 1 << 20, 1 << 60, u64::MAX] {
        let mut root = Vec::new();
        varint(&mut root, rows);
        root.resize(200, 1);
        let raw = root.clone();
        assert_refused("a root", &lying(|draft| draft.root = Some((raw, 200))));
        assert_refused(
            "a private root",
            &lying(|draft| draft.private_root = Some((root, 200))),
        );
    }
}

/// A lie that a table can tell: values that matter, anywhere in it.
fn lies() -> impl Strategy<Value = Vec<(u8, usize, u64)>> {
    let value = prop_oneof![
        0..20_u64,
        any::<u64>(),
        (0..64_u32).prop_map(|bit| 1 << bit)
    ];
    proptest::collection::vec((0..12_u8, 0..3_usize, value), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_lie_does_harm(lies in lies(), is_shared: bool, stream in prop_oneof![Just(CONTENT), Just(CATALOG)]) {
        let mut draft = Draft::honest(&CHUNKS);
        draft.flags = if is_shared { SHARED } else { 0 };
        for (what, at, value) in lies {
            let lied = &mut draft.streams[stream];
            let chunk = at % lied.lengths.len();
            let at = at % lied.frames.len();
            match what {
                0 => lied.lengths[chunk] = value,
                1 => lied.places[0][0] = value,
                2 => lied.places[chunk][1] = value,
                3 => lied.places[chunk][2] = value,
                4 => lied.frames[at].back = value,
                5 => lied.frames[at].gap = value,
                6 => lied.frames[at].stored_bytes = Some(value),
                7 => lied.runs.push((value, Some(value >> 32))),
                8 => lied.lengths_sum = Some(value),
                9 => lied.frames_at = Some(value),
                10 => lied.runs_sums = Some([value, value, value]),
                _ => lied.frames.push(FrameDraft { stored: value.to_le_bytes().to_vec(), ..FrameDraft::default() }),
            }
        }
        let archive = draft.build();
        let (_, most) = most_bytes(|| everything(&archive));
        prop_assert!(most < MOST_BYTES, "{} bytes", most);
    }
}
