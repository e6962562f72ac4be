//! Archives whose digests are right and whose table lies.

mod catalog;
mod frames;
mod header;
mod table;
mod weave;

use std::ops::ControlFlow;

use proptest::prelude::*;
use refrain_czip::{archive::ReadError, verify::verify_names};
use refrain_czip_format::Stream;

use crate::{
    draft::{CATALOG, CONTENT, Draft, FrameDraft, SHARED, StreamDraft},
    memory::most_bytes,
    reading::{everything, open, read},
};

/// What a lie of some bytes may take: nothing that it speaks of.
const MOST_BYTES: usize = 12 << 20;

const CHUNKS: [&[u8]; 3] = [b"one chunk", b"another", b"and a third"];

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
