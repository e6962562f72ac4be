//! Archives that are made and read back.

mod encryption;
mod forged;
mod locked;
mod progress;
mod round_trips;
mod table_cost;

use std::{
    io::{Cursor, Read},
    ops::{ControlFlow, Range},
    path::Path,
    sync::{Arc, Mutex},
};

use refrain_czip::{
    archive::{Archive, CacheBytes, ReadError, copy},
    create::{CreateError, CreateOptions, Input, Output, create},
    verify::verify_content,
};

use crate::making::noise;

fn options() -> CreateOptions {
    CreateOptions {
        threads: 2,
        ..CreateOptions::default()
    }
}

/// An archive of `content`, as it is in a file.
fn archive_of(content: &[u8], options: &CreateOptions) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("archive.czip");
    let input = Input::Stream(Box::new(Cursor::new(content.to_vec())));
    make(vec![input], Output::File(path.clone()), options).expect("an archive");
    std::fs::read(path).expect("it is there")
}

/// The same as it goes down a pipe.
fn piped_archive_of(content: &[u8], options: &CreateOptions) -> Vec<u8> {
    let sink = Arc::new(Mutex::new(Vec::new()));
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let input = Input::Stream(Box::new(Cursor::new(content.to_vec())));
    let output = Output::Pipe(Box::new(Sink(Arc::clone(&sink))));
    make(vec![input], output, options).expect("an archive");
    std::mem::take(&mut *sink.lock().expect("no panic"))
}

fn make(inputs: Vec<Input>, output: Output, options: &CreateOptions) -> Result<(), CreateError> {
    create(inputs, output, options, &mut |_| ControlFlow::Continue(())).map(|_| ())
}

fn open(archive: Vec<u8>) -> Archive<Vec<u8>> {
    Archive::open(archive, CacheBytes::default()).expect("an archive")
}

/// A range of the plain content.
fn read(archive: &Archive<Vec<u8>>, range: Range<usize>) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; range.len()];
    let read = archive.content(range.start as u64)?.read(&mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// All of it, by several threads, and held against its digest.
fn read_all(archive: &Archive<Vec<u8>>) -> Result<Vec<u8>, ReadError> {
    let mut content = Vec::new();
    verify_content(archive, 3, &mut |piece| {
        content.extend_from_slice(piece);
        Ok(())
    })?;
    let mut again = Vec::new();
    copy(
        archive,
        0..archive.plain_bytes(),
        1,
        &mut |piece: &[u8]| {
            again.extend_from_slice(piece);
            Ok::<(), ReadError>(())
        },
    )?;
    assert_eq!(content, again);
    Ok(content)
}

/// A tar of `files`, by the `tar` crate.
fn tar_of(files: &[(String, Vec<u8>)], mtime: u64) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(mtime);
        tar.append_data(&mut header, Path::new(name), &content[..])
            .expect("memory takes it");
    }
    tar.into_inner().expect("memory takes it")
}

/// Gives its bytes in crumbs.
struct Crumbs(Cursor<Vec<u8>>);

impl Read for Crumbs {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(4_999);
        self.0.read(&mut buffer[..count])
    }
}
