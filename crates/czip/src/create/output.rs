//! Where an archive goes: into a file, which is there whole or not at all, or down a pipe.
//!
//! In a file, the table goes first. Frames wait in memory until its size is known; when they have
//! become many, room is left for it that is estimated from what it takes so far (CZIP, section 3.2),
//! and what does not fit goes behind the frames. So nothing is written twice.

use std::{
    io::{self, Write},
    os::unix::fs::FileExt,
    path::PathBuf,
};

use super::{new_file::NewFile, walk::FileId};
use crate::format::limits::HEADER_BYTES;

/// Where an archive is to go.
pub enum Output {
    /// Into this file, which is replaced when the archive is whole.
    File(PathBuf),
    /// The same, written from its beginning to its end, with a footer.
    Stream(PathBuf),
    /// Down a pipe, with a footer.
    Pipe(Box<dyn Write + Send>),
}

enum Destination {
    File(NewFile),
    Pipe(Box<dyn Write + Send>),
}

/// The frames of an archive that is being made.
pub(super) struct Frames {
    to: Destination,
    /// Whether the header that counts is at the end, since the one at the beginning cannot wait.
    pub(super) has_footer: bool,
    /// Frames whose place is not known yet.
    waiting: Vec<u8>,
    waiting_bytes_max: usize,
    /// Where the first frame is, once that is known.
    pub(super) start: Option<u64>,
    /// Bytes of all frames so far.
    pub(super) bytes: u64,
}

impl Frames {
    pub(super) fn new(output: Output, waiting_bytes_max: usize) -> io::Result<Self> {
        let (to, has_footer) = match output {
            Output::File(path) => (Destination::File(NewFile::new(&path)?), false),
            Output::Stream(path) => (Destination::File(NewFile::new(&path)?), true),
            Output::Pipe(out) => (Destination::Pipe(out), true),
        };
        Ok(Self {
            to,
            has_footer,
            waiting: Vec::new(),
            waiting_bytes_max,
            start: has_footer.then_some(HEADER_BYTES as u64),
            bytes: 0,
        })
    }

    /// The files that the archive is made in, and that it replaces.
    pub(super) fn own_files(&self) -> Vec<FileId> {
        match &self.to {
            Destination::File(file) => file.own_files(),
            Destination::Pipe(_) => Vec::new(),
        }
    }

    /// Writes the advisory header, if there is a footer.
    pub(super) fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        match self.has_footer {
            true => self.write_at(header, 0),
            false => Ok(()),
        }
    }

    /// Appends a frame, and says where it is among the frames. `table_bytes` estimates the table.
    pub(super) fn append(&mut self, stored: &[u8], table_bytes: u64) -> io::Result<u64> {
        let at = self.bytes;
        if self.start.is_none() && self.waiting.len() + stored.len() > self.waiting_bytes_max {
            self.place_at(HEADER_BYTES as u64 + table_bytes)?;
        }
        match (&mut self.to, self.start) {
            (Destination::Pipe(out), _) => out.write_all(stored)?,
            (Destination::File(file), Some(start)) => file.write_at(stored, start + at)?,
            (Destination::File(_), None) => self.waiting.extend_from_slice(stored),
        }
        self.bytes += stored.len() as u64;
        Ok(at)
    }

    /// The first frame is at `start`: writes those that waited for it.
    pub(super) fn place_at(&mut self, start: u64) -> io::Result<()> {
        if let (Destination::File(file), None) = (&self.to, self.start) {
            file.write_at(&self.waiting, start)?;
            self.waiting = Vec::new();
            self.start = Some(start);
        }
        Ok(())
    }

    /// Reads bytes of the frames back; none if they went down a pipe.
    pub(super) fn read_back(&self, at: u64, bytes: usize) -> io::Result<Option<Vec<u8>>> {
        match (&self.to, self.start) {
            (Destination::Pipe(_), _) => Ok(None),
            (Destination::File(file), Some(start)) => {
                let mut buffer = vec![0; bytes];
                file.file().read_exact_at(&mut buffer, start + at)?;
                Ok(Some(buffer))
            }
            (Destination::File(_), None) => {
                let at = at as usize;
                Ok(Some(self.waiting[at..at + bytes].to_vec()))
            }
        }
    }

    /// Writes what is no frame: anywhere in a file, and in order down a pipe.
    pub(super) fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        match &mut self.to {
            Destination::File(file) => file.write_at(bytes, at),
            Destination::Pipe(out) => out.write_all(bytes),
        }
    }

    /// All is written: the file takes its name.
    pub(super) fn finish(self) -> io::Result<()> {
        match self.to {
            Destination::File(file) => file.finish(),
            Destination::Pipe(mut out) => out.flush(),
        }
    }
}
