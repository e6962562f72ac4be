//! Captures of both forms, compressed or not, whole or not.
#![allow(missing_docs, reason = "a test's own")]

use std::{
    io::{self, Read, Write},
    ops::ControlFlow,
};

use proptest::prelude::*;
use refrain_capture::{CaptureError, Ended, read_packets};

/// Times in nanoseconds, and bytes.
type Seen = Vec<(u64, Vec<u8>, u32)>;

fn read(capture: &[u8]) -> Result<(Ended, Seen), CaptureError> {
    read_from(capture)
}

fn read_from(reader: impl Read + Send) -> Result<(Ended, Seen), CaptureError> {
    let mut seen = Vec::new();
    let ended = read_packets(reader, |packet| {
        seen.push((packet.at.0, packet.bytes.to_vec(), packet.length));
        ControlFlow::Continue(())
    })?;
    Ok((ended, seen))
}

fn packets() -> Seen {
    (0..100u64)
        .map(|nth| {
            let bytes = vec![nth as u8; 50 + nth as usize];
            (1_700_000_000_000_000_000 + nth * 1_000_000, bytes, 1500)
        })
        .collect()
}

fn pcap(packets: &Seen, is_nano: bool, is_big: bool) -> Vec<u8> {
    let number = |value: u32| {
        if is_big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let short = |value: u16| {
        if is_big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let magic = if is_nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut file = [
        number(magic).as_slice(),
        &short(2),
        &short(4),
        &[0; 8],
        &number(65_535),
        &number(1),
    ]
    .concat();
    for (at, bytes, length) in packets {
        let unit = if is_nano { 1 } else { 1000 };
        let rest = at % 1_000_000_000 / unit;
        for value in [
            at / 1_000_000_000,
            rest,
            bytes.len() as u64,
            u64::from(*length),
        ] {
            file.extend(number(value as u32));
        }
        file.extend(bytes);
    }
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let length = (12 + padded as u32).to_le_bytes();
    let mut block = [&kind.to_le_bytes(), &length, body].concat();
    block.resize(8 + padded, 0);
    block.extend(length);
    block
}

fn pcapng(packets: &Seen) -> Vec<u8> {
    let section = [
        &0x1a2b_3c4d_u32.to_le_bytes()[..],
        &[1, 0, 0, 0],
        &[0xff; 8],
    ]
    .concat();
    // Ethernet; times in nanoseconds (option 9).
    let interface = [
        &[1, 0, 0, 0, 0, 0, 0, 0][..],
        &[9, 0, 1, 0, 9, 0, 0, 0],
        &[0; 4],
    ]
    .concat();
    let mut file = [block(0x0a0d_0d0a, &section), block(1, &interface)].concat();
    for (at, bytes, length) in packets {
        let numbers = [
            0,
            (at >> 32) as u32,
            *at as u32,
            bytes.len() as u32,
            *length,
        ];
        let mut body: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
        body.extend(bytes);
        file.extend(block(6, &body));
    }
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn all_forms_have_the_same_packets() {
    let packets = packets();
    for is_nano in [true, false] {
        for is_big in [true, false] {
            let file = pcap(&packets, is_nano, is_big);
            assert_eq!(
                read(&file).expect("a capture"),
                (Ended::Whole, packets.clone())
            );
        }
    }
    let file = pcapng(&packets);
    assert_eq!(
        read(&file).expect("a capture"),
        (Ended::Whole, packets.clone())
    );
    assert_eq!(
        read(&gzip(&file)).expect("a capture"),
        (Ended::Whole, packets.clone())
    );
    let zstd = zstd::encode_all(&file[..], 1).expect("memory");
    assert_eq!(
        read(&zstd).expect("a capture"),
        (Ended::Whole, packets.clone())
    );
    // As a pipe may give it.
    assert_eq!(
        read_from(OneByOne(&file)).expect("a capture"),
        (Ended::Whole, packets)
    );
}

struct OneByOne<'a>(&'a [u8]);

impl Read for OneByOne<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(&mut buffer[..1])
    }
}

#[test]
fn of_a_capture_that_was_cut_off_all_whole_packets_are_read() {
    let packets = packets();
    for file in [pcap(&packets, false, false), pcapng(&packets)] {
        let (ended, seen) = read(&file[..file.len() - 10]).expect("a capture");
        assert_eq!((ended, seen.len()), (Ended::Cut, 99));
        let compressed = gzip(&file);
        let (ended, seen) = read(&compressed[..compressed.len() / 2]).expect("a capture");
        assert_eq!(ended, Ended::Cut);
        assert!(!seen.is_empty() && seen.len() < 100, "{}", seen.len());
    }
}

#[test]
fn what_is_no_capture_is_an_error() {
    assert!(matches!(read(b""), Err(CaptureError::Empty)));
    for text in [
        &b"x"[..],
        b"a text and no capture, and long enough for a header",
        &[0; 5000],
    ] {
        assert!(
            matches!(read(text), Err(CaptureError::Unknown)),
            "{:?}",
            read(text)
        );
    }
    let damaged = gzip(b"x");
    assert!(matches!(
        read(&[&damaged[..10], &[0xff; 50]].concat()),
        Err(CaptureError::Io(_) | CaptureError::Empty)
    ));
}

#[test]
fn a_length_that_cannot_be_is_damage_and_no_memory() {
    let packets = packets();
    let mut file = pcap(&packets, false, false);
    file.truncate(24 + 16 + 50);
    file.extend([
        0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f,
    ]);
    file.extend(vec![0; 40 << 20]);
    let (ended, seen) = read(&file).expect("a capture");
    assert_eq!((ended, seen.len()), (Ended::Damaged, 1));
}

#[test]
fn a_caller_may_stop() {
    let file = pcap(&packets(), false, false);
    let mut seen = 0;
    let ended = read_packets(&file[..], |_| {
        seen += 1;
        match seen {
            3 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    assert_eq!((ended.expect("a capture"), seen), (Ended::Stopped, 3));
}

proptest! {
    #[test]
    fn no_bytes_are_a_panic(
        start in 0..3usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut file = match start {
            0 => bytes,
            1 => pcap(&packets(), false, true),
            _ => pcapng(&packets()),
        };
        for (at, byte) in flips {
            if !file.is_empty() {
                let at = at.index(file.len());
                file[at] = byte;
            }
        }
        file.truncate(cut.index(file.len() + 1));
        let _ = read(&file);
    }
}
