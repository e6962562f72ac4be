//! Chunks that are here: of an earlier get, of seeds or of the cache. They are put where they belong,
//! and checked before.

use super::{GetError, Getting, Phase, local::OldChunks, seeds::Seeds};
use crate::{
    archive::Naming,
    cache::Cache,
    format::{ChunkName, Stream},
};

impl Getting<'_> {
    /// Finds all chunks that are here.
    pub(super) fn find_chunks(
        &mut self,
        old: &mut Option<OldChunks>,
        seeds: &mut Seeds,
    ) -> Result<(), GetError> {
        let archive = self.archive;
        // Without what names them none can be told from another.
        let Some(naming) = self.naming.clone() else {
            return Ok(());
        };
        let root = archive.root();
        for stream in Stream::ALL {
            for (row, length_row) in root.stream(stream).lengths.rows().iter().enumerate() {
                let [first, mut at, ..] = length_row.before;
                let names = self.archive.chunk_names(stream, row)?;
                let places = self.archive.chunk_places(stream, row)?;
                for ((chunk, name), (bytes, _)) in (first..).zip(names).zip(places) {
                    if self.is_resumed && self.is_there(&naming, stream, name, (at, bytes))? {
                        self.report.from_earlier.add(bytes as usize);
                        self.presence.add(stream, chunk);
                    } else if let Some(plain) = find_old(old, stream, name, bytes)? {
                        self.report.from_earlier.add(plain.len());
                        self.put(stream, chunk, at, &plain)?;
                    } else if seeds.want(stream, name, chunk, (at, bytes))? {
                        // It comes with the second reading.
                    } else if let Some(plain) = find_cached(self.cache.as_ref(), name, bytes) {
                        self.report.from_cache.add(plain.len());
                        self.put(stream, chunk, at, &plain)?;
                    }
                    at += u64::from(bytes);
                }
                self.go_on(Phase::Chunks, at, 0)?;
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
        let mut read = 0;
        seeds.take(
            &mut |stream, chunk, at, plain| {
                archive.source().write_chunk(plain, stream, at)?;
                presence.add(stream, chunk);
                report.from_seeds.add(plain.len());
                Ok(())
            },
            &mut |bytes| {
                read += bytes as u64;
                progress(super::GetProgress {
                    phase: Phase::Seeds,
                    done: read,
                    total: 0,
                })
                .is_continue()
            },
        )
    }

    /// Puts a chunk where it belongs.
    pub(super) fn put(
        &mut self,
        stream: Stream,
        chunk: u64,
        at: u64,
        plain: &[u8],
    ) -> Result<(), GetError> {
        self.archive.source().write_chunk(plain, stream, at)?;
        self.presence.add(stream, chunk);
        Ok(())
    }

    fn is_there(
        &self,
        naming: &Naming,
        stream: Stream,
        name: ChunkName,
        (at, bytes): (u64, u32),
    ) -> Result<bool, GetError> {
        let mut plain = vec![0; bytes as usize];
        let source = self.archive.source();
        source.read_chunk(&mut plain, stream, at)?;
        Ok(naming.name(&plain) == name)
    }
}

fn find_old(
    old: &mut Option<OldChunks>,
    stream: Stream,
    name: ChunkName,
    bytes: u32,
) -> Result<Option<Vec<u8>>, GetError> {
    let found = match old {
        Some(old) => old.find(stream, name)?,
        None => None,
    };
    Ok(found.filter(|plain| plain.len() == bytes as usize))
}

fn find_cached(cache: Option<&Cache>, name: ChunkName, bytes: u32) -> Option<Vec<u8>> {
    (cache?.find(name)).filter(|plain| plain.len() == bytes as usize)
}
