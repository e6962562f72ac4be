//! The ten rows: what each turn does, and which part of it the clock sees.

use std::{
    fs::{self, File},
    hint::black_box,
    ops::ControlFlow,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use refrain_codec::{
    Block, Decoder, EncodedBlock, Encoder, EncoderConfig, LogPosition, SourceCursor,
    chunk::{hash::ChunkHasher, stream::StreamChunks},
    geometry::CacheGeometry,
    matching::Everything,
};
use refrain_czip::{
    archive::{Archive, CacheBytes, FileSource},
    create::{CreateOptions, Input, Output, create},
    extract::{ExtractOptions, extract},
};
use refrain_store::{ChunkSource, DiskStore, Realm, StoreConfig};
use tempfile::TempDir;

use super::{noise::Noise, pair::Pair};
use crate::demo::content;

/// What the codec takes at once.
const BLOCK_BYTES: usize = 64 << 10;

/// Of a chunk in the store.
pub(super) const CHUNK_BYTES: usize = 8 << 10;

/// Of a turn; the log holds twice as much, and the store eight times.
const TURN_BYTES: usize = 8 << 20;
const LOG_BYTES: usize = 2 * TURN_BYTES;
const STORE_BYTES: u64 = 8 * TURN_BYTES as u64;

/// Chunks that a link's history reads at a time.
const CHAIN_CHUNKS: usize = 32;

pub(super) struct Row {
    pub name: &'static str,
    /// Whether it tells chunks a second as well.
    pub is_of_chunks: bool,
    pub make: fn() -> anyhow::Result<Work>,
}

/// What a row measures.
pub(super) struct Work {
    /// Plain bytes of each turn.
    pub bytes: usize,
    pub turn: Turn,
}

/// A turn of work; gives how long that took, without its preparations.
type Turn = Box<dyn FnMut() -> anyhow::Result<Duration>>;

pub(super) const ROWS: [Row; 10] = [
    row("encode new data", || encode(true)),
    row("encode repeated data", || encode(false)),
    row("decode repeated data", decode),
    row("cut chunks and hash them", cut_and_hash),
    row_of_chunks("write chunks to a store", write_to_store),
    row_of_chunks("read chunks from a store", read_from_store),
    row("create an archive", create_archive),
    row("extract an archive", extract_archive),
    row("carry new data over a pair", || carry(true)),
    row("carry predicted data over a pair", || carry(false)),
];

const fn row(name: &'static str, make: fn() -> anyhow::Result<Work>) -> Row {
    Row {
        name,
        is_of_chunks: false,
        make,
    }
}

const fn row_of_chunks(name: &'static str, make: fn() -> anyhow::Result<Work>) -> Row {
    Row {
        is_of_chunks: true,
        ..row(name, make)
    }
}

impl Work {
    pub(super) fn new(
        bytes: usize,
        turn: impl FnMut() -> anyhow::Result<Duration> + 'static,
    ) -> Self {
        Self {
            bytes,
            turn: Box::new(turn),
        }
    }
}

fn encode(is_new: bool) -> anyhow::Result<Work> {
    let (mut encoder, mut out) = (encoder(), EncodedBlock::default());
    let mut noise = Noise::new(1);
    let mut content = noise.take(TURN_BYTES);
    Ok(Work::new(TURN_BYTES, move || {
        if is_new {
            noise.fill(&mut content);
        }
        let mut cursor = SourceCursor::default();
        let start = Instant::now();
        for block in content.chunks(BLOCK_BYTES) {
            encoder.encode(0, block, &Everything, &mut cursor, &mut out);
            black_box(&out);
        }
        Ok(start.elapsed())
    }))
}

fn decode() -> anyhow::Result<Work> {
    let (mut encoder, mut decoder) = (encoder(), Decoder::new(geometry()));
    let content = Noise::new(1).take(TURN_BYTES);
    let mut blocks = vec![EncodedBlock::default(); TURN_BYTES / BLOCK_BYTES];
    let (mut head, mut plain) = (LogPosition(0), Vec::new());
    Ok(Work::new(TURN_BYTES, move || {
        let mut cursor = SourceCursor::default();
        for (block, out) in content.chunks(BLOCK_BYTES).zip(&mut blocks) {
            encoder.encode(0, block, &Everything, &mut cursor, out);
        }
        let mut cursor = SourceCursor::default();
        let start = Instant::now();
        for encoded in &blocks {
            let block = Block {
                number: 0,
                at: head,
                len: BLOCK_BYTES,
                tokens: &encoded.tokens,
                literals: &encoded.literals,
                check: encoded.check,
            };
            plain.clear();
            decoder.decode(block, &mut cursor, &mut plain)?;
            black_box(&plain);
            head = head + BLOCK_BYTES as u64;
        }
        Ok(start.elapsed())
    }))
}

fn encoder() -> Encoder {
    Encoder::new(EncoderConfig::with_defaults(geometry()))
}

fn geometry() -> CacheGeometry {
    CacheGeometry::new(LOG_BYTES).expect("a valid size")
}

/// What a receiver pays to learn.
fn cut_and_hash() -> anyhow::Result<Work> {
    let content = Noise::new(1).take(TURN_BYTES);
    Ok(Work::new(TURN_BYTES, move || {
        let (mut cutter, mut chunks) = (StreamChunks::default(), Vec::new());
        let start = Instant::now();
        cutter.feed(&content, &mut chunks);
        cutter.finish(&mut chunks);
        for chunk in &chunks {
            let chunk = &content[chunk.start as usize..chunk.end as usize];
            black_box(ChunkHasher::default().digest(chunk));
        }
        Ok(start.elapsed())
    }))
}

/// A store in a temporary folder, which goes with it.
fn store() -> anyhow::Result<(DiskStore, TempDir)> {
    let folder = tempfile::tempdir()?;
    let store = DiskStore::open(folder.path(), StoreConfig::new(STORE_BYTES))?;
    Ok((store, folder))
}

fn realm() -> Realm {
    Realm::named("bench")
}

fn write_to_store() -> anyhow::Result<Work> {
    let (mut store, folder) = store()?;
    let mut noise = Noise::new(1);
    Ok(Work::new(TURN_BYTES, move || {
        let _folder = &folder;
        let content = noise.take(TURN_BYTES);
        let chunks = content.chunks(CHUNK_BYTES);
        let chunks: Vec<_> = chunks
            .map(|chunk| (ChunkHasher::default().digest(chunk), chunk))
            .collect();
        let start = Instant::now();
        let recipe = store.begin(realm(), None);
        for (digest, chunk) in chunks {
            store.append(recipe, &digest, chunk)?;
        }
        store.end(recipe)?;
        Ok(start.elapsed())
    }))
}

fn read_from_store() -> anyhow::Result<Work> {
    let (mut store, folder) = store()?;
    let content = Noise::new(1).take(TURN_BYTES + CHUNK_BYTES);
    let recipe = store.begin(realm(), None);
    let mut digests = Vec::new();
    for chunk in content.chunks(CHUNK_BYTES) {
        let digest = ChunkHasher::default().digest(chunk);
        store.append(recipe, &digest, chunk)?;
        digests.push(digest);
    }
    store.end(recipe)?;
    // Each has a chain of chunks after it.
    let before = digests.into_iter().step_by(CHAIN_CHUNKS);
    let before: Vec<_> = before
        .take(TURN_BYTES / CHUNK_BYTES / CHAIN_CHUNKS)
        .collect();
    Ok(Work::new(TURN_BYTES, move || {
        let _folder = &folder;
        let start = Instant::now();
        for digest in &before {
            let places = store.places_after(realm(), digest);
            let place = places.first().context("the store has lost a chunk")?;
            black_box(store.read(*place, CHAIN_CHUNKS, usize::MAX)?);
        }
        Ok(start.elapsed())
    }))
}

/// Of the demo's content: successive releases of programs, and their pages.
fn create_archive() -> anyhow::Result<Work> {
    let (folder, bytes) = content_in_folder()?;
    Ok(Work::new(bytes, move || {
        let start = Instant::now();
        archive(folder.path())?;
        Ok(start.elapsed())
    }))
}

fn extract_archive() -> anyhow::Result<Work> {
    let (folder, bytes) = content_in_folder()?;
    archive(folder.path())?;
    let options = ExtractOptions {
        threads: thread::available_parallelism().map_or(1, usize::from),
        ..ExtractOptions::default()
    };
    Ok(Work::new(bytes, move || {
        let target = folder.path().join("extracted");
        let start = Instant::now();
        let source = FileSource::new(File::open(folder.path().join(ARCHIVE))?)?;
        let archive = Archive::open(source, CacheBytes::default())?;
        extract(&archive, &target, &options, &mut |_| {
            ControlFlow::Continue(())
        })?;
        let time = start.elapsed();
        fs::remove_dir_all(target)?;
        Ok(time)
    }))
}

const CONTENT: &str = "content.tar";
const ARCHIVE: &str = "content.czip";

/// A temporary folder with a file of content, and its length.
fn content_in_folder() -> anyhow::Result<(TempDir, usize)> {
    let (folder, content) = (tempfile::tempdir()?, content::archive()?);
    let path = folder.path().join(CONTENT);
    fs::write(&path, &content).with_context(|| format!("cannot write \"{}\"", path.display()))?;
    Ok((folder, content.len()))
}

fn archive(folder: &Path) -> anyhow::Result<()> {
    let inputs = vec![Input::Path(folder.join(CONTENT))];
    let output = Output::File(folder.join(ARCHIVE));
    let options = CreateOptions::default();
    create(inputs, output, &options, &mut |_| ControlFlow::Continue(()))?;
    Ok(())
}

/// Downloads of noise: new each time, or the same, which the near end's store predicts.
fn carry(is_new: bool) -> anyhow::Result<Work> {
    let pair = Pair::start()?;
    let mut seed = 1;
    Ok(Work::new(Pair::DOWNLOAD_BYTES, move || {
        seed += u64::from(is_new);
        let start = Instant::now();
        pair.fetch(seed)?;
        Ok(start.elapsed())
    }))
}
