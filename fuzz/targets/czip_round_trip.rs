//! What is archived comes back, all of it and any range. The first bytes say how it is archived; the rest
//! are the content: a byte of 0 and two more stand for bytes that came before.
#![no_main]

use std::{
    io::{self, Cursor, Write},
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use libfuzzer_sys::fuzz_target;
use refrain_czip::{
    archive::{Archive, CacheBytes},
    create::{CreateOptions, Input, Output, create},
    verify::{verify, verify_content},
};
use refrain_czip_format::{
    chunker::{Chunking, ChunkingMethod},
    header::Profile,
    method::{Compression, Method},
};

const PLAIN_BYTES_MAX: usize = 256 << 10;

fuzz_target!(|data: &[u8]| {
    let [how, chunking, ranges, content @ ..] = data else {
        return;
    };
    let plain = expanded(content);
    let archive = archive(*how, *chunking, &plain);
    let archive =
        Archive::open(archive, CacheBytes::default()).expect("what was made is an archive");
    let mut whole = Vec::new();
    verify_content(&archive, 1, &mut |piece| {
        whole.extend_from_slice(piece);
        Ok(())
    })
    .expect("its content is whole");
    assert!(whole == plain, "other bytes come back");
    let verified = verify(&archive, 1, &|_| ControlFlow::Continue(()));
    assert!(verified.is_ok_and(|verified| verified.is_some()));
    assert_eq!(archive.entries().expect("its catalog is whole").len(), 1);
    let mut at = 0;
    while at < plain.len() {
        let wanted = (plain.len() - at).min(1 + usize::from(*ranges));
        let mut range = vec![0; wanted];
        let mut reader = archive
            .content(at as u64)
            .expect("it is within the content");
        assert_eq!(reader.read(&mut range).expect("it is whole"), wanted);
        assert!(range == plain[at..at + wanted], "other bytes at {at}");
        at += wanted + plain.len() / 7;
    }
});

/// Short inputs become long ones with repeats.
fn expanded(content: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = content;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        let [back, count, behind @ ..] = rest else {
            plain.push(*byte);
            continue;
        };
        if *byte != 0 || plain.len() > PLAIN_BYTES_MAX {
            plain.push(*byte);
            continue;
        }
        rest = behind;
        let begin = plain.len().saturating_sub(usize::from(*back) * 16 + 1);
        let piece = plain[begin..].to_vec();
        for _ in 0..*count {
            plain.extend_from_slice(&piece);
            if plain.len() > PLAIN_BYTES_MAX {
                break;
            }
        }
    }
    plain
}

fn archive(how: u8, chunking: u8, plain: &[u8]) -> Vec<u8> {
    let cut = match chunking & 3 {
        0 => ChunkingMethod::Fixed,
        1 => ChunkingMethod::Modp,
        _ => ChunkingMethod::Pack,
    };
    let average_bytes = 1024 << (chunking >> 2 & 3);
    let method = match how & 3 {
        0 => Method::None,
        1 => Method::Zstd,
        2 => Method::Gzip,
        _ => Method::Bzip2,
    };
    let options = CreateOptions {
        profile: if how & 4 == 0 {
            Profile::Small
        } else {
            Profile::Shared
        },
        is_woven: how & 8 == 0,
        has_bases: how & 16 == 0,
        frame_bytes: u32::from(how >> 5) * 1024,
        chunking: Chunking::new(cut, average_bytes).expect("such an average is allowed"),
        compression: Compression::new(method),
        threads: 1,
        ..CreateOptions::default()
    };
    let out = Pipe::default();
    create(
        vec![Input::Stream(Box::new(Cursor::new(plain.to_vec())))],
        Output::Pipe(Box::new(out.clone())),
        &options,
        &mut |_| ControlFlow::Continue(()),
    )
    .expect("memory can be archived");
    std::mem::take(&mut out.0.lock().expect("nothing panicked"))
}

/// What goes down a pipe.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nothing panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
