//! Parts of the table, by ranges of the archive, from edges.
//!
//! All clients ask the same edge for an archive, so that its table leaves its server once. What comes is
//! checked as if it came from there. An edge that does not have the archive, or another one, is no
//! failure: the next is asked, and in the end the archive's server.

use url::Url;

use super::{Edges, Named};
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
        let Some(edges) = &named.edges else {
            return Ok(());
        };
        let name = ChunkName::of(&self.archive.header().to_bytes());
        let mut were_asked = vec![false; named.servers.len()];
        loop {
            let is_missing = |part: &&Part| !part.is_here(self.archive);
            let missing: Vec<_> = parts.iter().filter(is_missing).collect();
            let may_be_asked =
                |number: usize| !were_asked[number] && named.servers[number].is_there();
            let Some(number) = named.rendezvous.choose(name, may_be_asked) else {
                return Ok(());
            };
            if missing.is_empty() {
                return Ok(());
            }
            were_asked[number] = true;
            match self.ask_edge(named, edges, number, &missing) {
                Ok(()) | Err(GetError::Remote(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn ask_edge(
        &mut self,
        named: &Named,
        edges: &Edges,
        number: usize,
        parts: &[&Part],
    ) -> Result<(), GetError> {
        let server = &named.servers[number];
        let options = RemoteOptions {
            first_bytes: HEADER_BYTES,
            has_digests: true,
            ..edges.options[number].clone()
        };
        let url = below(server.url(), &edges.url);
        let remote = match Remote::open(&url, options) {
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

/// Where an edge has the file at `url`.
fn below(edge: &str, url: &Url) -> String {
    let path = url.path().trim_start_matches('/');
    let query = url.query().map(|query| format!("?{query}"));
    format!("{edge}{path}{}", query.unwrap_or_default())
}

/// Whether an edge can be reached, and says that it does not have a file.
fn is_answer(error: &RemoteError) -> bool {
    matches!(error, RemoteError::Status { status, .. } if *status < 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_at_its_path_below_the_edge() {
        let at = |edge: &str, url: &str| below(edge, &Url::parse(url).expect("an address"));
        assert_eq!(at("http://e/", "https://o/a/b.czip"), "http://e/a/b.czip");
        assert_eq!(at("http://e/x/", "http://o/b?v=1"), "http://e/x/b?v=1");
    }
}
