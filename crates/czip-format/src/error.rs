//! What can be wrong with an archive's bytes.

use thiserror::Error;

use crate::Stream;

/// Why bytes are no archive, or none that can be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// It does not begin as an archive does.
    #[error("this is no CZIP archive")]
    NotAnArchive,
    /// It begins as an archive does and ends before its header does.
    #[error("the archive is cut off: it has {bytes} bytes, and a header alone has 256")]
    NoHeader {
        /// How many there are.
        bytes: u64,
    },
    /// Another version wrote it.
    #[error("this archive has version {version} of the format; this program reads version 1")]
    Version {
        /// Which.
        version: u16,
    },
    /// It asks for what this version does not know.
    #[error("this archive has flags that this program does not know: {flags:#x}")]
    UnknownFlags {
        /// The unknown ones.
        flags: u32,
    },
    /// What was read is not what was written.
    #[error("the archive is damaged: its {what} does not have the digest that it should have")]
    Digest {
        /// Of what.
        what: &'static str,
    },
    /// The archive is shorter or longer than it says.
    #[error("the archive should have {expected} bytes and has {found}")]
    Length {
        /// What the header says.
        expected: u64,
        /// What there is.
        found: u64,
    },
    /// Something ends before it should.
    #[error("the archive is damaged or hostile: its {what} ends early")]
    Truncated {
        /// What.
        what: &'static str,
    },
    /// Something has more bytes, or other values, than the format allows.
    #[error("the archive is damaged or hostile: {what}")]
    Invalid {
        /// What is wrong.
        what: &'static str,
    },
    /// Something is larger than a reader takes.
    #[error(
        "the archive is damaged or hostile: {what} of {found}, where at most {limit} is allowed"
    )]
    TooLarge {
        /// What.
        what: &'static str,
        /// How large it says it is.
        found: u64,
        /// The bound.
        limit: u64,
    },
    /// A stream is asked for where it has no bytes.
    #[error(
        "the archive is damaged or hostile: its {stream} ends at {end}, and what needs it goes on to {wanted}"
    )]
    BeyondStream {
        /// Which stream.
        stream: Stream,
        /// Where it ends.
        end: u64,
        /// What was asked for.
        wanted: u64,
    },
}

impl FormatError {
    /// Says what is larger than allowed.
    pub fn check_limit(what: &'static str, found: u64, limit: u64) -> Result<(), Self> {
        match found <= limit {
            true => Ok(()),
            false => Err(Self::TooLarge { what, found, limit }),
        }
    }
}
