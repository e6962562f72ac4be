//! Parts of the table that are ready, until it is known where they go.

use std::{io, path::Path, sync::Arc};

use super::{seal::Seal, spool::Spool};
use crate::{
    crypt::Place,
    format::{
        Stream, digest,
        part::PartKind,
        root::{Further, PartPlace, digest_bytes},
    },
    method::pack_part,
};

/// A part that is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartDraft {
    /// Its offset is that in the spool.
    pub(super) place: PartPlace,
    pub(super) further: Further,
}

/// Parts of one list.
pub(super) struct PartSpool {
    spool: Spool,
    pub(super) drafts: Vec<PartDraft>,
    pub(super) kind: PartKind,
    pub(super) stream: Option<Stream>,
    seal: Option<Arc<Seal>>,
}

impl PartSpool {
    /// The parts of a kind, of one stream but for the weave index. Those that memory is too small for
    /// go to files in `folder`.
    pub(super) fn new(
        kind: PartKind,
        stream: Option<Stream>,
        folder: &Path,
        seal: Option<&Arc<Seal>>,
    ) -> Self {
        Self {
            spool: Spool::new(folder),
            drafts: Vec::new(),
            kind,
            stream,
            seal: seal.cloned(),
        }
    }

    /// Adds a part of so many items.
    pub(super) fn push(
        &mut self,
        items: usize,
        plain: Vec<u8>,
        further: Further,
    ) -> io::Result<()> {
        let plain_bytes = plain.len() as u32;
        let place = Place::of(self.kind, self.stream, self.drafts.len());
        let (stored, whole_digest) = match (&self.seal, place) {
            (Some(seal), Some(place)) => {
                let packed = match self.kind {
                    // They do not compress. Sealed where they are, they leave no copy behind.
                    PartKind::Keys => plain,
                    _ => pack_part(&plain)?,
                };
                let stored = seal.private.seal_part(place, packed);
                let digest: [u8; 20] = digest(&stored);
                (stored, digest)
            }
            _ => (pack_part(&plain)?, digest(&plain)),
        };
        let covered_bytes = digest_bytes(self.kind);
        let mut covered = [0; 20];
        covered[..covered_bytes].copy_from_slice(&whole_digest[..covered_bytes]);
        let place = PartPlace {
            items: items as u32,
            offset: self.spool.append(&stored)?,
            stored_bytes: stored.len() as u32,
            plain_bytes,
            digest: covered,
        };
        self.drafts.push(PartDraft { place, further });
        Ok(())
    }

    /// A part as stored; none is added after it.
    pub(super) fn read(&mut self, part: usize) -> io::Result<Vec<u8>> {
        let place = &self.drafts[part].place;
        self.spool.read(place.offset, place.stored_bytes as usize)
    }

    /// A part as it was before it was packed.
    #[cfg(test)]
    pub(super) fn read_plain(&mut self, part: usize) -> io::Result<(PartDraft, Vec<u8>)> {
        let (draft, stored) = (self.drafts[part], self.read(part)?);
        let plain = crate::method::unpack_part(&stored, draft.place.plain_bytes as usize);
        Ok((draft, plain.expect("a part that was just packed")))
    }
}
