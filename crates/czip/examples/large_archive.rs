//! Memory of making an archive of much that never repeats, and of opening it:
//! `cargo run --release -p refrain-czip --example large_archive -- OUT.czip [GIGABYTES] [CHUNK KIB] [PROFILE]`.
//!
//! What grows, grows with chunks: 4 GB in chunks of 1 KiB are as many as 128 GB in those of 32.

use std::{
    env,
    io::{self, Read},
    ops::ControlFlow,
    path::Path,
};

use refrain_czip::{
    archive::{Archive, CacheBytes, FileSource},
    create::{CreateOptions, CreateProgress, Input, Output, create},
};
use refrain_czip_format::{
    chunker::{Chunking, ChunkingMethod},
    header::Profile,
};

/// So many bytes, no eight of which come twice.
struct Noise {
    counter: u64,
    left: u64,
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (buffer.len() as u64).min(self.left) / 8 * 8;
        for eight in buffer[..count as usize].chunks_exact_mut(8) {
            self.counter += 1;
            let mixed = self.counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            eight.copy_from_slice(&(mixed ^ mixed >> 32).to_le_bytes());
        }
        self.left -= count;
        Ok(count as usize)
    }
}

/// What the process holds of memory that is not a file's, and the most that it held.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status
        .lines()
        .filter(|line| line.starts_with("RssAnon") || line.starts_with("VmHWM"));
    let words = lines.flat_map(str::split_whitespace);
    words.collect::<Vec<_>>().join(" ")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let out = arguments.next().ok_or("where is the archive to go?")?;
    let mut number = |default: u64| match arguments.next() {
        Some(text) => text.parse(),
        None => Ok(default),
    };
    let (gigabytes, chunk_kib) = (number(4)?, number(1)?);
    let profile = match arguments.next().as_deref() {
        Some("shared") => Profile::Shared,
        _ => Profile::Small,
    };
    if !Path::new(&out).exists() {
        make(&out, gigabytes, chunk_kib, profile)?;
        println!("made; run it again to open it");
        return Ok(());
    }
    let source = FileSource::new(std::fs::File::open(&out)?)?;
    let archive = Archive::open(source, CacheBytes::default())?;
    println!("{} chunks: {}", archive.header().chunks, memory());
    let mut piece = [0; 4096];
    let mut reader = archive.content(archive.plain_bytes() / 2)?;
    let count = reader.read(&mut piece)?;
    println!("{count} bytes read in the middle: {}", memory());
    Ok(())
}

fn make(
    out: &str,
    gigabytes: u64,
    chunk_kib: u64,
    profile: Profile,
) -> Result<(), Box<dyn std::error::Error>> {
    let options = CreateOptions {
        profile,
        chunking: Chunking::new(ChunkingMethod::Pack, (chunk_kib << 10) as u32)?,
        temporary: Path::new(out).parent().unwrap_or(Path::new(".")).to_owned(),
        ..CreateOptions::default()
    };
    let noise = Noise {
        counter: 0,
        left: gigabytes * 1_000_000_000,
    };
    let mut next = 0;
    let created = create(
        vec![Input::Stream(Box::new(noise))],
        Output::File(out.into()),
        &options,
        &mut |now: CreateProgress<'_>| {
            if now.plain_bytes >= next {
                println!("{:5.1} GB: {}", now.plain_bytes as f64 / 1e9, memory());
                next += 1_000_000_000;
            }
            ControlFlow::Continue(())
        },
    )?;
    println!(
        "{} chunks, root {} and {} bytes: {}",
        created.header.chunks,
        created.header.root.plain_bytes,
        created.header.root.private_plain_bytes,
        memory()
    );
    Ok(())
}
