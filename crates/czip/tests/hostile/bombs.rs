//! Small things that become large when they are decompressed.

use std::io::Read;

use refrain_czip_format::method::{FrameError, decompress};

use crate::{
    draft::{CATALOG, CONTENT, Draft, varint},
    memory::most_bytes,
    reading::everything,
};

/// What the bombs would take.
const BOMB_BYTES: usize = 16 << 20;
/// What frames of the archives here may have.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// What refusing them may take: a frame and what a decompressor keeps of it.
const MOST_BYTES: usize = 8 << 20;

/// A bomb by zstd, gzip and bzip2, as frames have it.
fn bombs() -> [Vec<u8>; 3] {
    let zeros = || std::io::BufReader::new(std::io::repeat(0).take(BOMB_BYTES as u64));
    let (mut gzip, mut bzip2) = (vec![2], vec![3]);
    flate2::bufread::GzEncoder::new(zeros(), flate2::Compression::best())
        .read_to_end(&mut gzip)
        .unwrap();
    bzip2::bufread::BzEncoder::new(zeros(), bzip2::Compression::best())
        .read_to_end(&mut bzip2)
        .unwrap();
    [[&[1], &packed()[..]].concat(), gzip, bzip2]
}

fn packed() -> Vec<u8> {
    zstd::bulk::compress(&vec![0; BOMB_BYTES], 3).unwrap()
}

/// A zstd frame that says how long it is, and is not.
fn claiming(bytes: u64) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x50];
    frame.extend_from_slice(&bytes.to_le_bytes());
    // The last block, a run of 128 KiB.
    let block = (128 << 10) << 3 | 1 << 1 | 1_u32;
    frame.extend_from_slice(&block.to_le_bytes()[..3]);
    frame.push(0);
    frame
}

#[track_caller]
fn assert_refused(what: &str, draft: &Draft) {
    let archive = draft.build();
    let (result, most) = most_bytes(|| everything(&archive));
    assert!(result.is_err(), "{what}");
    assert!(
        most < MOST_BYTES + 4 * archive.len(),
        "{what}: {most} bytes"
    );
}

fn draft() -> Draft {
    let mut draft = Draft::honest(&[b"content"]);
    draft.frame_bytes_max = FRAME_BYTES_MAX;
    draft.chunk_bytes_max = FRAME_BYTES_MAX;
    draft
}

#[test]
fn frames_do_not_become_longer_than_the_header_says() {
    for bomb in bombs() {
        let mut draft = draft();
        draft.streams[CONTENT].frames[0].stored = bomb.clone();
        assert_refused("a frame", &draft);
        // The same as what another has before it.
        let mut base = self::draft();
        let content = &mut base.streams[CONTENT];
        content.push(b"content");
        content.frames[0].stored = bomb;
        content.frames[1].back = 1;
        assert_refused("a base", &base);
    }
    for bytes in [
        0,
        7,
        1 << 20,
        (1 << 20) + 1,
        1 << 40,
        u64::MAX - 2,
        u64::MAX,
    ] {
        let mut draft = draft();
        let stored = [&[1], &claiming(bytes)[..]].concat();
        draft.streams[CONTENT].frames[0].stored = stored;
        assert_refused("a frame of another length", &draft);
    }
}

#[test]
fn a_frame_of_a_few_bytes_takes_no_memory_for_all_that_it_says_it_holds() {
    let most_allowed: u32 = 16 << 20;
    let mut draft = draft();
    draft.frame_bytes_max = most_allowed;
    draft.streams[CONTENT].frames[0].stored =
        [&[1], &claiming(u64::from(most_allowed))[..]].concat();
    assert_refused("a frame of one block", &draft);
}

#[test]
fn parts_do_not_become_longer_than_their_rows_say() {
    for (part, plain_bytes) in [
        (packed(), 64 << 10),
        (packed(), 20),
        (packed(), BOMB_BYTES as u64),
        (claiming(64 << 10), 64 << 10),
        (claiming(1 << 40), 64 << 10),
        (claiming(20), u64::MAX),
    ] {
        let mut draft = draft();
        draft.streams[CONTENT].chunk_part = Some((part, plain_bytes));
        assert_refused("a part", &draft);
    }
}

#[test]
fn roots_do_not_become_longer_than_the_header_says() {
    for (root, plain_bytes) in [
        (packed(), 1000),
        (packed(), 64 << 10),
        (claiming(1 << 30), 1 << 30),
        (claiming((1 << 30) + 1), (1 << 30) + 1),
        (claiming(u64::MAX), u32::MAX),
    ] {
        let mut public = draft();
        public.root = Some((root.clone(), plain_bytes));
        assert_refused("a root", &public);
        let mut private = draft();
        private.private_root = Some((root, plain_bytes));
        assert_refused("a private root", &private);
    }
}

#[test]
fn roots_do_not_become_many_times_longer_than_they_are_stored() {
    for root_bytes in [2 << 20, BOMB_BYTES] {
        // Rows without end: all that a column of them needs is one byte over and over.
        let mut root = Vec::new();
        varint(&mut root, root_bytes as u64 / 24);
        root.resize(root_bytes, 1);
        let packed = zstd::bulk::compress(&root, 3).unwrap();
        for is_private in [false, true] {
            let mut draft = draft();
            let bomb = Some((packed.clone(), root_bytes as u32));
            match is_private {
                false => draft.root = bomb,
                true => draft.private_root = bomb,
            }
            let archive = draft.build();
            let (result, most) = most_bytes(|| everything(&archive));
            assert!(result.is_err());
            assert!(most < 1 << 20, "{most} bytes for a root of {root_bytes}");
        }
    }
}

/// A catalog of `records`, each as often as is said, and the most bytes that reading it took.
fn most_of_catalog(records: &[(&[u8], u64)], entries: u64) -> (bool, usize) {
    let mut draft = Draft {
        chunk_bytes_max: 8 << 20,
        frame_bytes_max: 8 << 20,
        ..draft()
    };
    let catalog = &mut draft.streams[CATALOG];
    *catalog = Default::default();
    for (record, times) in records {
        catalog.push(record);
        if *times > 1 {
            catalog.runs.push(((times - 2) << 2 | 2, Some(0)));
        }
    }
    draft.entries = entries;
    let archive = crate::reading::open(draft.build()).unwrap();
    let (result, most) = most_bytes(|| archive.entries().is_ok());
    (result, most)
}

fn record(kind: u8, path: &[u8]) -> Vec<u8> {
    let mut record = vec![kind];
    varint(&mut record, path.len() as u64);
    record.extend_from_slice(path);
    record.extend_from_slice(&[0, 0, 0]);
    if kind == 0 {
        record.push(7);
    }
    let mut whole = Vec::new();
    varint(&mut whole, record.len() as u64);
    whole.extend_from_slice(&record);
    whole
}

#[test]
fn deep_paths_take_no_more_memory_than_they_have_bytes() {
    // Each folder in the one before, as deep as paths go.
    let mut catalog = Vec::new();
    let mut path = Vec::new();
    let mut folders = 0;
    while path.len() < 4090 {
        if folders > 0 {
            path.push(b'/');
        }
        path.push(b'd');
        catalog.extend(record(1, &path));
        folders += 1;
    }
    catalog.extend(record(0, b"x"));
    let bytes = catalog.len();
    let (is_read, most) = most_of_catalog(&[(&catalog, 1)], folders + 1);
    assert!(is_read);
    assert!(most < 6 * bytes, "{most} bytes for a catalog of {bytes}");
    // Paths whose folders nobody named.
    let mut catalog = Vec::new();
    for number in 0..200 {
        let path = [format!("{number}").as_bytes(), &b"/d".repeat(2000)].concat();
        catalog.extend(record(1, &path));
    }
    let (is_read, most) = most_of_catalog(&[(&catalog, 1)], 200);
    assert!(!is_read);
    assert!(most < 4 << 20, "{most} bytes");
}

#[test]
fn a_catalog_is_not_read_that_is_many_times_longer_than_its_archive() {
    // Zeros would be records of no bytes; these are of a whole one.
    let long = record(1, &[b'd'; 4000]);
    let times = (64 << 20) / long.len() as u64 + 1;
    let (is_read, most) = most_of_catalog(&[(&long, times)], times);
    assert!(!is_read);
    assert!(most < 4096, "{most} bytes before it was refused");
}

#[test]
fn zeros_that_a_weave_says_are_not_kept() {
    let mut draft = Draft::woven(b"content");
    let mut weave = vec![3];
    let plain_bytes = 16 << 20;
    varint(&mut weave, plain_bytes - 7);
    weave.extend_from_slice(&[0, 7]);
    draft.streams[crate::draft::WEAVE] = Default::default();
    draft.streams[crate::draft::WEAVE].push(&weave);
    draft.plain_bytes = plain_bytes;
    draft.points[0][0] = plain_bytes;
    draft.points[0][1] = weave.len() as u64;
    draft.catalog(&[(0, b"", plain_bytes, b"")]);
    let archive = crate::reading::open(draft.build()).unwrap();
    let (end, most) = most_bytes(|| crate::reading::content(&archive, plain_bytes - 7).unwrap());
    assert_eq!(end, b"content");
    assert!(most < MOST_BYTES, "{most} bytes");
}

#[test]
fn what_is_no_frame_of_its_method_is_refused() {
    let zstd = |window: u8| {
        let mut frame = vec![1, 0x28, 0xb5, 0x2f, 0xfd, 0xc0, window];
        frame.extend_from_slice(&3_u64.to_le_bytes());
        // The last block, of three bytes as they are.
        frame.extend_from_slice(&[3 << 3 | 1, 0, 0, b'a', b'b', b'c']);
        frame
    };
    let (mut gzip, mut bzip2) = (vec![2], vec![3]);
    flate2::bufread::GzEncoder::new(&b"abc"[..], flate2::Compression::best())
        .read_to_end(&mut gzip)
        .unwrap();
    bzip2::bufread::BzEncoder::new(&b"abc"[..], bzip2::Compression::best())
        .read_to_end(&mut bzip2)
        .unwrap();
    // A window of 32 MiB is the largest.
    let frames = [b"\0abc".to_vec(), zstd(15 << 3), gzip, bzip2];
    for frame in &frames {
        assert_eq!(decompress(frame, None, 3).unwrap(), b"abc");
        assert_eq!(decompress(frame.clone(), None, 3).unwrap(), b"abc");
        let short = decompress(frame, None, 2);
        assert!(
            matches!(short, Err(FrameError::TooLong { limit: 2 })),
            "{short:?}"
        );
        if frame[0] != 1 {
            let after = decompress(frame, Some(b"base"), 100);
            assert!(matches!(after, Err(FrameError::Base)), "{after:?}");
        }
        if frame[0] != 0 {
            for behind in [&b"?"[..], &frame[1..], b"\x50\x2a\x4d\x18\0\0\0\0"] {
                let more = decompress([&frame[..], behind].concat(), None, 100);
                assert!(matches!(more, Err(FrameError::Corrupt { .. })), "{more:?}");
            }
        }
    }
    for window in [16 << 3, 15 << 3 | 1, 0xff] {
        let wide = decompress(zstd(window), None, 100);
        assert!(matches!(wide, Err(FrameError::Corrupt { .. })), "{wide:?}");
    }
}
