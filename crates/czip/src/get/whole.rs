//! The archive itself as the output.
//!
//! In profile `shared` a frame is made anew of its chunk where that is here, and is right if it comes
//! out with its digest: as it does if the archive was made with the default level. All other frames are
//! fetched. What lies between frames and parts, and nothing points to, becomes zeros.

use std::ops::{ControlFlow, Range};

use super::{GetError, Getting, Phase, frames::range_of, table::Part};
use crate::{
    format::{
        Stream, digest,
        header::Profile,
        limits::HEADER_BYTES,
        part::{PartKind, StoredFrame},
    },
    method::{Compression, Compressor, Method},
    remote::union,
    verify::verify,
};

impl Getting<'_> {
    /// Until all of the archive is here.
    pub(super) fn fetch_archive(&mut self) -> Result<(), GetError> {
        let mut parts = Vec::new();
        for stream in Stream::ALL {
            let rows = 0..self.archive.root().stream(stream).frames.rows().len();
            let frames = |row| Part::of(self.archive, stream, PartKind::Frames, row);
            parts.extend(rows.map(frames).filter(|part| !part.is_here(self.archive)));
        }
        self.fetch_parts(&parts)?;
        let ranges = self.missing_frames()?;
        self.fetch_missing(&ranges)
    }

    /// Until all of an encrypted archive is here. Frames that are here are known by their digests; the
    /// rest is little, and is fetched.
    pub(super) fn fetch_locked(&mut self) -> Result<(), GetError> {
        let archive = self.archive;
        let mut parts = Vec::new();
        let mut frames = Vec::new();
        for stream in Stream::ALL {
            for kind in [PartKind::Chunks, PartKind::Frames] {
                let rows = 0..archive.root().stream(stream).list(kind).rows().len();
                let part = |row| Part::of(archive, stream, kind, row);
                parts.extend(rows.map(part).filter(|part| !part.is_here(archive)));
            }
        }
        self.fetch_parts(&parts)?;
        for stream in Stream::ALL {
            for row in 0..archive.root().stream(stream).frames.rows().len() {
                let rows = archive.frame_rows(stream, row)?;
                frames.extend(rows.iter().map(range_of));
            }
        }
        let mut ranges = self.missing_frames()?;
        let mut end = HEADER_BYTES as u64;
        for frame in union(&frames) {
            ranges.push(end..frame.start.max(end));
            end = frame.end;
        }
        ranges.push(end..archive.header().archive_bytes.max(end));
        self.fetch_missing(&ranges)
    }

    /// Fetches what is missing, and checks all of the archive.
    fn fetch_missing(&mut self, ranges: &[Range<u64>]) -> Result<(), GetError> {
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let begun = self.remote.counters().body_bytes;
        let mut arrived = |getting: &mut Self, _| {
            let come = getting.remote.counters().body_bytes - begun;
            getting.go_on(Phase::Frames, come.min(total), total)
        };
        self.fetch(ranges, 1, |report| &mut report.frames, &mut arrived)?;
        let checked = verify(self.archive, 1, &|_| ControlFlow::Continue(()));
        match checked? {
            Some(_) => Ok(()),
            None => Err(GetError::Interrupted),
        }
    }

    /// Where frames are that have to be fetched. The others are where they belong when it returns.
    fn missing_frames(&self) -> Result<Vec<Range<u64>>, GetError> {
        let header = self.archive.header();
        let method = Method::of_number(header.method);
        let can_make = header.profile == Profile::Shared && header.encryption.is_none();
        let method = method.filter(|_| can_make);
        let mut compressor = method.map(|method| Compressor::new(Compression::new(method)));
        let mut missing = Vec::new();
        for stream in Stream::ALL {
            let lists = self.archive.root().stream(stream);
            for (row, frame_row) in lists.frames.rows().iter().enumerate() {
                let first = frame_row.before[0];
                let frames = self.archive.frame_rows(stream, row)?;
                let mut is_here: Vec<bool> = (first..)
                    .zip(&frames)
                    .map(|(number, frame)| self.archive.stored_frame(stream, number, frame).is_ok())
                    .collect();
                if let Some(compressor) = &mut compressor {
                    self.make_frames(compressor, (stream, row), &frames, &mut is_here)?;
                }
                let frames = frames.iter().zip(is_here);
                missing.extend(
                    frames.filter(|(_, is_here)| !is_here).map(|(frame, _)| {
                        frame.offset..frame.offset + u64::from(frame.stored_bytes)
                    }),
                );
            }
        }
        Ok(missing)
    }

    /// Makes those frames of a row that are not here of their chunks, and puts them where they belong if
    /// they are the ones.
    fn make_frames(
        &self,
        compressor: &mut Compressor,
        (stream, row): (Stream, usize),
        frames: &[StoredFrame],
        is_here: &mut [bool],
    ) -> Result<(), GetError> {
        let [first, mut at, ..] = self.archive.root().stream(stream).lengths.rows()[row].before;
        let places = self.archive.chunk_places(stream, row)?;
        let chunks = (first..).zip(places).zip(frames).zip(is_here);
        for (((chunk, (bytes, _)), frame), is_here) in chunks {
            if !*is_here && self.presence.has(stream, chunk) {
                let mut plain = vec![0; bytes as usize];
                self.archive.source().read_chunk(&mut plain, stream, at)?;
                let stored = compressor.compress(&plain, None)?;
                if digest(&stored) == frame.digest {
                    self.archive.source().write(&stored, frame.offset)?;
                    *is_here = true;
                }
            }
            at += u64::from(bytes);
        }
        Ok(())
    }
}
