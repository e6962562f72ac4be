//! Makes frames, of all streams, and puts them into the archive in order.

use std::{collections::VecDeque, io, sync::Arc};

use super::{
    CreateOptions,
    frame_table::FrameTable,
    output::{Frames, Output},
    parts::PartSpool,
    pool::{Made, Pool},
    seal::Seal,
};
use crate::{
    crypt::open_frame,
    format::{
        Stream,
        header::Profile,
        part::{PartKind, StoredFrame},
    },
    method::decompress,
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
    seal: Option<Arc<Seal>>,
    /// What the table will take, as far as that can be told.
    pub(super) table_bytes: u64,
}

impl FrameMaker {
    pub(super) fn new(
        output: Output,
        options: &CreateOptions,
        seal: Option<&Arc<Seal>>,
    ) -> io::Result<Self> {
        let folder = &options.temporary;
        let has_bases = options.profile == Profile::Small;
        let parts = |kind, stream| PartSpool::new(kind, Some(stream), folder, seal);
        Ok(Self {
            pool: Pool::new(options.threads.max(1), options.compression, seal)?,
            waiting: VecDeque::new(),
            frames: Frames::new(output, options.waiting_bytes)?,
            tables: Stream::ALL.map(|stream| {
                let (frames, keys) = (PartKind::Frames, PartKind::Keys);
                FrameTable::new(parts(frames, stream), parts(keys, stream), has_bases)
            }),
            next: [0; 5],
            recent: VecDeque::new(),
            recent_bytes: 0,
            frame_bytes_max: options.frame_bytes_max() as usize,
            seal: seal.cloned(),
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

    /// All that are in the making are finished: the frames, and the streams' parts about them and
    /// their keys.
    pub(super) fn finish(mut self) -> io::Result<(Frames, Vec<PartSpool>)> {
        while let Some(made) = self.pool.take(true) {
            self.write(made?)?;
        }
        let mut lists = Vec::new();
        for table in self.tables {
            lists.extend(table.finish()?);
        }
        Ok((self.frames, lists))
    }

    fn write(&mut self, made: Made) -> io::Result<()> {
        let waiting = self.waiting.pop_front().expect("frames come in order");
        let offset = self.frames.append(&made.stored, self.table_bytes)?;
        let frame = StoredFrame {
            offset,
            stored_bytes: made.stored.len() as u32,
            base: waiting.base.filter(|_| made.needs_base),
            digest: made.digest,
        };
        self.tables[waiting.stream.index()].push(frame, made.key, waiting.ends_part)
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
        let Some((frame, key)) = self.tables[stream.index()].recent(number) else {
            return Ok(None);
        };
        if frame.base.is_some() {
            return Ok(None);
        }
        let stored = (self.frames).read_back(frame.offset, frame.stored_bytes as usize)?;
        let Some(mut stored) = stored else {
            return Ok(None);
        };
        if let (Some(seal), Some(key)) = (&self.seal, key) {
            stored = open_frame(Some(&*seal.group), key, stored, seal.how.is_padded)
                .map_err(io::Error::other)?;
        }
        let plain = decompress(stored, None, self.frame_bytes_max);
        Ok(Some(plain.map_err(io::Error::other)?.into()))
    }
}
