//! Plain frames: read, checked, decompressed, and kept.

use std::sync::Arc;

use quick_cache::Weighter;

use super::{Archive, ReadError, Source};
use crate::{
    crypt::{self, FrameKey, open_frame},
    format::{FormatError, Stream, Violation, header::Profile},
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

impl<S: Source> Archive<S> {
    /// The plain bytes of a frame.
    ///
    /// # Errors
    /// If it, or its base, cannot be read or is damaged.
    pub fn frame(&self, stream: Stream, number: u64) -> Result<Arc<Vec<u8>>, ReadError> {
        self.frames
            .get_or_insert_with(&(stream, number), || self.plain_frame(stream, number))
    }

    fn plain_frame(&self, stream: Stream, number: u64) -> Result<Arc<Vec<u8>>, ReadError> {
        let frame = self.frame_row(stream, number)?;
        let base = match frame.base {
            Some(base) => {
                if self.frame_row(stream, base)?.base.is_some() {
                    return Err(FormatError::Invalid(Violation::BaseOfBase).into());
                }
                Some(self.frame(stream, base)?)
            }
            None => None,
        };
        let stored = self.stored_frame(stream, number, &frame)?;
        let plain = self.unpack_frame(
            (stream, number),
            stored,
            base.as_ref().map(|base| &base[..]),
        )?;
        Ok(Arc::new(plain))
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
