//! The header: what a planning tool needs, and where the root is (CZIP, section 3.1).

use crate::{
    FormatError, Portion, Violation, chunker::ChunkingMethod, digest, limits, method::Method,
};

const MAGIC: [u8; 8] = *b"\x89CZIP\r\n\x1a";
const VERSION: u16 = 1;

/// Bytes before the digest at the header's end.
const COVERED_BYTES: usize = 240;

const FOOTER: u32 = 1;
const TRAILER: u32 = 2;
const SHARED: u32 = 4;
const WOVEN: u32 = 8;
const ENCRYPTED: u32 = 16;
const PADDED: u32 = 32;
const GROUP_SECRET: u32 = 64;
const ALL_FLAGS: u32 = 127;

named! {
    /// What an archive is made for.
    #[derive(Default)]
    Profile {
        /// Chunks are compressed together.
        #[default]
        Small: "small",
        /// Each chunk stands alone, so that caches can share it.
        Shared: "shared",
    }
}

/// How an archive is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encryption {
    /// Whether lengths of chunks are hidden.
    pub is_padded: bool,
    /// Whether names and keys depend on a secret of a group.
    pub has_group_secret: bool,
}

/// What the private root tells instead of the header if an archive is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainSummary {
    /// Bytes of the plain content.
    pub plain_bytes: u64,
    /// Plain bytes of all chunks of all streams.
    pub unique_bytes: u64,
    /// Stored bytes of all frames.
    pub stored_bytes: u64,
    /// Entries in the catalog.
    pub entries: u64,
    /// BLAKE3 of the plain content.
    pub digest: [u8; 32],
}

impl PlainSummary {
    /// Its bytes in a private root.
    pub(crate) const BYTES: usize = 64;

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        for number in [
            self.plain_bytes,
            self.unique_bytes,
            self.stored_bytes,
            self.entries,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.digest);
    }

    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let (numbers, digest) = bytes.split_at(32);
        let number = |at: usize| u64_at(numbers, 8 * at);
        let mut summary = Self {
            plain_bytes: number(0),
            unique_bytes: number(1),
            stored_bytes: number(2),
            entries: number(3),
            digest: [0; 32],
        };
        summary.digest.copy_from_slice(digest);
        summary
    }
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether the header at the end is the one that counts.
    pub has_footer: bool,
    /// Whether this is the header at the end.
    pub is_trailer: bool,
    /// What the archive is made for.
    pub profile: Profile,
    /// Whether the plain content is woven from streams.
    pub is_woven: bool,
    /// Whether and how it is encrypted.
    pub encryption: Option<Encryption>,
    /// How chunks were cut.
    pub chunking: ChunkingMethod,
    /// Method of most frames.
    pub method: u8,
    /// The average chunk that was asked for.
    pub chunk_bytes: u32,
    /// The shortest.
    pub chunk_bytes_min: u32,
    /// The longest.
    pub chunk_bytes_max: u32,
    /// Most plain bytes of a frame.
    pub frame_bytes_max: u32,
    /// Bytes of the whole archive; 0 in an advisory header.
    pub archive_bytes: u64,
    /// What is in it; zeros if it is encrypted.
    pub summary: PlainSummary,
    /// Chunks of all streams.
    pub chunks: u64,
    /// References of all streams.
    pub references: u64,
    /// Where the root is.
    pub root: RootPlace,
    /// Where the keys are.
    pub keys: KeysPlace,
}

/// Where the keys of an encrypted archive are, and how they are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeysPlace {
    /// Where they begin.
    pub offset: u64,
    /// Their bytes.
    pub bytes: u32,
    /// Their digest.
    pub digest: [u8; 32],
}

/// Where the root is, and how it is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootPlace {
    /// Where it begins.
    pub offset: u64,
    /// Its stored bytes.
    pub stored_bytes: u32,
    /// Its plain bytes.
    pub plain_bytes: u32,
    /// Stored bytes of the private root behind it.
    pub private_stored_bytes: u32,
    /// Plain bytes of the private root.
    pub private_plain_bytes: u32,
    /// Digest of both as stored.
    pub digest: [u8; 32],
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u16_at(bytes, at) as u32 | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Whether a file that begins so says that it is an archive.
pub fn is_archive(magic: &[u8; 8]) -> bool {
    *magic == MAGIC
}

/// Whether what begins so, and ends within, may be what is left of an archive.
pub fn may_be_archive(begin: &[u8]) -> bool {
    !begin.is_empty() && MAGIC.starts_with(begin)
}

impl Header {
    /// Parses the first 256 bytes of an archive.
    ///
    /// # Errors
    /// If they are no header, or one of another version, or say what cannot be.
    pub fn parse_first(bytes: &[u8; limits::HEADER_BYTES]) -> Result<Self, FormatError> {
        let header = Self::parse(bytes)?;
        match header.is_trailer {
            // Else some readers would take this one, and others the last.
            true => Err(FormatError::Invalid(Violation::FirstHeaderIsLast)),
            false => Ok(header),
        }
    }

    /// Parses the last 256 bytes of an archive whose first are [advisory](Self::is_advisory).
    pub fn parse_last(bytes: &[u8; limits::HEADER_BYTES]) -> Result<Self, FormatError> {
        const NO_FOOTER: FormatError = FormatError::Truncated(Portion::Footer);
        match Self::parse(bytes) {
            Err(FormatError::NotAnArchive) => Err(NO_FOOTER),
            Ok(header) if !header.is_trailer => Err(NO_FOOTER),
            parsed => parsed,
        }
    }

    fn parse(bytes: &[u8; limits::HEADER_BYTES]) -> Result<Self, FormatError> {
        if bytes[..8] != MAGIC {
            return Err(FormatError::NotAnArchive);
        }
        // Before the version, which may be what is damaged.
        let is_intact = digest::<16>(&bytes[..COVERED_BYTES]) == bytes[COVERED_BYTES..];
        match (u16_at(bytes, 8), is_intact) {
            (VERSION, true) => {}
            (VERSION, false) => return Err(FormatError::Digest(Portion::Header)),
            (version, true) => return Err(FormatError::Version { version }),
            (version, false) => return Err(FormatError::DamagedOrLater { version }),
        }
        // After the digest, which tells a damaged length from an unknown one.
        if usize::from(u16_at(bytes, 10)) != limits::HEADER_BYTES {
            return Err(FormatError::Invalid(Violation::HeaderLength));
        }
        let flags = u32_at(bytes, 12);
        let unknown = flags & !ALL_FLAGS;
        if unknown != 0 {
            return Err(FormatError::UnknownFlags { flags: unknown });
        }
        let is_reserved_clear =
            bytes[19] == 0 && u32_at(bytes, 36) == 0 && bytes[228..COVERED_BYTES] == [0; 12];
        let encryption = (flags & ENCRYPTED != 0).then_some(Encryption {
            is_padded: flags & PADDED != 0,
            has_group_secret: flags & GROUP_SECRET != 0,
        });
        let is_encryption_consistent = match encryption {
            Some(_) => bytes[18] == 1,
            None => bytes[18] == 0 && flags & (PADDED | GROUP_SECRET) == 0,
        };
        let chunking = ChunkingMethod::ALL.get(usize::from(bytes[16])).copied();
        let has_trailer_alone = flags & TRAILER != 0 && flags & FOOTER == 0;
        let (Some(chunking), true, true, false) = (
            chunking,
            is_reserved_clear,
            is_encryption_consistent,
            has_trailer_alone,
        ) else {
            return Err(FormatError::Invalid(Violation::HeaderFields));
        };
        let mut summary = [0; PlainSummary::BYTES];
        summary[..32].copy_from_slice(&bytes[48..80]);
        summary[32..].copy_from_slice(&bytes[96..128]);
        let digest_at = |at: usize| *bytes[at..].first_chunk().expect("a header is longer");
        let header = Self {
            has_footer: flags & FOOTER != 0,
            is_trailer: flags & TRAILER != 0,
            profile: match flags & SHARED {
                0 => Profile::Small,
                _ => Profile::Shared,
            },
            is_woven: flags & WOVEN != 0,
            encryption,
            chunking,
            method: bytes[17],
            chunk_bytes: u32_at(bytes, 20),
            chunk_bytes_min: u32_at(bytes, 24),
            chunk_bytes_max: u32_at(bytes, 28),
            frame_bytes_max: u32_at(bytes, 32),
            archive_bytes: u64_at(bytes, 40),
            summary: PlainSummary::parse(&summary),
            chunks: u64_at(bytes, 80),
            references: u64_at(bytes, 88),
            root: RootPlace {
                offset: u64_at(bytes, 128),
                stored_bytes: u32_at(bytes, 136),
                plain_bytes: u32_at(bytes, 140),
                private_stored_bytes: u32_at(bytes, 144),
                private_plain_bytes: u32_at(bytes, 148),
                digest: digest_at(152),
            },
            keys: KeysPlace {
                offset: u64_at(bytes, 184),
                bytes: u32_at(bytes, 192),
                digest: digest_at(196),
            },
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), FormatError> {
        let root = &self.root;
        let root_max = limits::ROOT_BYTES_MAX;
        let private_max = root_max + limits::SEAL_BYTES_MAX;
        let plain_max = |stored_bytes: u32| limits::root_bytes_max(stored_bytes as usize);
        let (root_plain_max, private_plain_max) = (
            plain_max(root.stored_bytes),
            plain_max(root.private_stored_bytes),
        );
        for (what, found, limit) in [
            (
                "the longest chunk",
                self.chunk_bytes_max,
                limits::CHUNK_BYTES_MAX,
            ),
            (
                "the largest frame",
                self.frame_bytes_max,
                limits::FRAME_BYTES_MAX,
            ),
            ("a root", root.stored_bytes, root_max),
            ("a root", root.plain_bytes, root_plain_max),
            (
                "a private root",
                root.private_plain_bytes,
                private_plain_max,
            ),
            ("a private root", root.private_stored_bytes, private_max),
            ("the keys section", self.keys.bytes, limits::KEYS_BYTES_MAX),
        ] {
            FormatError::check_limit(what, found.into(), limit as u64)?;
        }
        if self.chunk_bytes_max == 0 || self.frame_bytes_max < self.chunk_bytes_max {
            return Err(FormatError::Invalid(Violation::LongestChunk));
        }
        if self.chunk_bytes_min > self.chunk_bytes || self.chunk_bytes > self.chunk_bytes_max {
            return Err(FormatError::Invalid(Violation::AverageChunk));
        }
        if Method::of_number(self.method).is_none() {
            return Err(FormatError::Invalid(Violation::Method));
        }
        let (says_too_much, violation) = match self.encryption {
            Some(_) => (
                self.summary != PlainSummary::default(),
                Violation::HeaderTellsSecrets,
            ),
            None => (self.keys != KeysPlace::default(), Violation::KeysOfPlain),
        };
        if says_too_much {
            return Err(FormatError::Invalid(violation));
        }
        if self.is_advisory() {
            return Ok(());
        }
        let root_bytes = u64::from(root.stored_bytes) + u64::from(root.private_stored_bytes);
        let end = root.offset.checked_add(root_bytes);
        let keys_end = self.keys.offset.checked_add(self.keys.bytes.into());
        match (end, keys_end) {
            (Some(end), Some(keys_end)) if end.max(keys_end) <= self.archive_bytes => Ok(()),
            _ => Err(FormatError::Truncated(Portion::Root)),
        }
    }

    /// Whether the header at the archive's end has what this one does not.
    pub fn is_advisory(&self) -> bool {
        self.has_footer && !self.is_trailer
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; limits::HEADER_BYTES] {
        let has = |what: fn(&Encryption) -> bool| self.encryption.as_ref().is_some_and(what);
        let flags = [
            (self.has_footer, FOOTER),
            (self.is_trailer, TRAILER),
            (self.profile == Profile::Shared, SHARED),
            (self.is_woven, WOVEN),
            (self.encryption.is_some(), ENCRYPTED),
            (has(|how| how.is_padded), PADDED),
            (has(|how| how.has_group_secret), GROUP_SECRET),
        ];
        let flags = flags.map(|(is_set, flag)| if is_set { flag } else { 0 });
        let flags = flags.into_iter().fold(0, |all, flag| all | flag);
        let mut summary = Vec::with_capacity(PlainSummary::BYTES);
        self.summary.put(&mut summary);

        let mut bytes = [0; limits::HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(10, &(limits::HEADER_BYTES as u16).to_le_bytes());
        put(12, &flags.to_le_bytes());
        let is_encrypted = self.encryption.is_some();
        put(16, &[self.chunking as u8, self.method, is_encrypted.into()]);
        put(20, &self.chunk_bytes.to_le_bytes());
        put(24, &self.chunk_bytes_min.to_le_bytes());
        put(28, &self.chunk_bytes_max.to_le_bytes());
        put(32, &self.frame_bytes_max.to_le_bytes());
        put(40, &self.archive_bytes.to_le_bytes());
        put(48, &summary[..32]);
        put(80, &self.chunks.to_le_bytes());
        put(88, &self.references.to_le_bytes());
        put(96, &summary[32..]);
        put(128, &self.root.offset.to_le_bytes());
        put(136, &self.root.stored_bytes.to_le_bytes());
        put(140, &self.root.plain_bytes.to_le_bytes());
        put(144, &self.root.private_stored_bytes.to_le_bytes());
        put(148, &self.root.private_plain_bytes.to_le_bytes());
        put(152, &self.root.digest);
        put(184, &self.keys.offset.to_le_bytes());
        put(192, &self.keys.bytes.to_le_bytes());
        put(196, &self.keys.digest);
        let check = digest::<16>(&bytes[..COVERED_BYTES]);
        bytes[COVERED_BYTES..].copy_from_slice(&check);
        bytes
    }
}
