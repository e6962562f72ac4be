//! What a shared dictionary would save where each chunk is compressed alone.
//!
//! The program has none: this is the measurement that says so.

use std::{fs::File, path::Path};

use anyhow::Context;
use refrain_czip::archive::{Archive, CacheBytes, FileSource};
use refrain_czip_format::Stream;
use zstd::bulk::Compressor;

const BYTES: usize = 112 << 10;
/// The same in words.
pub(super) const BYTES_TEXT: &str = "112 KiB";
/// A dictionary is trained on as much as a hundred times its length.
const SAMPLE_BYTES: u64 = 100 * BYTES as u64;
/// The program's default.
const LEVEL: i32 = 3;

/// The bytes of an archive of profile `shared`, had its chunks a dictionary.
pub(super) fn bytes_with(archive: &Path) -> anyhow::Result<u64> {
    let file = File::open(archive).with_context(|| archive.display().to_string())?;
    let archive = Archive::open(FileSource::new(file)?, CacheBytes::default())?;
    let content = archive.root().stream(Stream::Content);
    let chunks = content.frames.items();
    // Samples lie evenly all over.
    let every = content.unique_bytes().div_ceil(SAMPLE_BYTES).max(1) as usize;
    let samples = (0..chunks)
        .step_by(every)
        .map(|chunk| Ok(archive.frame(Stream::Content, chunk)?.to_vec()));
    let samples = samples.collect::<anyhow::Result<Vec<_>>>()?;
    let mut bytes = archive.header().archive_bytes;
    // What has too little to train on has nothing to gain.
    let Ok(dictionary) = zstd::dict::from_samples(&samples, BYTES) else {
        return Ok(bytes);
    };
    let mut compressor = Compressor::with_dictionary(LEVEL, &dictionary)?;
    let mut alone = Compressor::new(LEVEL)?;
    bytes += alone.compress(&dictionary)?.len() as u64;
    for chunk in 0..chunks {
        let plain = archive.frame(Stream::Content, chunk)?;
        let stored = u64::from(archive.frame_row(Stream::Content, chunk)?.stored_bytes);
        let with = compressor.compress(&plain)?.len() as u64;
        bytes -= stored.saturating_sub(with);
    }
    Ok(bytes)
}
