//! Plain frames: read, checked, decompressed, and kept in memory.
//!
//! Threads that want the same frame wait for one that reads it. A frame, or a base, whose chunks a cache has
//! is not read.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use quick_cache::{
    DefaultHashBuilder, Weighter,
    sync::{DefaultLifecycle, GuardResult},
};

use super::{Archive, ReadError, Source};
use crate::{
    crypt::{self, FrameKey, open_frame},
    format::{FormatError, Stream, Violation, digest, header::Profile, part::StoredFrame},
    method::{FrameError, decompress},
};

/// A frame weighs what it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameWeight;

impl Weighter<(Stream, u64), Arc<Vec<u8>>> for FrameWeight {
    fn weight(&self, _: &(Stream, u64), plain: &Arc<Vec<u8>>) -> u64 {
        plain.capacity() as u64 + 64
    }
}

/// Frames that are read together have about so many stored bytes.
const GROUP_BYTES: u64 = 8 << 20;

/// What is given the number of a frame and its plain bytes.
pub(super) type Take<'a> = dyn FnMut(u64, &[u8]) -> Result<(), ReadError> + 'a;

type Claim<'a> = GuardResult<
    'a,
    (Stream, u64),
    Arc<Vec<u8>>,
    FrameWeight,
    DefaultHashBuilder,
    DefaultLifecycle<(Stream, u64), Arc<Vec<u8>>>,
>;

impl<S: Source> Archive<S> {
    /// The plain bytes of a frame.
    ///
    /// # Errors
    /// If it, or its base, cannot be read or is damaged.
    pub fn frame(&self, stream: Stream, number: u64) -> Result<Arc<Vec<u8>>, ReadError> {
        (self.frames).get_or_insert_with(&(stream, number), || match self.rebuilt(stream, number) {
            Some(plain) => Ok(Arc::new(plain)),
            None => self.read_frame(stream, number),
        })
    }

    pub(super) fn has_in_memory(&self, stream: Stream, number: u64) -> bool {
        self.frames.contains_key(&(stream, number))
    }

    fn read_frame(&self, stream: Stream, number: u64) -> Result<Arc<Vec<u8>>, ReadError> {
        let frame = self.frame_row(stream, number)?;
        let stored = self.stored_frame(stream, number, &frame)?;
        self.plain_frame((stream, number), &frame, stored, &HashMap::new())
    }

    /// The plain bytes of a frame that was read, whose chunks are kept then. Its base may be among `bases`.
    fn plain_frame(
        &self,
        key: (Stream, u64),
        frame: &StoredFrame,
        stored: Vec<u8>,
        bases: &HashMap<u64, Arc<Vec<u8>>>,
    ) -> Result<Arc<Vec<u8>>, ReadError> {
        let stream = key.0;
        let Some(base) = frame.base else {
            let plain = self.unpack_frame(key, stored, None)?;
            self.keep_chunks(key, &plain);
            return Ok(Arc::new(plain));
        };
        if self.frame_row(stream, base)?.base.is_some() {
            return Err(FormatError::Invalid(Violation::BaseOfBase).into());
        }
        let base_bytes = match bases.get(&base) {
            Some(base_bytes) => base_bytes.clone(),
            None => self.frame(stream, base)?,
        };
        if !self.has_plain_cache() {
            return Ok(Arc::new(self.unpack_frame(
                key,
                stored,
                Some(&base_bytes),
            )?));
        }
        if let Ok(plain) = self.unpack_frame(key, stored.clone(), Some(&base_bytes))
            && self.keep_chunks(key, &plain)
        {
            return Ok(Arc::new(plain));
        }
        // The base was made of chunks, perhaps, and holds what none of them does.
        let base_bytes = self.read_frame(stream, base)?;
        self.frames.insert((stream, base), base_bytes.clone());
        let plain = self.unpack_frame(key, stored, Some(&base_bytes))?;
        self.keep_chunks(key, &plain);
        Ok(Arc::new(plain))
    }

    /// Gives `take` the plain bytes of frames, in any order, and perhaps of others. Those that are not here,
    /// and that nobody else is reading, are read together.
    pub(super) fn frames_together(
        &self,
        stream: Stream,
        numbers: impl Iterator<Item = u64>,
        take: &mut Take<'_>,
    ) -> Result<(), ReadError> {
        let rows = numbers.map(|number| Ok((number, self.frame_row(stream, number)?)));
        let mut rows = rows.collect::<Result<Vec<_>, ReadError>>()?;
        rows.sort_unstable_by_key(|(number, frame)| (frame.offset, *number));
        let mut later = Vec::new();
        let mut bytes = 0;
        let groups = rows.chunk_by(|_, (_, next)| {
            bytes += u64::from(next.stored_bytes);
            let fits = bytes <= GROUP_BYTES;
            bytes *= u64::from(fits);
            fits
        });
        for group in groups {
            self.read_group(stream, group, &mut later, take)?;
        }
        // Nothing that others wait for is held now.
        for number in later {
            take(number, &self.frame(stream, number)?)?;
        }
        Ok(())
    }

    /// Puts those that others are reading into `later`.
    fn read_group(
        &self,
        stream: Stream,
        group: &[(u64, StoredFrame)],
        later: &mut Vec<u64>,
        take: &mut Take<'_>,
    ) -> Result<(), ReadError> {
        let mut claimed = Vec::new();
        for &(number, frame) in group {
            match self.claim((stream, number)) {
                GuardResult::Value(plain) => take(number, &plain)?,
                GuardResult::Guard(guard) => claimed.push((number, frame, guard)),
                GuardResult::Timeout => later.push(number),
            }
        }
        let needed: BTreeSet<u64> = claimed.iter().filter_map(|(_, it, _)| it.base).collect();
        let mut bases = HashMap::new();
        for &base in &needed {
            if claimed.iter().any(|(number, ..)| *number == base) {
                continue;
            }
            match self.claim((stream, base)) {
                GuardResult::Value(plain) => drop(bases.insert(base, plain)),
                GuardResult::Guard(guard) => {
                    claimed.push((base, self.frame_row(stream, base)?, guard));
                }
                // It is waited for where it is needed.
                GuardResult::Timeout => {}
            }
        }
        // Who waits for a base has nothing left to give that could be a base.
        claimed.sort_unstable_by_key(|(number, frame, _)| (frame.base.is_some(), *number));
        let mut wanted: Vec<_> = (claimed.iter())
            .map(|(_, frame, _)| (frame.offset, vec![0; frame.stored_bytes as usize]))
            .collect();
        self.source.read_all_at(&mut wanted)?;
        for ((number, frame, guard), (_, mut stored)) in claimed.into_iter().zip(wanted) {
            if digest(&stored) != frame.digest {
                // Something on the way to here may have damaged it.
                self.source.forget(frame.range());
                stored = self.stored_frame(stream, number, &frame)?;
            }
            let plain = self.plain_frame((stream, number), &frame, stored, &bases)?;
            let _ = guard.insert(plain.clone());
            take(number, &plain)?;
            if needed.contains(&number) {
                bases.insert(number, plain);
            }
        }
        Ok(())
    }

    /// A frame that is here, or the promise to read it if nobody else is reading it.
    fn claim(&self, (stream, number): (Stream, u64)) -> Claim<'_> {
        let key = (stream, number);
        match self.frames.get_value_or_guard(&key, Some(Duration::ZERO)) {
            GuardResult::Guard(guard) => match self.rebuilt(stream, number).map(Arc::new) {
                Some(plain) => {
                    let _ = guard.insert(plain.clone());
                    GuardResult::Value(plain)
                }
                None => GuardResult::Guard(guard),
            },
            claim => claim,
        }
    }

    /// The plain bytes of a frame as stored, whose base has the plain bytes `base`.
    pub(crate) fn unpack_frame(
        &self,
        (stream, number): (Stream, u64),
        mut stored: Vec<u8>,
        base: Option<&[u8]>,
    ) -> Result<Vec<u8>, ReadError> {
        if let Some(key) = self.frame_key(stream, number)? {
            stored = self.open_frame(&key, stored, stream, number)?;
        }
        let limit = self.header().frame_bytes_max as usize;
        let plain = decompress(stored, base, limit).map_err(|error| ReadError::Frame {
            stream,
            number,
            error,
        })?;
        if self.header().profile == Profile::Shared
            && plain.len() as u64 != self.chunk_bytes(stream, number)?
        {
            return Err(FormatError::Invalid(Violation::FrameAndChunk).into());
        }
        Ok(plain)
    }

    fn open_frame(
        &self,
        key: &FrameKey,
        stored: Vec<u8>,
        stream: Stream,
        number: u64,
    ) -> Result<Vec<u8>, ReadError> {
        let (Some(unlocked), Some(how)) = (&self.unlocked, self.header.encryption) else {
            return Err(ReadError::Locked);
        };
        let group = unlocked.group.as_deref();
        open_frame(group, key, stored, how.is_padded).map_err(|error| match error {
            crypt::FrameError::KeyOfAnother => ReadError::ForeignFrame { stream, number },
            error => ReadError::Frame {
                stream,
                number,
                error: FrameError::Corrupt {
                    reason: error.to_string(),
                },
            },
        })
    }
}
