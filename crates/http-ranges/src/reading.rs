//! Reading in the thread that asks, with or without ranges.

use std::{ops::Range, sync::atomic::Ordering::Relaxed, thread};

use super::{
    Remote, Sink,
    error::RemoteError,
    lock,
    part::{Got, Part},
    whole::Whole,
};

const BLOCK_BYTES: usize = 64 << 10;

impl Remote {
    /// Reads one range in this thread.
    pub(super) fn read(
        &self,
        mut range: Range<u64>,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), RemoteError> {
        self.check_end(&range)?;
        let first = self.first();
        let here = first.len() as u64;
        if range.start < here && !range.is_empty() {
            let end = range.end.min(here);
            each(range.start, &first[range.start as usize..end as usize]);
            range.start = end;
        }
        if range.is_empty() {
            return Ok(());
        }
        if self.has_ranges() {
            let part = Part::new(&self.server, self.server.agents(), range.clone());
            return self.read_part(part, range, each);
        }
        self.read_all_of(range, &mut |at, bytes| {
            each(at, bytes);
            Ok(())
        })
    }

    pub(super) fn read_part(
        &self,
        mut part: Part<'_>,
        mut range: Range<u64>,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), RemoteError> {
        let mut block = block_for(&range);
        while !range.is_empty() {
            let most = block
                .len()
                .min(usize::try_from(part.left_bytes()).unwrap_or(usize::MAX));
            match part.read(&mut block[..most])? {
                Got::Bytes(read) => {
                    self.report();
                    each(range.start, &block[..read]);
                    range.start += read as u64;
                }
                Got::Pause(pause) => thread::sleep(pause),
                Got::Whole(body) => {
                    self.remember_whole(Whole::begun(body));
                    return self.read_all_of(range, &mut |at, bytes| {
                        each(at, bytes);
                        Ok(())
                    });
                }
            }
        }
        Ok(())
    }

    /// Reads a range of a server without ranges.
    pub(super) fn read_all_of<E: From<RemoteError>>(
        &self,
        range: Range<u64>,
        each: &mut Sink<'_, E>,
    ) -> Result<(), E> {
        let len = self.read_whole(range.clone(), each)?;
        if len < range.end {
            let url = self.server.shown();
            return Err(RemoteError::BeyondEnd { url, range, len }.into());
        }
        Ok(())
    }

    /// Reads a range, up to the file's end at most, from the one body that a server without ranges
    /// sends. Returns how far it came.
    pub(super) fn read_whole<E: From<RemoteError>>(
        &self,
        range: Range<u64>,
        each: &mut Sink<'_, E>,
    ) -> Result<u64, E> {
        // `each` may read this file too: it then begins another body.
        let mut whole = lock(&self.whole).take().unwrap_or_default();
        let mut attempts = self.server.attempts();
        let mut block = block_for(&range);
        let mut at = range.start;
        while at < range.end {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let most = left.min(block.len());
            let read = whole.read(&self.server, &mut attempts, at, &mut block[..most])?;
            if read == 0 {
                break;
            }
            self.report();
            each(at, &block[..read])?;
            at += read as u64;
        }
        self.remember_whole(whole);
        Ok(at)
    }

    pub(super) fn remember_whole(&self, whole: Whole) {
        self.has_ranges.store(false, Relaxed);
        *lock(&self.whole) = Some(whole);
    }
}

fn block_for(range: &Range<u64>) -> Vec<u8> {
    let bytes = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    vec![0; bytes.min(BLOCK_BYTES)]
}
