//! Parts of the table, by ranges of the archive, from edges.
//!
//! All clients ask the same edge for an archive, so that its table leaves its server once. What comes is
//! checked as if it came from there. An edge that does not have the archive, or another one, is no
//! failure: the next is asked, and in the end the archive's server.

use super::{Named, asking::Server};
use crate::{
    format::{ChunkName, limits::HEADER_BYTES},
    get::{GetError, Getting, Phase, table::Part},
    remote::{Remote, RemoteError, RemoteOptions},
};

impl Getting<'_> {
    /// Asks edges, one after the other, for those of `parts` that are not here.
    pub(in crate::get) fn ask_edges_for_parts(
        &mut self,
        named: &Named,
        parts: &[Part],
    ) -> Result<(), GetError> {
        let name = ChunkName::of(&self.archive.header().to_bytes());
        let mut were_asked = vec![false; named.servers.len()];
        loop {
            let is_missing = |part: &&Part| !part.is_here(self.archive);
            let missing: Vec<_> = parts.iter().filter(is_missing).collect();
            let may_be_asked = |number: usize| {
                let server = &named.servers[number];
                !were_asked[number] && server.is_there() && server.archive_url.is_some()
            };
            let Some(number) = named.rendezvous.choose(name, may_be_asked) else {
                return Ok(());
            };
            if missing.is_empty() {
                return Ok(());
            }
            were_asked[number] = true;
            match self.ask_edge(&named.servers[number], &missing) {
                Ok(()) | Err(GetError::Remote(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn ask_edge(&mut self, server: &Server, parts: &[&Part]) -> Result<(), GetError> {
        let Some(url) = &server.archive_url else {
            return Ok(());
        };
        let options = RemoteOptions {
            first_bytes: HEADER_BYTES,
            has_digests: true,
            ..server.options.clone()
        };
        let remote = match Remote::open(url, options) {
            Ok(remote) => remote,
            Err(error) => {
                // One that cannot be reached need not be tried again for chunks.
                if !is_answer(&error) {
                    server.leave(error.into());
                }
                return Ok(());
            }
        };
        let fetched = self.fetch_parts_of(&remote, parts);
        server.add(remote.counters());
        fetched
    }

    /// Writes parts where they belong, if `remote` has the same archive.
    fn fetch_parts_of(&mut self, remote: &Remote, parts: &[&Part]) -> Result<(), GetError> {
        let source = self.archive.source();
        let (mut theirs, mut ours) = ([0; HEADER_BYTES], [0; HEADER_BYTES]);
        remote.read_at(0, &mut theirs)?;
        crate::archive::Source::read_exact_at(source, &mut ours, 0)?;
        if theirs != ours || !remote.has_ranges() {
            return Ok(());
        }
        let ranges: Vec<_> = parts.iter().map(|part| part.range()).collect();
        remote.fetch(&ranges, &mut |offset, bytes: &[u8]| {
            source.write(bytes, offset)?;
            self.go_on(Phase::Table, offset + bytes.len() as u64, 0)
        })
    }
}

/// Whether an edge can be reached, and says that it does not have a file.
fn is_answer(error: &RemoteError) -> bool {
    matches!(error, RemoteError::Status { status, .. } if *status < 500)
}
