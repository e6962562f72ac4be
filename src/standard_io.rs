//! Standard input and output as files: `std` has them behind buffers. Ctrl-C ends reading, also while
//! nothing comes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
    io::Errno,
};

use crate::interrupt::Interrupt;

/// How long Ctrl-C may go unnoticed.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Standard input.
pub fn input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Bytes from where standard input is read to its end, if it is a file.
pub fn input_left() -> Option<u64> {
    let mut file = input().ok()?;
    let metadata = file.metadata().ok().filter(|file| file.is_file())?;
    Some(metadata.len().saturating_sub(file.stream_position().ok()?))
}

/// Standard output.
pub fn output() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// What is said when standard output cannot be written.
pub fn output_failed(error: io::Error) -> anyhow::Error {
    anyhow::Error::from(error).context("standard output")
}

/// Standard input, or a pipe, that fails after Ctrl-C.
pub struct EndableInput {
    file: File,
    interrupt: Interrupt,
}

impl EndableInput {
    pub fn standard(interrupt: &Interrupt) -> io::Result<Self> {
        Ok(Self {
            file: input()?,
            interrupt: interrupt.clone(),
        })
    }

    /// Opens what is at `path`, without waiting for who writes to it.
    pub fn open(path: &Path, interrupt: &Interrupt) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
        Ok(Self {
            file: options.read(true).open(path)?,
            interrupt: interrupt.clone(),
        })
    }
}

impl Read for EndableInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Of another kind than `Interrupted`, after which callers try again.
            self.interrupt.check().map_err(io::Error::other)?;
            let mut wanted = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut wanted, Some(&PATIENCE)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => match self.file.read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                },
                Err(error) => return Err(error.into()),
            }
        }
    }
}
