//! What `refrain bulk` finds, as a CZIP archive.

use std::{
    fs::{self, Metadata, OpenOptions},
    ops::ControlFlow,
    path::Path,
};

use refrain_bulk::{Chunks, Failed, Item, Sink};
use refrain_czip::create::{Assembler, Begun, CreateError, CreateOptions, Output};
use refrain_czip_format::ChunkName;

use super::keep::{Keep, Kept};
use crate::{report, table::printable_path, told::tell};

/// An archive in the making.
pub(super) struct Archive<'a> {
    assembler: Assembler<'a>,
    /// Whether the file that is being read is in it.
    takes: bool,
    left_out: u64,
    failed: Option<CreateError>,
}

impl<'a> Archive<'a> {
    pub(super) fn begin(path: &Path, options: &'a CreateOptions) -> Result<Self, CreateError> {
        // A pipe or a device is written to, never replaced.
        let is_other = |there: Metadata| !there.is_file() && !there.is_dir();
        let output = match fs::metadata(path).is_ok_and(is_other) {
            true => Output::Pipe(Box::new(OpenOptions::new().write(true).open(path)?)),
            false => Output::File(path.to_owned()),
        };
        Ok(Self {
            assembler: Assembler::new(output, options)?,
            takes: false,
            left_out: 0,
            failed: None,
        })
    }

    fn flow(&mut self, done: Result<(), CreateError>) -> ControlFlow<()> {
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl Sink for Archive<'_> {
    fn begin(&mut self, item: Item) -> ControlFlow<()> {
        let Item {
            path,
            depth,
            metadata,
        } = item;
        self.takes = false;
        let begun = self.assembler.begin(&path, depth, metadata.as_ref());
        let begun = begun.map(|begun| match begun {
            Begun::File => self.takes = true,
            Begun::Entry | Begun::HardLink | Begun::PassedOver => {}
            Begun::LeftOut(error) => {
                self.left_out += 1;
                tell(format_args!(
                    "left out: {}: {error}",
                    printable_path(&*path)
                ));
            }
        });
        self.flow(begun)
    }

    fn chunks(&mut self, chunks: &Chunks<'_>) -> ControlFlow<()> {
        if !self.takes {
            return ControlFlow::Continue(());
        }
        let named = chunks
            .iter()
            .map(|(digest, chunk)| (ChunkName(digest.hash().0), chunk));
        let taken = self.assembler.chunks(chunks.bytes(), named);
        self.flow(taken)
    }

    fn end(&mut self, failed: Option<&Failed>) -> ControlFlow<()> {
        if !std::mem::take(&mut self.takes) {
            return ControlFlow::Continue(());
        }
        let ended = self.assembler.end(failed.is_none());
        self.flow(ended)
    }
}

impl Keep for Archive<'_> {
    fn finish(self: Box<Self>) -> anyhow::Result<Kept> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let created = self.assembler.finish()?;
        Ok(Kept::Archive {
            archive_bytes: created.header.archive_bytes,
            stored_bytes: created.summary.stored_bytes,
            entries: created.summary.entries,
            chunks: created.header.chunks,
            digest: report::hex(&created.summary.digest),
            left_out: self.left_out,
        })
    }
}
