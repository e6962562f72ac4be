//! The archive itself as the output.
//!
//! Stored frames that are here are known by their digests. Others are made anew of their chunks where
//! those are here, in profile `shared`, and are right if they come out with their digests: as they do if
//! the archive was made with the default level. All others are fetched. What lies between frames and
//! parts, and nothing points to, becomes zeros.

use std::ops::{ControlFlow, Range};

use super::{GetError, Getting, frames::Wanted, table::all_parts};
use crate::{
    cache::short_name,
    format::{Stream, digest, header::Profile, part::StoredFrame},
    method::{Compression, Compressor, Method},
    verify::verify,
};

impl Getting<'_> {
    /// Until all of the archive is here, locked or not: what is sealed has a digest as well.
    pub(super) fn fetch_archive(&mut self) -> Result<(), GetError> {
        let archive = self.archive;
        let parts = all_parts(archive).filter(|part| !part.is_here(archive));
        self.fetch_parts(&parts.collect::<Vec<_>>())?;
        self.keep_parts()?;
        let missing = self.missing_frames()?;
        let keys = &archive.header().keys;
        let keys = keys.offset..keys.offset + u64::from(keys.bytes);
        let has_keys = archive.header().encryption.is_none() || archive.keys().is_ok();
        let rest = (!has_keys).then_some(keys);
        self.fetch_missing(missing, rest.as_slice())
    }

    /// Fetches these frames and `rest`, and checks all of the archive.
    fn fetch_missing(
        &mut self,
        mut missing: Vec<Wanted>,
        rest: &[Range<u64>],
    ) -> Result<(), GetError> {
        missing.sort_unstable_by_key(|missing| missing.range().end);
        let missing = missing.iter().collect();
        self.fetch_frames(missing, rest, 1, &mut |getting, missing| {
            getting.take_frame(missing)
        })?;
        let checked = verify(self.archive, 1, &|_| ControlFlow::Continue(()));
        match checked? {
            Some(_) => Ok(()),
            None => Err(GetError::Interrupted),
        }
    }

    /// Checks a frame that came, and keeps it for later gets.
    fn take_frame(&mut self, missing: &Wanted) -> Result<(), GetError> {
        let ((stream, number), frame) = (missing.key, &missing.frame);
        let stored = self.archive.stored_frame(stream, number, frame)?;
        self.report.stored.from_server.add(frame.stored_bytes);
        if let Some(cache) = &self.cache {
            cache.add(short_name(frame.digest), &stored);
        }
        Ok(())
    }

    /// The frames that have to be fetched. The others are where they belong when it returns.
    fn missing_frames(&mut self) -> Result<Vec<Wanted>, GetError> {
        let archive = self.archive;
        let header = archive.header();
        let method = Method::of_number(header.method);
        let can_make = header.profile == Profile::Shared && header.encryption.is_none();
        let method = method.filter(|_| can_make);
        let mut compressor = method.map(|method| Compressor::new(Compression::new(method)));
        let mut missing = Vec::new();
        for stream in Stream::ALL {
            let lists = archive.root().stream(stream);
            for (row, frame_row) in lists.frames.rows().iter().enumerate() {
                let first = frame_row.before[0];
                let frames = archive.frame_rows(stream, row)?;
                let mut is_here = Vec::with_capacity(frames.len());
                for (number, frame) in (first..).zip(&frames) {
                    let origin = self.put_stored((stream, number), frame)?;
                    if let Some(origin) = origin {
                        self.report.stored.of(origin).add(frame.stored_bytes);
                    }
                    is_here.push(origin.is_some());
                }
                if let Some(compressor) = &mut compressor {
                    self.make_frames(compressor, (stream, row), &frames, &mut is_here)?;
                }
                let frames = (first..).zip(frames).zip(is_here);
                let frames = frames.filter(|(_, is_here)| !is_here);
                missing.extend(
                    frames.map(|((number, frame), _)| Wanted::new((stream, number), frame)),
                );
            }
        }
        Ok(missing)
    }

    /// Makes those frames of a row that are not here of their chunks, and puts them where they belong if
    /// they are the ones.
    fn make_frames(
        &mut self,
        compressor: &mut Compressor,
        (stream, row): (Stream, usize),
        frames: &[StoredFrame],
        is_here: &mut [bool],
    ) -> Result<(), GetError> {
        let chunks = self.archive.row_chunks(stream, row)?.into_iter();
        for ((chunk, frame), is_here) in chunks.zip(frames).zip(is_here) {
            if !*is_here && !self.is_missing(&chunk) {
                let mut plain = vec![0; chunk.bytes as usize];
                let source = self.archive.source();
                source.read_chunk(&mut plain, stream, chunk.at)?;
                let stored = compressor.compress(&plain, None)?;
                if digest(&stored) == frame.digest {
                    self.archive.source().write(&stored, frame.offset)?;
                    self.report.stored.made.add(frame.stored_bytes);
                    *is_here = true;
                }
            }
        }
        Ok(())
    }
}
