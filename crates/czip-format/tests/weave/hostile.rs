//! A weave that nobody wrote is an error or some bytes, never a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use refrain_czip_format::Stream;
use refrain_czip_format::container::RestartPoint;
use refrain_czip_format::weave::WeaveError;

use crate::archives;
use crate::streams::{Told, read_all, weave};

/// Operations whose numbers are mostly small.
fn operations() -> impl Strategy<Value = Vec<u8>> {
    let operand = prop_oneof![1..40u64, 1..=u64::MAX];
    let operation = (0..7u8, operand).prop_map(|(operation, operand)| match operation {
        6 => vec![6],
        _ => [vec![operation], varint(operand)].concat(),
    });
    vec(operation, 0..12).prop_map(|operations| operations.concat())
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn headers() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => any::<u8>(), 3 => 0..16u8, 2 => b'0'..=b'7',
        1 => proptest::sample::select(&b"xgLK"[..])
    ];
    vec(byte, 0..3000)
}

fn try_all(told: &Told) {
    let _ = read_all(&mut told.unweaver(RestartPoint::default()), 1 << 20);
    let mut unweaver = told.unweaver(RestartPoint::default());
    // No more operations than these have bytes.
    let most = 1 + told.weave.len() + told.fields.len() + told.times.len();
    for _ in 0..most {
        match unweaver.skip(u64::MAX / 3) {
            Ok(1..) => {}
            _ => return,
        }
    }
    panic!("it never ends");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn random_streams_do_no_harm(
        weave in prop_oneof![operations(), vec(any::<u8>(), 0..50)],
        content in vec(any::<u8>(), 0..3000),
        fields in headers(),
        times in headers(),
    ) {
        try_all(&Told { content, fields, times, weave, ..Told::default() });
    }
}

proptest! {
    #[test]
    fn damaged_streams_do_no_harm(
        tar in archives::tars(),
        damage in vec((0..3usize, any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut told = weave(&tar);
        for (stream, at, byte) in damage {
            let stream = [&mut told.weave, &mut told.fields, &mut told.times][stream].as_mut_slice();
            if !stream.is_empty() {
                stream[at.index(stream.len())] ^= byte;
            }
        }
        try_all(&told);
        let streams = [&mut told.content, &mut told.fields, &mut told.times];
        let [_, stream, _] = streams;
        stream.truncate(cut.index(stream.len() + 1));
        try_all(&told);
    }
}

fn told(weave: &[u8], fields: &[u8], times: &[u8]) -> Told {
    Told {
        weave: weave.to_vec(),
        fields: fields.to_vec(),
        times: times.to_vec(),
        content: b"content".to_vec(),
        ..Told::default()
    }
}

#[test]
fn each_thing_that_cannot_be_has_its_error() {
    let fails = |weave: &[u8], fields: &[u8], times: &[u8], error| {
        let told = told(weave, fields, times);
        let back = read_all(&mut told.unweaver(RestartPoint::default()), 1 << 20);
        assert_eq!(back, Err(error), "{weave:?} {fields:?}");
    };
    fails(&[7, 1], b"", b"", WeaveError::Operation(7));
    let beyond = [3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
    for number in [&[0, 0][..], &[0, 0x81, 0], &beyond] {
        fails(number, b"", b"", WeaveError::Number);
    }

    let ends =
        |weave: &[u8], fields, stream| fails(weave, fields, b"", WeaveError::Short { stream });
    ends(&[0], b"", Stream::Weave);
    ends(&[0, 8], b"", Stream::Content);
    ends(&[4, 1], b"0", Stream::Fields);
    ends(&[4, 1], b"0\0", Stream::Times);

    for (kind, fields, times) in [
        (b'0', 0, 16),
        (b'0', 0, 1),
        (b'x', 1, 1),
        (b'0', 0, 4),
        (b'0', 16, 8),
    ] {
        fails(
            &[4, 1],
            &[kind, fields],
            &[times],
            WeaveError::Masks { fields, times },
        );
    }
    let long_name = [&b"0\x01"[..], &[b'a'; 101], b"\0"].concat();
    fails(&[4, 1], &long_name, &[0], WeaveError::Text);
    let size = WeaveError::Size(*b"00000000009\0");
    fails(&[4, 1], b"0\x1000000000009\0", &[0], size);
    let long_text = WeaveError::ExtendedText((64 << 10) + 1);
    fails(&[4, 1], b"x\x1000000200001\0", &[0], long_text);
}
