//! Makes frames, of all streams, and puts them into the archive in order.

use std::{collections::VecDeque, io, path::Path, sync::Arc};

use super::{
    frame_table::FrameTable,
    output::{Frames, Output},
    parts::PartSpool,
    pool::{Made, Pool},
};
use crate::{
    format::{Stream, part::StoredFrame},
    method::{Compression, decompress},
};

/// Plain bytes of frames that are kept, since they may be bases.
const RECENT_BYTES_MAX: usize = 32 << 20;

/// A frame in the making.
struct Waiting {
    stream: Stream,
    base: Option<u64>,
    ends_part: bool,
}

pub(super) struct FrameMaker {
    pool: Pool,
    waiting: VecDeque<Waiting>,
    pub(super) frames: Frames,
    tables: [FrameTable; 5],
    /// Numbers of the streams' next frames.
    next: [u64; 5],
    /// The latest plain frames that may be bases; all that are in the making are among them.
    recent: VecDeque<(Stream, u64, Arc<[u8]>)>,
    recent_bytes: usize,
    frame_bytes_max: usize,
    /// What the table will take, as far as that can be told.
    pub(super) table_bytes: u64,
}

impl FrameMaker {
    pub(super) fn new(
        output: Output,
        threads: usize,
        compression: Compression,
        is_shared: bool,
        frame_bytes_max: usize,
        folder: &Path,
    ) -> io::Result<Self> {
        Ok(Self {
            pool: Pool::new(threads, compression)?,
            waiting: VecDeque::new(),
            frames: Frames::new(output)?,
            tables: std::array::from_fn(|_| FrameTable::new(PartSpool::new(folder), !is_shared)),
            next: [0; 5],
            recent: VecDeque::new(),
            recent_bytes: 0,
            frame_bytes_max,
            table_bytes: 0,
        })
    }

    /// Has a frame made, and says its number.
    pub(super) fn make(
        &mut self,
        stream: Stream,
        plain: Vec<u8>,
        base: Option<u64>,
        ends_part: bool,
    ) -> io::Result<u64> {
        while let Some(made) = self.pool.take(self.pool.is_full()) {
            self.write(made?)?;
        }
        let number = self.next[stream.index()];
        self.next[stream.index()] += 1;
        let plain: Arc<[u8]> = plain.into();
        let base_plain = match base {
            Some(base) => self.plain(stream, base)?,
            None => None,
        };
        // Where the base went down a pipe, the frame does without.
        let base = base.filter(|_| base_plain.is_some());
        if base.is_none() {
            self.remember(stream, number, &plain);
        }
        self.pool.ask(plain, base_plain);
        self.waiting.push_back(Waiting {
            stream,
            base,
            ends_part,
        });
        Ok(number)
    }

    /// All that are in the making are finished: the frames, and the streams' parts about them.
    pub(super) fn finish(mut self) -> io::Result<(Frames, Vec<PartSpool>)> {
        while let Some(made) = self.pool.take(true) {
            self.write(made?)?;
        }
        let parts = self.tables.into_iter().map(FrameTable::finish);
        Ok((self.frames, parts.collect::<io::Result<_>>()?))
    }

    fn write(&mut self, made: Made) -> io::Result<()> {
        let waiting = self.waiting.pop_front().expect("frames come in order");
        let offset = self.frames.append(&made.stored, self.table_bytes)?;
        let frame = StoredFrame {
            offset,
            stored_bytes: made.stored.len() as u32,
            base: waiting.base,
            digest: made.digest,
        };
        self.tables[waiting.stream.index()].push(frame, waiting.ends_part)
    }

    fn remember(&mut self, stream: Stream, number: u64, plain: &Arc<[u8]>) {
        self.recent_bytes += plain.len();
        self.recent.push_back((stream, number, Arc::clone(plain)));
        while self.recent_bytes > RECENT_BYTES_MAX {
            let Some((.., plain)) = self.recent.pop_front() else {
                break;
            };
            self.recent_bytes -= plain.len();
        }
    }

    /// The plain bytes of a frame without a base, if they can still be had.
    fn plain(&mut self, stream: Stream, number: u64) -> io::Result<Option<Arc<[u8]>>> {
        let mut recent = self.recent.iter().rev();
        let found = recent.find(|(of, frame, _)| (*of, *frame) == (stream, number));
        if let Some((.., plain)) = found {
            return Ok(Some(Arc::clone(plain)));
        }
        let Some(frame) = self.tables[stream.index()].recent(number) else {
            return Ok(None);
        };
        if frame.base.is_some() {
            return Ok(None);
        }
        let stored = (self.frames).read_back(frame.offset, frame.stored_bytes as usize)?;
        let plain = stored.map(|stored| decompress(&stored, None, self.frame_bytes_max));
        match plain {
            Some(Ok(plain)) => Ok(Some(plain.into())),
            Some(Err(error)) => Err(io::Error::other(error)),
            None => Ok(None),
        }
    }
}
