//! Chunks that are here: of an earlier get, of seeds or of the cache. They are put where they belong,
//! and checked before. The others are missing, and fetched in rounds, so that what is held of them is bounded;
//! most archives have one.

use super::{GetError, Getting, Phase, local::OldChunks, reading_seeds, seeds::Seeds};
use crate::{
    archive::{Chunk, Naming},
    cache::Cache,
    format::Stream,
};

/// Missing chunks of a round.
pub(super) const ROUND_CHUNKS: usize = 1 << 18;

/// Where a round begins: a row of a stream's lengths.
#[derive(Default)]
pub(super) struct Cursor {
    stream: usize,
    row: usize,
}

impl Getting<'_> {
    /// Finds all chunks that are here.
    pub(super) fn find_chunks(
        &mut self,
        old: &mut Option<OldChunks>,
        seeds: &mut Seeds,
    ) -> Result<(), GetError> {
        let archive = self.archive;
        let mut find_old = |chunk: &Chunk| match old {
            Some(old) => old.find(chunk),
            None => Ok(None),
        };
        // Without what names them none can be told from another.
        let Some(naming) = self.naming.clone() else {
            return Ok(());
        };
        for stream in Stream::ALL {
            for row in 0..archive.root().stream(stream).lengths.rows().len() {
                let mut end = 0;
                for chunk in archive.row_chunks(stream, row)? {
                    let Chunk {
                        number,
                        name,
                        bytes,
                        at,
                        ..
                    } = chunk;
                    end = at + u64::from(bytes);
                    if self.is_resumed && self.is_there(&naming, &chunk)? {
                        self.report.from_earlier.add(bytes as usize);
                        self.presence.add(stream, number);
                    } else if let Some(plain) = find_old(&chunk)? {
                        self.report.from_earlier.add(plain.len());
                        self.put(&chunk, &plain)?;
                    } else if seeds.want(stream, name, number, (at, bytes))? {
                        // It comes with the second reading.
                    } else if let Some(plain) = find_cached(self.cache.as_ref(), &chunk) {
                        self.report.from_cache.add(plain.len());
                        self.put(&chunk, &plain)?;
                    }
                }
                self.go_on(Phase::Chunks, end, 0)?;
            }
        }
        self.take_seeds(seeds)
    }

    fn take_seeds(&mut self, seeds: &Seeds) -> Result<(), GetError> {
        let Self {
            archive,
            presence,
            report,
            progress,
            ..
        } = self;
        seeds.take(
            &mut |stream, chunk, at, plain| {
                archive.source().write_chunk(plain, stream, at)?;
                presence.add(stream, chunk);
                report.from_seeds.add(plain.len());
                Ok(())
            },
            &mut reading_seeds(progress),
        )
    }

    /// The next missing chunks: those of some rows, in which a round begins.
    pub(super) fn next_missing(&self, cursor: &mut Cursor) -> Result<Vec<Chunk>, GetError> {
        let mut missing = Vec::new();
        while let Some(&stream) = Stream::ALL.get(cursor.stream) {
            while cursor.row < self.archive.root().stream(stream).lengths.rows().len() {
                if missing.len() >= ROUND_CHUNKS {
                    return Ok(missing);
                }
                let chunks = self.archive.row_chunks(stream, cursor.row)?.into_iter();
                missing.extend(chunks.filter(|chunk| self.is_missing(chunk)));
                cursor.row += 1;
            }
            *cursor = Cursor {
                stream: cursor.stream + 1,
                row: 0,
            };
        }
        Ok(missing)
    }

    pub(super) fn is_missing(&self, chunk: &Chunk) -> bool {
        !self.presence.has(chunk.stream, chunk.number)
    }

    /// Puts a chunk where it belongs.
    pub(super) fn put(&mut self, chunk: &Chunk, plain: &[u8]) -> Result<(), GetError> {
        let source = self.archive.source();
        source.write_chunk(plain, chunk.stream, chunk.at)?;
        self.presence.add(chunk.stream, chunk.number);
        Ok(())
    }

    fn is_there(&self, naming: &Naming, chunk: &Chunk) -> Result<bool, GetError> {
        let mut plain = vec![0; chunk.bytes as usize];
        let source = self.archive.source();
        source.read_chunk(&mut plain, chunk.stream, chunk.at)?;
        Ok(naming.name(&plain) == chunk.name)
    }
}

fn find_cached(cache: Option<&Cache>, chunk: &Chunk) -> Option<Vec<u8>> {
    (cache?.find(chunk.name)).filter(|plain| plain.len() == chunk.bytes as usize)
}
