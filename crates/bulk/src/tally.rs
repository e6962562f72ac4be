//! Adds up what was found, and tells how far it is.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
};

use crate::{
    batch::{Batch, Failure},
    outcome::{Failed, Progress, Redundancy},
};

/// What was found so far.
pub(crate) struct Tally<'a> {
    pub(crate) redundancy: Redundancy,
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    /// Whether somebody said not to go on.
    pub(crate) is_cut_short: bool,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>) -> Self {
        Self {
            redundancy: Redundancy::default(),
            progress,
            is_cut_short: false,
        }
    }

    /// What is in a batch, the next in order.
    pub(crate) fn batch(&mut self, batch: &mut Batch) {
        for (chunk, is_repeat) in batch.chunks.iter().zip(&batch.repeats) {
            self.redundancy
                .count(chunk.len(), is_repeat.load(Ordering::Relaxed));
        }
        for piece in &mut batch.pieces {
            self.redundancy.files += u64::from(piece.is_last);
            if let Some(failure) = piece.failure.take() {
                self.failure(&failure);
            }
        }
        self.tell(None);
    }

    /// Something cannot be read, or not to its end.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        match failure.failed {
            Failed::Special => self.redundancy.special_files += 1,
            Failed::Unread(_) | Failed::Shrunk => self.redundancy.failures += 1,
        }
        self.tell(Some(failure));
    }

    pub(crate) fn tell(&mut self, failure: Option<&Failure>) {
        let now = Progress {
            bytes: self.redundancy.bytes,
            redundant_bytes: self.redundancy.redundant_bytes,
            failure: failure.map(|Failure { path, failed }| (Arc::as_ref(path), failed)),
        };
        if (self.progress)(now).is_break() {
            self.is_cut_short = true;
        }
    }
}
