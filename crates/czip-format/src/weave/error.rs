//! What is wrong with a weave.

use crate::Stream;

/// Why no more plain content comes. Nothing is to be read after it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeaveError {
    /// The weave wants more of a stream than there is.
    #[error("the stream {stream} is truncated")]
    Short {
        /// Which.
        stream: Stream,
    },
    /// The weave, or what it is made of, goes on behind its end.
    #[error("the weave or its streams have extra bytes after the end")]
    Long,
    /// No operation has this number.
    #[error("the weave has an unknown operation {0}")]
    Operation(u8),
    /// A number of more than 64 bits, not in its shortest form, or 0.
    #[error("the weave has a malformed number")]
    Number,
    /// A tar header's masks that cannot be.
    #[error("a woven tar header has invalid masks: {fields:#x} and {times:#x}")]
    Masks {
        /// The one from fields.
        fields: u8,
        /// The one from times.
        times: u8,
    },
    /// A name or link name of more than 100 bytes, or more than 255 bytes of what is last in a header.
    #[error("a text in a woven tar header is too long")]
    Text,
    /// A size that is no octal number.
    #[error("the size in a woven tar header is not an octal number: {0:x?}")]
    Size([u8; 12]),
    /// An extended header whose text is beyond the limit.
    #[error("the text of a woven extended tar header is too large: {0} bytes")]
    ExtendedText(u64),
}
