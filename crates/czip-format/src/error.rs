//! What can be wrong with an archive's bytes.

use thiserror::Error;

use crate::{Stream, kind::PartKind};

/// Why bytes are no archive, or none that can be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It does not begin as an archive does.
    #[error("not a CZIP archive")]
    NotAnArchive,
    /// It has no bytes.
    #[error("not a CZIP archive: it is empty")]
    Empty,
    /// It begins as an archive does and ends before its header does.
    #[error("the archive is truncated: it has {bytes} bytes, but a header has 256")]
    NoHeader {
        /// How many there are.
        bytes: u64,
    },
    /// Another version wrote it.
    #[error("unknown archive format version {version} (this program reads version 1)")]
    Version {
        /// Which.
        version: u16,
    },
    /// Its header is damaged, or another version wrote one that this version cannot check.
    #[error(
        "the archive is damaged: the checksum of the header does not match (or a later version of refrain made it: \
         its format version is {version})"
    )]
    DamagedOrLater {
        /// The version that its header has.
        version: u16,
    },
    /// It asks for what this version does not know.
    #[error("the archive has unknown flags: {flags:#x}")]
    UnknownFlags {
        /// The unknown ones.
        flags: u32,
    },
    /// What was read is not what was written.
    #[error("the archive is damaged: the checksum of the {0} does not match")]
    Digest(Portion),
    /// The archive is shorter or longer than it says.
    #[error(
        "the archive is {}: expected {expected} bytes, found {found}",
        if found < expected { "truncated" } else { "too long" }
    )]
    Length {
        /// What the header says.
        expected: u64,
        /// What there is.
        found: u64,
    },
    /// Something ends before it should.
    #[error("the archive is {}", truncated(*.0))]
    Truncated(Portion),
    /// Something has more bytes, or other values, than the format allows.
    #[error("the archive is invalid: {0}")]
    Invalid(Violation),
    /// Something is larger than a reader takes.
    #[error("the archive is invalid: {what} is too large: {found} (limit {limit})")]
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
        "the archive is invalid: its {stream} ends at {end}, but data up to {wanted} is needed"
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

/// How an archive is described in which this ends too early.
fn truncated(portion: Portion) -> String {
    match portion {
        Portion::File => "truncated: data is missing".to_owned(),
        Portion::Footer => "truncated: it has no footer".to_owned(),
        portion => format!("damaged: truncated {portion}"),
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
    Number: "a number has more than 64 bits, or redundant bytes",
    BytesBehindEnd: "an item has extra bytes after its end",
    FirstHeaderIsLast: "its first header is marked as the last",
    HeaderLength: "its header has an unknown length (headers of version 1 have 256 bytes)",
    HeaderFields: "its header contradicts itself, or a byte that must be 0 is not",
    LongestChunk: "its longest chunk is empty, or longer than a frame",
    AverageChunk: "its average chunk is not between its shortest and its longest",
    Method: "unknown compression method",
    HeaderTellsSecrets: "it is encrypted, but its header reveals data of its private root",
    KeysOfPlain: "it has keys, but is not encrypted",
    RootPacking: "its root cannot be decompressed",
    PrivateRootPacking: "its private root cannot be decompressed",
    ChunksAreNotFrames: "its chunks and frames differ, but its profile requires one frame per chunk",
    PartLists: "its lists of parts contradict each other",
    OtherParts: "its private root and its root have different parts",
    Sums: "a sum over its parts has more than 64 bits",
    HeaderAndTable: "its header does not match its table",
    StreamLengths: "its streams do not match the plain content",
    EmptyPart: "a part is empty",
    PartPlace: "a part has an invalid position",
    PartAndRoot: "a part of its table contradicts the root",
    ChunkLength: "a chunk is empty, or a part's chunks are too long",
    RunsInFrames: "runs in frames do not cover a part's chunks",
    ChunkBeyondFrame: "a chunk lies beyond its frame",
    NoSuchFrame: "a chunk is in a frame that does not exist",
    EmptyFrame: "a frame has no bytes",
    FramePlace: "a frame has an invalid position",
    NoSuchBase: "a frame's base is before the first frame",
    BaseOfBase: "a frame's base has a base",
    FrameAndChunk: "a frame and its only chunk have different lengths",
    NoSuchChunk: "a reference points to a chunk that does not exist",
    RunKind: "a run of references has an unknown kind",
    RestartPoints: "restart points do not cover their part",
    Path: "a path in its catalog is absolute, leads upward or is invalid",
    PathInNoFolder: "a path in its catalog has no earlier entry for its directory",
    PathTwice: "a path is in its catalog twice",
    LinkTarget: "a link in its catalog has an invalid target",
    HardLinkTarget: "a hard link in its catalog does not point to an earlier file",
    EntryKind: "an entry of its catalog has an unknown kind",
    FileLengths: "the sum of its file lengths has more than 64 bits",
    FilesAndContent: "its files and its plain content have different lengths",
    EntryCount: "its catalog and its header differ in the number of entries",
    TooManyPieces: "it has too many pieces for their bytes",
    RootForProxy: "its root is too large for a proxy",
    CatalogForProxy: "its catalog is too large for a proxy",
}
