//! Archives that no honest writer makes, for tests of what reads them.

use std::{
    io::{self, Cursor, Write},
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use super::{CreateOptions, Creator, Output};
use crate::format::catalog::Entry;

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An archive of `content` whose catalog says what `entries` do.
pub(crate) fn archive_with(content: &[u8], entries: &[Entry]) -> Vec<u8> {
    archive_with_digest_of(content, content, entries)
}

/// The same with the digest of `other` content.
pub(crate) fn archive_with_digest_of(other: &[u8], content: &[u8], entries: &[Entry]) -> Vec<u8> {
    let sink = Sink::default();
    let options = CreateOptions {
        threads: 1,
        ..CreateOptions::default()
    };
    let output = Output::Pipe(Box::new(sink.clone()));
    let mut creator = Creator::new(output, &options).expect("memory");
    let mut content = Cursor::new(content);
    let mut piece = vec![0; 4096];
    let mut go_on = |_: super::CreateProgress<'_>| ControlFlow::Continue(());
    let read = creator.file(&mut content, &mut piece, &mut go_on);
    read.expect("memory");
    creator.digest = blake3::Hasher::new();
    creator.digest.update(other);
    for entry in entries {
        creator.entry(entry).expect("memory");
    }
    creator.finish().expect("memory");
    std::mem::take(&mut *sink.0.lock().expect("no panic"))
}
