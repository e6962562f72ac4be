//! The output: put together of chunks that are all here, checked, and given its name.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
};

use super::{GetError, GetOptions, Getting, Phase, local::PartFolder};
use crate::{archive::ReadError, verify::verify_content};

impl Getting<'_> {
    /// Puts the plain content together.
    pub(super) fn finish(
        mut self,
        output: &Path,
        folder: &PartFolder,
        options: &GetOptions,
    ) -> Result<(), GetError> {
        let header = self.archive.header();
        let is_known = !self.archive.is_locked();
        self.report.plain_bytes = is_known.then(|| self.archive.plain_bytes());
        self.report.archive_bytes = header.archive_bytes;
        self.report.output_bytes = self.archive.plain_bytes();
        if options.keeps_archive {
            self.report.output_bytes = header.archive_bytes;
            self.archive.source().sync()?;
            return rename(&folder.file("archive"), output);
        }
        let whole = folder.file("whole");
        let at = |error| GetError::Local {
            path: whole.clone(),
            error,
        };
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&whole).map_err(at)?);
        self.archive.source().complete();
        let total = self.report.output_bytes;
        let mut done = 0;
        let mut failed = None;
        let made = verify_content(self.archive, options.threads, &mut |piece| {
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
        file.sync_all().map_err(at)?;
        rename(&whole, output)
    }
}

/// Gives a file its name, so that after a power cut the name is there as well.
fn rename(from: &Path, to: &Path) -> Result<(), GetError> {
    let renamed = fs::rename(from, to).and_then(|()| {
        let folder = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    });
    renamed.map_err(|error| GetError::Local {
        path: to.to_owned(),
        error,
    })
}
