//! Verifying: everything that a store has is read and checked.

use std::mem;

use serde::Serialize;

use crate::{ReadOnlyStore, history::History, index::ChunkAt, layout::index_file::BLOCK_RECORDS};

/// At most so many segments are named with their damage; the rest is counted.
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
    /// What is damaged of segments, or what the disk said of those that it could not read; no more than a few.
    pub told: Vec<String>,
}

impl VerifyReport {
    /// Whether nothing of the store is damaged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damaged_chunks == 0 && self.damaged_metadata == 0
    }
}

impl ReadOnlyStore {
    /// Reads and checks all that there is; `progress` learns how far it is. What the disk cannot
    /// read is damaged.
    pub fn verify(&mut self, progress: &mut dyn FnMut(&VerifyProgress)) -> VerifyReport {
        let history = &self.history;
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
}

fn verify_segment(
    history: &History,
    segment: u32,
    report: &mut VerifyReport,
    so_far: &mut VerifyProgress,
    progress: &mut dyn FnMut(&VerifyProgress),
) {
    let records = history.segment(segment).records;
    let damaged = |report: &VerifyReport| report.damaged_chunks + report.damaged_metadata;
    let damaged_before = damaged(report);
    let mut is_told = false;
    let mut tell = |report: &mut VerifyReport, error: String| {
        // One error per segment: the others say the same.
        if !mem::replace(&mut is_told, true) && report.told.len() < TOLD_MAX {
            report.told.push(error);
        }
    };
    let mut record = 0;
    while record < records {
        let at = ChunkAt { segment, record };
        record += 1;
        let found = match history.record(at) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                report.damaged_metadata += 1;
                tell(report, error.to_string());
                record = record.next_multiple_of(BLOCK_RECORDS as u32);
                continue;
            }
        };
        if history.entry_of(&found).is_none() {
            continue;
        }
        so_far.chunks += 1;
        so_far.bytes += u64::from(found.bytes);
        match history.verified(&found) {
            Ok(Some(_)) => {
                report.chunks += 1;
                report.bytes += u64::from(found.bytes);
            }
            Ok(None) if history.is_in_changed_file(&found) => report.changed_chunks += 1,
            Ok(None) => report.damaged_chunks += 1,
            Err(error) => {
                report.damaged_chunks += 1;
                tell(report, error.to_string());
            }
        }
        progress(so_far);
    }
    if history.segment(segment).is_damaged || damaged(report) > damaged_before {
        let files = history.folder.path().join(format!("{segment:08x}.*"));
        tell(report, format!("damaged data in \"{}\"", files.display()));
    }
}
