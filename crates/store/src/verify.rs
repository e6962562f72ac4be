//! Verifying: everything that a store has is read and checked.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    StoreError,
    history::History,
    index::{ChunkAt, Entry},
    key::IndexKey,
    layout::index_file::BLOCK_RECORDS,
};

/// Segments of which it is told why they cannot be read; the rest is counted.
const TOLD_MAX: usize = 100;

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
    /// Blocks of records, pieces of recipes and lists of others' files that are damaged, or cannot
    /// be read.
    pub damaged_metadata: u64,
    /// What the disk said of segments that it could not read; no more than a few.
    pub told: Vec<String>,
    /// What is to be found no more.
    #[serde(skip)]
    pub(crate) damaged_keys: Vec<IndexKey>,
    /// Segments of which something is damaged.
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

/// Reads on behind what the disk cannot read.
pub(crate) fn verify(history: &History, progress: &mut dyn FnMut(&VerifyProgress)) -> VerifyReport {
    let mut report = VerifyReport {
        damaged_metadata: history.damaged,
        ..VerifyReport::default()
    };
    let mut so_far = VerifyProgress {
        chunks_total: history.chunks,
        ..VerifyProgress::default()
    };
    progress(&so_far);
    for &number in history.segments.keys() {
        verify_segment(history, number, &mut report, &mut so_far, progress);
    }
    report
}

fn verify_segment(
    history: &History,
    number: u32,
    report: &mut VerifyReport,
    so_far: &mut VerifyProgress,
    progress: &mut dyn FnMut(&VerifyProgress),
) {
    let segment = history.segment(number);
    let tell = |report: &mut VerifyReport, error: StoreError| {
        // Of one segment more is the same again.
        if report.damaged_segments.insert(number) && report.told.len() < TOLD_MAX {
            report.told.push(error.to_string());
        }
    };
    let mut record = 0;
    while record < segment.records {
        let at = ChunkAt {
            segment: number,
            record,
        };
        record += 1;
        let found = match history.record(at) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                report.damaged_metadata += 1;
                tell(report, error);
                record = record.next_multiple_of(BLOCK_RECORDS as u32);
                continue;
            }
        };
        let key = IndexKey::of_chunk(history.realms.realm(found.realm), &found.digest);
        if history.index.find(key).and_then(Entry::at) != Some(at) {
            continue;
        }
        so_far.chunks += 1;
        so_far.bytes += u64::from(found.bytes);
        match history.verified(at, &found) {
            Ok(Some(_)) => {
                report.chunks += 1;
                report.bytes += u64::from(found.bytes);
            }
            Ok(None) if history.is_in_changed_file(at, found.offset) => {
                report.changed_chunks += 1;
                report.damaged_keys.push(key);
            }
            Ok(None) => {
                report.damaged_chunks += 1;
                report.damaged_keys.push(key);
                report.damaged_segments.insert(number);
            }
            Err(error) => {
                report.damaged_chunks += 1;
                if !error.is_forbidden() {
                    report.damaged_keys.push(key);
                }
                tell(report, error);
            }
        }
        progress(so_far);
    }
}
