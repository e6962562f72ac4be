//! Files get their bytes. Those that are damaged may be left out.

use std::collections::BTreeMap;

use super::{
    ExtractError, ExtractOptions, ExtractProgress,
    choice::{Item, What},
    staging::Staging,
};
use crate::archive::{Archive, ReadError, Source, copy};

pub(super) struct Filling<'a, S> {
    archive: &'a Archive<S>,
    items: &'a [Item],
    options: &'a ExtractOptions,
    /// Of all bytes so far, if all of the content is wanted and nothing of it was damaged yet.
    digest: Option<blake3::Hasher>,
    plain_bytes: u64,
    plain_bytes_total: u64,
    /// Files that are damaged.
    damaged: BTreeMap<usize, ReadError>,
}

impl<'a, S: Source> Filling<'a, S> {
    pub(super) fn new(
        archive: &'a Archive<S>,
        items: &'a [Item],
        options: &'a ExtractOptions,
    ) -> Self {
        Self {
            archive,
            items,
            options,
            digest: options.paths.is_empty().then(blake3::Hasher::new),
            plain_bytes: 0,
            plain_bytes_total: items.iter().map(Item::bytes).sum(),
            damaged: BTreeMap::new(),
        }
    }

    pub(super) fn progress(&self) -> ExtractProgress<'static> {
        ExtractProgress {
            plain_bytes: self.plain_bytes,
            plain_bytes_total: self.plain_bytes_total,
            ..ExtractProgress::default()
        }
    }

    /// Writes files whose bytes follow each other.
    ///
    /// Where they fail, it is not known which one is damaged, since much is read at once: from there on
    /// each is read alone, until one fails by itself.
    pub(super) fn fill(
        &mut self,
        mut files: &[usize],
        staging: &mut Staging<'_>,
        tell: &mut dyn FnMut(ExtractProgress) -> Result<(), ExtractError>,
    ) -> Result<(), ExtractError> {
        let mut is_alone = false;
        while let Some(&first) = files.first() {
            let together = if is_alone { &files[..1] } else { files };
            let start = self.plain_bytes;
            let (whole, written) = self.write(together, staging, tell);
            let failed = match written {
                Err(ExtractError::Read(error)) if self.is_left_out(&error) => Some(error),
                written => written.map(|()| None)?,
            };
            files = &files[whole..];
            let Some(error) = failed else {
                continue;
            };
            self.digest = None;
            let whole = together[..whole].iter();
            self.plain_bytes = start + whole.map(|&index| self.items[index].bytes()).sum::<u64>();
            staging.give_up(files[0])?;
            if is_alone {
                self.damaged.insert(first, error);
                self.plain_bytes += self.items[first].bytes();
                files = &files[1..];
            }
            is_alone = !is_alone;
        }
        Ok(())
    }

    /// Writes files, and says how many of them have all their bytes.
    fn write(
        &mut self,
        files: &[usize],
        staging: &mut Staging<'_>,
        tell: &mut dyn FnMut(ExtractProgress) -> Result<(), ExtractError>,
    ) -> (usize, Result<(), ExtractError>) {
        let start = self.items[files[0]].range().start;
        let end = self.items[files[files.len() - 1]].range().end;
        let mut writer = staging.write(files, None);
        let written = copy(
            self.archive,
            start..end,
            self.options.threads,
            &mut |piece: &[u8]| {
                if let Some(digest) = &mut self.digest {
                    digest.update(piece);
                }
                writer.write(piece)?;
                self.plain_bytes += piece.len() as u64;
                tell(self.progress())
            },
        );
        let written = written.and_then(|()| writer.finish());
        (writer.whole(), written)
    }

    /// Writes the content of the file `of` again, as the item `index`: no hard link can lead to it.
    pub(super) fn fill_again(
        &self,
        index: usize,
        of: usize,
        staging: &mut Staging<'_>,
        tell: &mut dyn FnMut(ExtractProgress) -> Result<(), ExtractError>,
    ) -> Result<(), ExtractError> {
        let files = [index];
        let mut writer = staging.write(&files, Some(of));
        copy(
            self.archive,
            self.items[of].range(),
            self.options.threads,
            &mut |piece: &[u8]| {
                writer.write(piece)?;
                tell(self.progress())
            },
        )?;
        writer.finish()
    }

    fn is_left_out(&self, error: &ReadError) -> bool {
        self.options.is_damage_left_out && error.is_damage()
    }

    /// How an item is damaged, if it is: a file, or another name of one.
    pub(super) fn damage(&self, index: usize) -> Option<&ReadError> {
        match self.items[index].what {
            What::HardLink { of } => self.damaged.get(&of),
            _ => self.damaged.get(&index),
        }
    }

    /// Whether all was wanted and read: then it has the right digest, if that is not wrong.
    pub(super) fn is_whole(&self) -> bool {
        self.digest.is_some()
    }

    pub(super) fn is_digest_wrong(&self) -> bool {
        let expected = self.archive.root().summary.digest;
        let digest = self.digest.as_ref();
        digest.is_some_and(|digest| *digest.finalize().as_bytes() != expected)
    }
}
