//! Sends a range: takes what the cache has, has read what it has not, and no more ahead of its
//! client than that.

use std::{future::Future, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::{
    ServeError, Shared,
    cache::in_thread,
    counters::Counters,
    file::{PIECE_BYTES, SentFile},
    opened::Opened,
    plan::{Plan, Slice},
};
use crate::{
    archive::ReadError,
    format::{FormatError, Violation},
};

/// From so many bytes on, a piece goes out without being copied.
const ALONE_BYTES: usize = 16 << 10;
/// Pieces that are smaller go out together.
const TOGETHER_BYTES: usize = 64 << 10;
/// Of a unit that has so many times its bytes, a piece is copied: a slice would keep all of it in memory
/// for as long as a client takes.
const KEPT_PER_PIECE: usize = 4;
/// Units that a read may take at once, at most.
const UNITS_AHEAD: usize = 16;

#[derive(Clone)]
pub(super) enum Sent {
    /// The content of an archive.
    Content(Arc<Opened>),
    File(Arc<SentFile>),
    /// What is in memory.
    Bytes(Bytes),
}

pub(super) struct Sending {
    shared: Arc<Shared>,
    sent: Sent,
    position: u64,
    end: u64,
    plan: Option<Arc<Plan>>,
    /// The slice that is next, and how much of it is done.
    slice: usize,
    within: u32,
    /// The unit last used.
    unit: Option<(u32, Bytes)>,
    /// Small pieces.
    gathered: BytesMut,
    /// A piece that was loaded before it was asked for.
    primed: Option<Bytes>,
}

impl Sending {
    pub(super) fn new(shared: Arc<Shared>, sent: Sent, begin: u64, end: u64) -> Self {
        let (position, primed) = match &sent {
            Sent::Bytes(bytes) => (end, Some(bytes.slice(begin as usize..end as usize))),
            Sent::Content(_) | Sent::File(_) => (begin, None),
        };
        Self {
            shared,
            sent,
            position,
            end,
            plan: None,
            slice: 0,
            within: 0,
            unit: None,
            gathered: BytesMut::new(),
            primed,
        }
    }

    /// Loads the first piece: whether there is anything to send shows before it is promised.
    pub(super) async fn prime(&mut self) -> Result<(), ServeError> {
        self.primed = self.next().await?;
        Ok(())
    }

    /// The next piece; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ServeError> {
        if let Some(piece) = self.primed.take() {
            return Ok(Some(piece));
        }
        match self.sent.clone() {
            Sent::Content(opened) => {
                let gathered = self.gather(&opened).await;
                if gathered.is_err() {
                    opened.failed();
                }
                gathered
            }
            Sent::File(file) => self.read_file(file).await,
            Sent::Bytes(_) => Ok(None),
        }
    }

    /// Goes over slices until there is a piece, and loads what they need.
    async fn gather(&mut self, opened: &Arc<Opened>) -> Result<Option<Bytes>, ServeError> {
        while self.position < self.end && self.gathered.len() < TOGETHER_BYTES {
            let plan = match self.plan.take() {
                Some(plan) => plan,
                None => self.next_plan(opened).await?,
            };
            // Another plan goes on where this one ends.
            let Some(&slice) = plan.slices.get(self.slice) else {
                continue;
            };
            self.plan = Some(plan.clone());
            let left = u64::from(slice.bytes() - self.within);
            let count = left.min(self.end - self.position) as usize;
            let within = self.within as usize;
            let alone = match slice {
                Slice::Zeros { .. } => {
                    self.gathered.resize(self.gathered.len() + count, 0);
                    None
                }
                Slice::Literal { offset, .. } => {
                    let begin = offset as usize + within;
                    let literal = &plan.literals[begin..begin + count];
                    self.gathered.extend_from_slice(literal);
                    None
                }
                Slice::Unit { index, offset, .. } => {
                    let unit = self.unit(opened, &plan, index).await?;
                    let begin = offset as usize + within;
                    let end = begin + count;
                    if end > unit.len() {
                        let violation = Violation::ChunkBeyondFrame;
                        return Err(ReadError::from(FormatError::Invalid(violation)).into());
                    }
                    match goes_alone(count, unit.len()) {
                        // What was gathered goes out before it.
                        true if !self.gathered.is_empty() => break,
                        true => Some(unit.slice(begin..end)),
                        false => {
                            self.gathered.extend_from_slice(&unit[begin..end]);
                            None
                        }
                    }
                }
            };
            self.pass(count as u32);
            if alone.is_some() {
                return Ok(alone);
            }
        }
        let gathered = self.gathered.split().freeze();
        Ok((!gathered.is_empty()).then_some(gathered))
    }

    fn pass(&mut self, count: u32) {
        self.position += u64::from(count);
        self.within += count;
        let slice = self.plan.as_ref().map(|plan| plan.slices[self.slice]);
        if slice.is_some_and(|slice| self.within == slice.bytes()) {
            self.slice += 1;
            self.within = 0;
        }
    }

    /// The plan that the position is in. The next span of what is far away is loaded meanwhile.
    async fn next_plan(&mut self, opened: &Arc<Opened>) -> Result<Arc<Plan>, ServeError> {
        let position = self.position;
        (self.slice, self.within, self.unit) = (0, 0, None);
        let cache = &self.shared.cache;
        let plan = match cache.plan(opened, position) {
            Some(plan) => plan,
            None => in_task(cache.clone().load_plan(opened.clone(), position)).await?,
        };
        let span_bytes = opened.span_bytes();
        let next = (position / span_bytes + 1) * span_bytes;
        let left = self.end.saturating_sub(next);
        if opened.is_remote() && left > 0 {
            let ahead = cache.clone().load_ahead(opened.clone(), next, left);
            // What goes wrong shows again when it is wanted.
            tokio::spawn(async { drop(ahead.await) });
        }
        let mut left = position - plan.begin;
        for slice in &plan.slices {
            let bytes = u64::from(slice.bytes());
            if left < bytes {
                break;
            }
            left -= bytes;
            self.slice += 1;
        }
        self.within = left as u32;
        Ok(plan)
    }

    /// A unit of the plan: the one used last, one that the cache has, or one that is read.
    async fn unit(
        &mut self,
        opened: &Arc<Opened>,
        plan: &Plan,
        index: u32,
    ) -> Result<Bytes, ServeError> {
        if let Some((last, bytes)) = &self.unit
            && *last == index
        {
            return Ok(bytes.clone());
        }
        let first = index as usize;
        let cache = &self.shared.cache;
        let bytes = match cache.unit(&plan.units[first].key()) {
            Some(bytes) => bytes,
            None => {
                // Those that follow in the same archive may be read with it.
                let beyond = match opened.is_remote() {
                    // What this client does not want is not fetched for it.
                    true => plan.units_within(self.end - plan.begin).max(first + 1),
                    false => plan.units.len().min(first + UNITS_AHEAD),
                };
                let units = plan.units[first..beyond].to_vec();
                in_task(cache.clone().load_units(opened.clone(), units)).await?
            }
        };
        self.unit = Some((index, bytes.clone()));
        Ok(bytes)
    }

    /// The next piece of a file: read at once, if that takes no waiting for a disk.
    async fn read_file(&mut self, file: Arc<SentFile>) -> Result<Option<Bytes>, ServeError> {
        let offset = self.position;
        let count = (self.end - offset).min(PIECE_BYTES as u64) as usize;
        if count == 0 {
            return Ok(None);
        }
        let mut buffer = self.shared.buffers.take();
        let read = file.read_from_page_cache(buffer.room(count), offset);
        let piece = match read.map_err(ReadError::from)? {
            0 => {
                in_thread(move || {
                    file.read_exact_at(buffer.room(count), offset)?;
                    Ok(buffer.filled(count))
                })
                .await?
            }
            read => buffer.filled(read),
        };
        let bytes = piece.len() as u64;
        Counters::add(&self.shared.counters.disk_bytes, bytes);
        self.position += bytes;
        Ok(Some(piece))
    }
}

/// In a task of its own: what others wait for too is read to its end, even if this client goes.
async fn in_task<T: Send + 'static>(
    loading: impl Future<Output = Result<T, ServeError>> + Send + 'static,
) -> Result<T, ServeError> {
    (tokio::spawn(loading).await).unwrap_or(Err(ServeError::Stopped))
}

/// Whether a piece of a unit goes out without being copied.
fn goes_alone(piece_bytes: usize, unit_bytes: usize) -> bool {
    piece_bytes >= ALONE_BYTES && piece_bytes * KEPT_PER_PIECE >= unit_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_keeps_no_more_than_four_times_its_bytes_in_memory() {
        assert!(goes_alone(32 << 10, 32 << 10));
        assert!(goes_alone(64 << 10, 256 << 10));
        assert!(!goes_alone(63 << 10, 256 << 10));
        // What is small is copied in any case.
        assert!(!goes_alone(8 << 10, 8 << 10));
    }
}
