//! What can be wrong with an archive's bytes.

use thiserror::Error;

use crate::{Stream, kind::PartKind};

/// Why bytes are no archive, or none that can be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
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
    #[error("the archive is damaged: its {0} does not have the digest that it should have")]
    Digest(Portion),
    /// The archive is shorter or longer than it says.
    #[error("the archive should have {expected} bytes and has {found}")]
    Length {
        /// What the header says.
        expected: u64,
        /// What there is.
        found: u64,
    },
    /// Something ends before it should.
    #[error("the archive is damaged or hostile: its {0} ends early")]
    Truncated(Portion),
    /// Something has more bytes, or other values, than the format allows.
    #[error("the archive is damaged or hostile: {0}")]
    Invalid(Violation),
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

/// What of an archive an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Portion {
    /// The header.
    #[error("header")]
    Header,
    /// The footer.
    #[error("footer")]
    Footer,
    /// The root.
    #[error("root")]
    Root,
    /// The private root.
    #[error("private root")]
    PrivateRoot,
    /// The keys section.
    #[error("keys section")]
    Keys,
    /// The catalog.
    #[error("catalog")]
    Catalog,
    /// The content.
    #[error("content")]
    Content,
    /// The weave.
    #[error("weave")]
    Weave,
    /// The frames.
    #[error("frames")]
    Frames,
    /// The table.
    #[error("table")]
    Table,
    /// The file.
    #[error("file")]
    File,
    /// A part of its table.
    #[error("{0}")]
    Part(PartKind),
}

/// Each is documented by the words that it is shown as.
macro_rules! violations {
    ($($name:ident: $words:literal,)*) => {
        /// What an archive says that cannot be.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
        #[non_exhaustive]
        pub enum Violation {
            $(#[doc = $words] #[error($words)] $name,)*
        }
    };
}

violations! {
    Number: "a number has more bits than 64, or bytes that say nothing",
    BytesBehindEnd: "something has bytes behind its end",
    FirstHeaderIsLast: "its first header says that it is the last",
    HeaderLength: "its header has not 256 bytes, as version 1 has",
    HeaderFields: "its header contradicts itself, or has bytes that must be 0",
    LongestChunk: "its longest chunk is empty, or longer than a frame",
    AverageChunk: "its average chunk is not between its shortest and its longest",
    Method: "its method is none",
    HeaderTellsSecrets: "it is encrypted, and its header tells what its private root keeps",
    KeysOfPlain: "it has keys, and is not encrypted",
    RootPacking: "its root does not decompress",
    PrivateRootPacking: "its private root does not decompress",
    ChunksAreNotFrames: "its chunks are not its frames, as the profile says",
    PartLists: "its lists of parts contradict each other",
    OtherParts: "its private root has other parts than its root",
    Sums: "sums over its parts have more than 64 bits",
    HeaderAndTable: "its header does not say what its table comes to",
    StreamLengths: "its streams do not make up the plain content",
    EmptyPart: "a part is empty",
    PartPlace: "a part is where there can be none",
    PartAndRoot: "a part of its table contradicts the root",
    ChunkLength: "a chunk is empty, or a part's chunks are too long",
    RunsInFrames: "runs in frames do not cover a part's chunks",
    ChunkBeyondFrame: "a chunk lies beyond its frame",
    NoSuchFrame: "a chunk is in a frame that is not there",
    EmptyFrame: "a frame has no bytes",
    FramePlace: "a frame is where there can be none",
    NoSuchBase: "a frame's base is before the first frame",
    BaseOfBase: "a frame's base has a base",
    FrameAndChunk: "a frame is not as long as its chunk, which is all of it",
    NoSuchChunk: "a chunk is referred to that is not there",
    RunKind: "a run of references is of no kind that there is",
    RestartPoints: "restart points do not cover what their part does",
    Path: "a path in its catalog is absolute, leads upward, or is none",
    PathInNoFolder: "a path in its catalog lies in no folder that is there before it",
    PathTwice: "a path is in its catalog twice",
    LinkTarget: "a link in its catalog leads nowhere",
    HardLinkTarget: "a hard link in its catalog leads to no file before it",
    EntryKind: "an entry of its catalog is of no kind that there is",
    FileLengths: "its files have more bytes than 64 bits can say",
    FilesAndContent: "its files do not have the bytes of the plain content",
    EntryCount: "its catalog has not as many entries as its header says",
    TooManyPieces: "its pieces are too many for their bytes",
    RootForProxy: "its root is too large for a proxy",
    CatalogForProxy: "its catalog is too large for a proxy",
}
