//! Adds up what was found, gives it to who wants it, and tells how far it is.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
};

use crate::{
    batch::Batch,
    input::Item,
    outcome::{Failed, Failure, Progress, Redundancy},
    sink::{Chunks, Sink},
};

/// What was found so far.
pub(crate) struct Tally<'a> {
    pub(crate) redundancy: Redundancy,
    sink: Option<&'a mut dyn Sink>,
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    /// Of the file that has not ended: it was written to meanwhile.
    changed: Option<Failure>,
    /// Whether somebody said not to go on.
    pub(crate) is_cut_short: bool,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(
        sink: Option<&'a mut dyn Sink>,
        progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Self {
        Self {
            redundancy: Redundancy::default(),
            sink,
            progress,
            changed: None,
            is_cut_short: false,
        }
    }

    /// What is in a batch, the next in order.
    pub(crate) fn batch(&mut self, batch: &mut Batch) {
        for (chunk, is_repeat) in batch.chunks.iter().zip(&batch.repeats) {
            self.redundancy
                .count(chunk.len(), is_repeat.load(Ordering::Relaxed));
        }
        let mut first = 0;
        for piece in &mut batch.pieces {
            if let Some(item) = piece.item.take() {
                self.begin(*item);
            }
            let of_piece = first..piece.chunks_end;
            first = piece.chunks_end;
            self.chunks(&Chunks {
                bytes: &batch.bytes,
                ranges: &batch.chunks[of_piece.clone()],
                digests: &batch.digests[of_piece],
            });
            match piece.failure.take() {
                Some(failure) if matches!(failure.failed, Failed::Changed) => {
                    self.changed = Some(failure);
                    if piece.is_last {
                        self.end(None);
                    }
                }
                failure if piece.is_last => self.end(failure),
                Some(failure) => self.failure(&failure),
                None => {}
            }
        }
        self.tell(None);
    }

    /// Something was found.
    pub(crate) fn begin(&mut self, item: Item) {
        self.give(|sink| sink.begin(item));
    }

    /// The next chunks of the file, if there are some.
    pub(crate) fn chunks(&mut self, chunks: &Chunks<'_>) {
        if !chunks.ranges.is_empty() {
            self.give(|sink| sink.chunks(chunks));
        }
    }

    /// The file ends, perhaps with a failure.
    pub(crate) fn end(&mut self, failure: Option<Failure>) {
        self.redundancy.files += 1;
        let changed = self.changed.take();
        let failure = failure.or(changed);
        self.give(|sink| sink.end(failure.as_ref().map(|failure| &failure.failed)));
        if let Some(failure) = failure {
            self.failure(&failure);
        }
    }

    fn give(&mut self, what: impl FnOnce(&mut dyn Sink) -> ControlFlow<()>) {
        if let Some(sink) = &mut self.sink
            && !self.is_cut_short
        {
            self.is_cut_short = what(*sink).is_break();
        }
    }

    /// Something cannot be read, or not to its end, or not as it was.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        match failure.failed {
            Failed::Special => self.redundancy.special_files += 1,
            Failed::Unread(_) | Failed::Shrunk => self.redundancy.failures += 1,
            Failed::Changed => self.redundancy.changed_files += 1,
        }
        self.tell(Some(failure));
    }

    pub(crate) fn tell(&mut self, failure: Option<&Failure>) {
        if self.is_cut_short {
            return;
        }
        let now = Progress {
            bytes: self.redundancy.bytes,
            redundant_bytes: self.redundancy.redundant_bytes,
            failure: failure.map(|Failure { path, failed }| (Arc::as_ref(path), failed)),
        };
        self.is_cut_short = (self.progress)(now).is_break();
    }
}
