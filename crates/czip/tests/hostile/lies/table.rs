//! Lies about chunks, references and what they come to, and in the header.

use super::{CHUNKS, assert_refused, lying, lying_content};
use crate::draft::{CONTENT, Draft, StreamDraft, varint};

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
