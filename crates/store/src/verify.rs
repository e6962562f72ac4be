//! Verifying: everything that a store has is read and checked.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    StoreError,
    history::History,
    index::{ChunkAt, Entry},
    key::IndexKey,
};

/// How far verifying has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Chunks that were read.
    pub chunks: u64,
    /// Chunks that there are.
    pub chunks_total: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Chunks that are as they were written.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks that are not, or cannot be read.
    pub damaged_chunks: u64,
    /// Chunks in files of others that changed since they were added: no damage, but they are
    /// history no more.
    pub changed_chunks: u64,
    /// Blocks of records and pieces of recipes that were found damaged at opening.
    pub damaged_metadata: u64,
    /// What is to be found no more.
    #[serde(skip)]
    pub(crate) damaged_keys: Vec<IndexKey>,
    /// Segments whose own chunks are damaged.
    #[serde(skip)]
    pub(crate) damaged_segments: BTreeSet<u32>,
}

impl VerifyReport {
    /// Whether nothing of the store is damaged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damaged_chunks == 0 && self.damaged_metadata == 0
    }
}

pub(crate) fn verify(
    history: &History,
    progress: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, StoreError> {
    let mut report = VerifyReport {
        damaged_metadata: history.damaged,
        ..VerifyReport::default()
    };
    let mut so_far = VerifyProgress {
        chunks_total: history.chunks,
        ..VerifyProgress::default()
    };
    progress(&so_far);
    for (&number, segment) in &history.segments {
        for record in 0..segment.records {
            let at = ChunkAt {
                segment: number,
                record,
            };
            let Some(found) = history.record(at)? else {
                continue;
            };
            let key = IndexKey::of_chunk(history.realms.realm(found.realm), &found.digest);
            if history.index.find(key).and_then(Entry::at) != Some(at) {
                continue;
            }
            so_far.chunks += 1;
            so_far.bytes += u64::from(found.bytes);
            if history.verified(at, &found)?.is_some() {
                report.chunks += 1;
                report.bytes += u64::from(found.bytes);
            } else {
                match segment.files {
                    Some(_) => report.changed_chunks += 1,
                    None => {
                        report.damaged_chunks += 1;
                        report.damaged_segments.insert(number);
                    }
                }
                report.damaged_keys.push(key);
            }
            progress(&so_far);
        }
    }
    Ok(report)
}
