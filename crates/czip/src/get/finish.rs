//! The output: put together of chunks that are all here, checked, and given its name.

use std::io::{BufWriter, Write};

use super::{GetError, GetOptions, Getting, Phase, part_folder::PartFolder};
use crate::{archive::ReadError, verify::verify_content};

impl Getting<'_> {
    /// Puts the plain content together.
    pub(super) fn finish(self, folder: &PartFolder, options: &GetOptions) -> Result<(), GetError> {
        let header = self.archive.header();
        let is_known = !self.archive.is_locked();
        self.report.plain_bytes = is_known.then(|| self.archive.plain_bytes());
        self.report.archive_bytes = header.archive_bytes;
        self.report.output_bytes = self.archive.plain_bytes();
        if options.keeps_archive {
            self.report.output_bytes = header.archive_bytes;
            self.archive.source().sync()?;
            return folder.finish("archive");
        }
        match self.put_together(folder, options.threads) {
            Ok(()) => folder.finish("whole"),
            Err(error) => {
                // It is put together again, from what takes no more room than it.
                folder.remove_file("whole");
                Err(error)
            }
        }
    }

    fn put_together(mut self, folder: &PartFolder, threads: usize) -> Result<(), GetError> {
        let at = |error| folder.at("whole", error);
        let mut out = BufWriter::with_capacity(1 << 20, folder.create_new("whole")?);
        self.archive.source().complete();
        let total = self.report.output_bytes;
        let mut done = 0;
        let mut failed = None;
        let made = verify_content(self.archive, threads, &mut |piece| {
            let mut take = || {
                out.write_all(piece).map_err(at)?;
                done += piece.len() as u64;
                self.go_on(Phase::Output, done, total)
            };
            take().map_err(|error| {
                failed = Some(error);
                ReadError::Io(std::io::ErrorKind::Interrupted.into())
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        made?;
        let file = out.into_inner().map_err(|error| at(error.into_error()))?;
        file.sync_all().map_err(at)
    }
}
