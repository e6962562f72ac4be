//! Sends a range: takes what the cache has, has read what it has not, and no more ahead of its
//! client than that.

use std::{
    fs::File,
    future::Future,
    os::unix::fs::FileExt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};

use super::{
    ServeError, Shared,
    cache::in_thread,
    counters::Counters,
    file::{PIECE_BYTES, read_from_page_cache},
    opened::Opened,
    plan::{Plan, Slice, View},
};
use crate::{
    archive::{ReadError, Source},
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
    /// Of an archive.
    Archive(Arc<Opened>, View),
    /// A file that is none.
    File(Arc<File>),
    /// What is in memory.
    Bytes(Bytes),
}

enum Loaded {
    Plan(Arc<Plan>),
    Unit(u32, Bytes),
    Piece(Bytes),
}

type Loading = Pin<Box<dyn Future<Output = Result<Loaded, ServeError>> + Send>>;

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
    loading: Option<Loading>,
}

impl Sending {
    pub(super) fn new(shared: Arc<Shared>, sent: Sent, begin: u64, end: u64) -> Self {
        let (position, primed) = match &sent {
            Sent::Bytes(bytes) => (end, Some(bytes.slice(begin as usize..end as usize))),
            Sent::Archive(..) | Sent::File(_) => (begin, None),
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
            loading: None,
        }
    }

    /// Loads the first piece: whether there is anything to send shows before it is promised.
    pub(super) async fn prime(&mut self) -> Result<(), ServeError> {
        self.primed = std::future::poll_fn(|context| self.poll_piece(context)).await?;
        Ok(())
    }

    /// The next piece; none at the end.
    pub(super) fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, ServeError>> {
        let polled = self.poll_next(context);
        if let (Poll::Ready(Err(_)), Sent::Archive(opened, _)) = (&polled, &self.sent) {
            opened.failed();
        }
        polled
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ServeError>> {
        if let Some(piece) = self.primed.take() {
            return Poll::Ready(Ok(Some(piece)));
        }
        loop {
            if let Some(loading) = &mut self.loading {
                let loaded = ready!(loading.as_mut().poll(context));
                self.loading = None;
                match loaded? {
                    Loaded::Plan(plan) => self.begin_span(plan),
                    Loaded::Unit(index, bytes) => self.unit = Some((index, bytes)),
                    Loaded::Piece(piece) => {
                        self.pass(piece.len() as u32);
                        return Poll::Ready(Ok(Some(piece)));
                    }
                }
            }
            if self.position == self.end || self.gathered.len() >= TOGETHER_BYTES {
                let gathered = self.gathered.split().freeze();
                return Poll::Ready(Ok((!gathered.is_empty()).then_some(gathered)));
            }
            if let Some(piece) = self.step()? {
                return Poll::Ready(Ok(Some(piece)));
            }
        }
    }

    /// Goes over a slice, or begins to load what it needs.
    fn step(&mut self) -> Result<Option<Bytes>, ServeError> {
        let Some(plan) = self.plan.clone() else {
            self.next_plan();
            return Ok(None);
        };
        let Some(&slice) = plan.slices.get(self.slice) else {
            // Another plan goes on where this one ends.
            self.plan = None;
            return Ok(None);
        };
        let left = u64::from(slice.bytes() - self.within);
        let count = left.min(self.end - self.position) as u32;
        let within = self.within;
        match slice {
            Slice::Zeros { .. } => {
                let gathered = self.gathered.len();
                self.gathered.resize(gathered + count as usize, 0);
            }
            Slice::Literal { offset, .. } => {
                let begin = (offset + within) as usize;
                let literal = &plan.literals[begin..begin + count as usize];
                self.gathered.extend_from_slice(literal);
            }
            Slice::File { offset, .. } => {
                if !self.gathered.is_empty() {
                    return Ok(Some(self.gathered.split().freeze()));
                }
                let count = (count as usize).min(PIECE_BYTES);
                return Ok(self.read_file(offset + u64::from(within), count));
            }
            Slice::Unit { index, offset, .. } => {
                let Some(unit) = self.find_unit(&plan, index) else {
                    self.load_unit(&plan, index);
                    return Ok(None);
                };
                let begin = offset as usize + within as usize;
                let end = begin + count as usize;
                if end > unit.len() {
                    let violation = Violation::ChunkBeyondFrame;
                    return Err(ReadError::from(FormatError::Invalid(violation)).into());
                }
                let count = count as usize;
                if goes_alone(count, unit.len()) {
                    if !self.gathered.is_empty() {
                        return Ok(Some(self.gathered.split().freeze()));
                    }
                    self.pass(count as u32);
                    return Ok(Some(unit.slice(begin..end)));
                }
                self.gathered.extend_from_slice(&unit[begin..end]);
            }
        }
        self.pass(count);
        Ok(None)
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

    fn next_plan(&mut self) {
        match &self.sent {
            Sent::Archive(opened, view) => {
                let (opened, view) = (opened.clone(), *view);
                let position = self.position;
                match self.shared.cache.plan(&opened, view, position) {
                    Some(plan) => self.begin_span(plan),
                    None => {
                        let cache = self.shared.cache.clone();
                        self.load(async move {
                            let plan = cache.load_plan(opened, view, position).await?;
                            Ok(Loaded::Plan(plan))
                        });
                    }
                }
            }
            Sent::File(_) | Sent::Bytes(_) => {
                let bytes = self.end - self.position;
                let slice = Slice::File {
                    offset: self.position,
                    bytes: bytes.min(1 << 30) as u32,
                };
                self.plan = Some(Arc::new(Plan {
                    slices: vec![slice],
                    ..Plan::default()
                }));
                (self.slice, self.within) = (0, 0);
            }
        }
    }

    /// Goes on with the plan that the position is in. The next span is loaded meanwhile, if it is far
    /// away.
    fn begin_span(&mut self, plan: Arc<Plan>) {
        let Sent::Archive(opened, _) = &self.sent else {
            unreachable!("only archives have spans");
        };
        let span_bytes = opened.span_bytes();
        let next = (self.position / span_bytes + 1) * span_bytes;
        let left = self.end.saturating_sub(next);
        if opened.is_remote() && left > 0 {
            let ahead = self
                .shared
                .cache
                .clone()
                .load_ahead(opened.clone(), next, left);
            // What goes wrong shows again when it is wanted.
            tokio::spawn(async { drop(ahead.await) });
        }
        let mut left = self.position - plan.begin;
        self.slice = 0;
        for slice in &plan.slices {
            let bytes = u64::from(slice.bytes());
            if left < bytes {
                break;
            }
            left -= bytes;
            self.slice += 1;
        }
        self.within = left as u32;
        self.unit = None;
        self.plan = Some(plan);
    }

    fn find_unit(&mut self, plan: &Plan, index: u32) -> Option<Bytes> {
        if let Some((last, bytes)) = &self.unit
            && *last == index
        {
            return Some(bytes.clone());
        }
        let bytes = self.shared.cache.unit(&plan.units[index as usize].key())?;
        self.unit = Some((index, bytes.clone()));
        Some(bytes)
    }

    fn load_unit(&mut self, plan: &Plan, index: u32) {
        let first = index as usize;
        let Sent::Archive(opened, _) = &self.sent else {
            unreachable!("only archives have units");
        };
        let opened = opened.clone();
        // Those that follow in the same archive may be read with it.
        let beyond = match opened.is_remote() {
            // What this client does not want is not fetched for it.
            true => plan.units_within(self.end - plan.begin).max(first + 1),
            false => plan.units.len().min(first + UNITS_AHEAD),
        };
        let units = plan.units[first..beyond].to_vec();
        let cache = self.shared.cache.clone();
        self.load(async move {
            let bytes = cache.load_units(opened, units).await?;
            Ok(Loaded::Unit(index, bytes))
        });
    }

    /// Reads a piece of a file: at once, if that takes no waiting for a disk.
    fn read_file(&mut self, offset: u64, bytes: usize) -> Option<Bytes> {
        let mut buffer = self.shared.buffers.take();
        if let Sent::File(file) = &self.sent {
            let read = read_from_page_cache(file, buffer.room(bytes), offset);
            if read > 0 {
                Counters::add(&self.shared.counters.disk_bytes, read as u64);
                self.pass(read as u32);
                return Some(buffer.filled(read));
            }
        }
        let sent = self.sent.clone();
        let shared = self.shared.clone();
        self.load(async move {
            let piece = in_thread(move || {
                let room = buffer.room(bytes);
                match &sent {
                    Sent::File(file) => {
                        file.read_exact_at(room, offset)?;
                        Counters::add(&shared.counters.disk_bytes, bytes as u64);
                    }
                    Sent::Archive(opened, _) => {
                        opened.archive.source().read_exact_at(room, offset)?;
                    }
                    Sent::Bytes(_) => unreachable!("they are in memory"),
                }
                Ok(buffer.filled(bytes))
            });
            Ok(Loaded::Piece(piece.await?))
        });
        None
    }

    /// In a task of its own: what others wait for too is read to its end, even if this client goes.
    fn load(&mut self, loading: impl Future<Output = Result<Loaded, ServeError>> + Send + 'static) {
        let task = tokio::spawn(loading);
        self.loading = Some(Box::pin(async move {
            match task.await {
                Ok(loaded) => loaded,
                Err(_) => Err(ServeError::Stopped),
            }
        }));
    }
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
