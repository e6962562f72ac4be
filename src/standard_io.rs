//! Standard input and output as files: `std` has them behind buffers. Ctrl-C ends reading, also while
//! nothing comes. One that was closed when the program started is an error
//! (docs/decisions/0033-closed-standard-input.md).

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Read, Seek},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::SystemTime,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
    io::{Errno, fcntl_getfd},
    stdio,
};

use crate::interrupt::Interrupt;

/// How long Ctrl-C may go unnoticed.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Whether standard input, and standard output, was closed when the program started.
static WAS_INPUT_CLOSED: AtomicBool = AtomicBool::new(false);
static WAS_OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);

ctor::declarative::ctor! {
    // Before `main`, since `std` then opens /dev/null in place of what is closed. Safe: it asks the system
    // for two numbers, and uses nothing of `std` that has to be set up.
    #[ctor(unsafe)]
    fn note_what_is_closed() {
        let is_closed = |descriptor| fcntl_getfd(descriptor) == Err(Errno::BADF);
        WAS_INPUT_CLOSED.store(is_closed(stdio::stdin()), Ordering::Relaxed);
        WAS_OUTPUT_CLOSED.store(is_closed(stdio::stdout()), Ordering::Relaxed);
    }
}

/// Whether a path stands for standard input or output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn refuse_closed(was_closed: &AtomicBool) -> io::Result<()> {
    match was_closed.load(Ordering::Relaxed) {
        true => Err(Errno::BADF.into()),
        false => Ok(()),
    }
}

/// Standard input.
pub(crate) fn input() -> io::Result<File> {
    refuse_closed(&WAS_INPUT_CLOSED)?;
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Bytes from where standard input is read to its end, if it is a file. One of /proc has no length, and
/// bytes all the same.
pub(crate) fn input_left() -> Option<u64> {
    let mut file = input().ok()?;
    let has_length = |file: &Metadata| file.is_file() && file.len() > 0;
    let metadata = file.metadata().ok().filter(has_length)?;
    Some(metadata.len().saturating_sub(file.stream_position().ok()?))
}

/// Fails if standard output was closed when the program started: what is printed would go nowhere.
pub(crate) fn check_output() -> anyhow::Result<()> {
    refuse_closed(&WAS_OUTPUT_CLOSED).map_err(output_failed)
}

/// How long standard input is, and when it was written to last, if it is a file: what changes with it.
pub(crate) fn input_state() -> Option<(u64, SystemTime)> {
    let metadata = input().ok()?.metadata().ok().filter(Metadata::is_file)?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// Standard output.
pub(crate) fn output() -> io::Result<File> {
    refuse_closed(&WAS_OUTPUT_CLOSED)?;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// What is said when standard output cannot be written.
pub(crate) const OUTPUT_FAILED: &str = "cannot write to standard output";

/// An error of standard output.
pub(crate) fn output_failed(error: io::Error) -> anyhow::Error {
    anyhow::Error::from(error).context(OUTPUT_FAILED)
}

/// Standard input, or a pipe, that fails after Ctrl-C.
pub(crate) struct EndableInput {
    file: File,
    /// Bytes that are still read of a file: one that grows ends where it ended when it was opened.
    left: u64,
    interrupt: Interrupt,
}

impl EndableInput {
    pub(crate) fn standard(interrupt: &Interrupt) -> io::Result<Self> {
        Ok(Self {
            file: input()?,
            left: input_left().unwrap_or(u64::MAX),
            interrupt: interrupt.clone(),
        })
    }

    /// Opens what is at `path`, without waiting for who writes to it.
    pub(crate) fn open(path: &Path, interrupt: &Interrupt) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
        Ok(Self {
            file: options.read(true).open(path)?,
            left: u64::MAX,
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
                Ok(_) => {
                    let room = usize::try_from(self.left).unwrap_or(usize::MAX);
                    let room = room.min(buffer.len());
                    match self.file.read(&mut buffer[..room]) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Ok(count) => {
                            self.left -= count as u64;
                            return Ok(count);
                        }
                        failed => return failed,
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
