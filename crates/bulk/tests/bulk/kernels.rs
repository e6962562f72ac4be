//! The kernels for GPUs, on a host: they find what codec's scanners find. That needs a compiler for C++;
//! how fast they are, only a GPU tells.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use refrain_codec::marker::{
    AnchorDistance, AnchorFinder, FindAnchors, ModpAnchorFinder, PackMask, RabinTables,
};
use tempfile::TempDir;

use super::{compiled, noise};

const WINDOW_BYTES: usize = 48;

/// What a kernel is launched with.
#[derive(Clone, Copy, Debug)]
struct Launch {
    kernel: u32,
    blocks: u32,
    threads: u32,
    room: u32,
    mask: u64,
}

/// How many anchors the kernels count in a stream, and those that they list.
fn run(program: &TempDir, launch: Launch, stream: &[u8]) -> (u32, Vec<u64>) {
    let Launch {
        kernel,
        blocks,
        threads,
        room,
        mask,
    } = launch;
    let count = (stream.len() + 1).saturating_sub(WINDOW_BYTES) as u32;
    let mut input = Vec::new();
    for word in [kernel, blocks, threads, room, count] {
        input.extend(word.to_le_bytes());
    }
    let RabinTables { entering, leaving } = RabinTables::new();
    for word in [mask].iter().chain(&entering).chain(&leaving) {
        input.extend(word.to_le_bytes());
    }
    // The byte before may be any.
    input.push(0x5a);
    input.extend(stream);
    let mut child = Command::new(program.path().join("host"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was compiled");
    let written = child.stdin.take().expect("piped").write_all(&input);
    written.expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let (words, []) = output.stdout.as_chunks() else {
        panic!("whole words");
    };
    let mut words = words.iter().copied().map(u32::from_le_bytes);
    let counted = words.next().expect("the count");
    (counted, words.map(u64::from).collect())
}

/// Streams of many lengths, near what threads and parts of the bitmap take, noise and runs.
fn streams() -> Vec<Vec<u8>> {
    let part = 32 * 8 * 256;
    let mut lengths = vec![
        48, 49, 63, 64, 79, 80, 479, 480, 526, 527, 528, 529, 1000, 5000,
    ];
    lengths.extend([part + 46, part + 47, part + 48, 3 * part + 1234]);
    let mut streams: Vec<Vec<u8>> = (1..).zip(lengths).map(|(n, len)| noise(n, len)).collect();
    for byte in [0, 1, 3, 0x80, 0xff] {
        streams.push([noise(7, 300), vec![byte; 3000], noise(8, 300)].concat());
    }
    streams
}

#[test]
fn kernels_find_what_codec_finds() {
    let Some(program) = compiled("host.cpp", "host", &[]) else {
        return;
    };
    for stream in streams() {
        let launch = Launch {
            kernel: 0,
            blocks: 2,
            threads: 40,
            room: 1 << 20,
            mask: 0,
        };
        for bits in [6, 11, 20] {
            let mut expected = Vec::new();
            let distance = AnchorDistance::new(1 << bits).expect("valid");
            ModpAnchorFinder::new(distance).feed(&stream, &mut expected);
            for kernel in [0, 1] {
                let mask = (1 << bits) - 1;
                let launch = Launch {
                    kernel,
                    mask,
                    ..launch
                };
                let (counted, listed) = run(&program, launch, &stream);
                assert_eq!(
                    counted as usize,
                    expected.len(),
                    "{launch:?}, {}",
                    stream.len()
                );
                assert_eq!(listed, expected, "{launch:?}, {}", stream.len());
            }
        }
        for bits in [6, 11, 15] {
            let mut expected = Vec::new();
            let mask = PackMask::with_bits(bits).expect("valid");
            AnchorFinder::new(mask).feed(&stream, &mut expected);
            let mask = mask.bits();
            let launch = Launch {
                kernel: 2,
                mask,
                ..launch
            };
            let (counted, listed) = run(&program, launch, &stream);
            assert_eq!(
                counted as usize,
                expected.len(),
                "{launch:?}, {}",
                stream.len()
            );
            assert_eq!(listed, expected, "{launch:?}, {}", stream.len());
        }
    }
}

#[test]
fn what_finds_no_room_is_counted() {
    let Some(program) = compiled("host.cpp", "host", &[]) else {
        return;
    };
    let stream = noise(5, 200_000);
    let mut expected = Vec::new();
    let distance = AnchorDistance::new(64).expect("valid");
    ModpAnchorFinder::new(distance).feed(&stream, &mut expected);
    for room in [0, 1, 1000] {
        let launch = Launch {
            kernel: 1,
            blocks: 3,
            threads: 64,
            room,
            mask: 63,
        };
        let (counted, listed) = run(&program, launch, &stream);
        assert_eq!(counted as usize, expected.len());
        assert_eq!(listed, expected[..room as usize]);
    }
}
