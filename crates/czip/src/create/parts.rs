//! Parts of the table that are ready, until it is known where they go.

use std::{io, path::Path};

use super::spool::Spool;
use crate::{
    format::{
        digest,
        part::PartKind,
        root::{Further, digest_bytes},
    },
    method::pack_part,
};

/// A part that is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartDraft {
    pub(super) kind: PartKind,
    pub(super) items: u32,
    pub(super) plain_bytes: u32,
    pub(super) stored_bytes: u32,
    pub(super) digest: [u8; 20],
    pub(super) further: Further,
    /// Where in the spool.
    at: u64,
}

/// Parts of one list.
pub(super) struct PartSpool {
    spool: Spool,
    drafts: Vec<PartDraft>,
}

impl PartSpool {
    /// Those that memory is too small for go to files in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            spool: Spool::new(folder),
            drafts: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.drafts.len()
    }

    /// What is known of a part.
    pub(super) fn draft(&self, part: usize) -> &PartDraft {
        &self.drafts[part]
    }

    /// Adds a part of so many items.
    pub(super) fn push(
        &mut self,
        kind: PartKind,
        items: usize,
        plain: Vec<u8>,
        further: Further,
    ) -> io::Result<()> {
        let stored = pack_part(&plain)?;
        let mut covered = [0; 20];
        covered[..digest_bytes(kind)].copy_from_slice(&digest::<20>(&plain)[..digest_bytes(kind)]);
        let at = self.spool.append(&stored)?;
        self.drafts.push(PartDraft {
            kind,
            items: items as u32,
            plain_bytes: plain.len() as u32,
            stored_bytes: stored.len() as u32,
            digest: covered,
            further,
            at,
        });
        Ok(())
    }

    /// A part as stored; none is added after it.
    pub(super) fn read(&mut self, part: usize) -> io::Result<(PartDraft, Vec<u8>)> {
        let draft = self.drafts[part];
        let stored = self.spool.read(draft.at, draft.stored_bytes as usize)?;
        Ok((draft, stored))
    }

    /// A part as it was before it was packed.
    #[cfg(test)]
    pub(super) fn read_plain(&mut self, part: usize) -> io::Result<(PartDraft, Vec<u8>)> {
        let (draft, stored) = self.read(part)?;
        let plain = crate::method::unpack_part(&stored, draft.plain_bytes as usize);
        Ok((draft, plain.expect("a part that was just packed")))
    }
}
