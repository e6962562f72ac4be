//! Weaves that lie, and restart points.

use super::assert_refused;
use crate::{
    draft::{CONTENT, Draft, FIELDS, StreamDraft, TIMES, WEAVE, varint},
    reading::{content, everything, open},
};

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
        assert!(with_repeats(stream, LIMIT).contains("extra bytes after the end"));
        let error = with_repeats(stream, LIMIT + 1);
        assert!(error.contains("between restart points"), "{error}");
    }
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
