//! Private parts of the table and the private root: sealed with a key that the archive key gives, each with
//! a nonce that says its place, so that none opens in the place of another.

use refrain_czip_format::seal;
use zeroize::Zeroizing;

use super::ArchiveKey;
use crate::format::{Stream, part::PartKind};

/// The header's bytes that the private root vouches for: those before the digest of the private root.
const HEADER_BYTES_BOUND: usize = 152;

/// Where a private part belongs: its kind, its stream, its row in the list of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A length part.
    Lengths {
        /// 0 to 4.
        stream: u8,
        /// From 0.
        row: u64,
    },
    /// A reference part.
    References {
        /// 0 to 4.
        stream: u8,
        /// From 0.
        row: u64,
    },
    /// A key part.
    Keys {
        /// 0 to 4.
        stream: u8,
        /// From 0.
        row: u64,
    },
    /// A weave index part.
    WeaveIndex {
        /// From 0.
        row: u64,
    },
}

impl Place {
    /// Where a part of the table belongs; none if it is public.
    pub(crate) fn of(kind: PartKind, stream: Option<Stream>, row: usize) -> Option<Self> {
        let row = row as u64;
        let stream = stream.map_or(0, |stream| stream.index() as u8);
        match kind {
            PartKind::Chunks | PartKind::Frames => None,
            PartKind::Lengths => Some(Self::Lengths { stream, row }),
            PartKind::References => Some(Self::References { stream, row }),
            PartKind::Keys => Some(Self::Keys { stream, row }),
            PartKind::WeaveIndex => Some(Self::WeaveIndex { row }),
        }
    }

    fn nonce(self) -> [u8; 12] {
        match self {
            Self::Lengths { stream, row } => nonce(1, stream, row),
            Self::References { stream, row } => nonce(2, stream, row),
            Self::Keys { stream, row } => nonce(3, stream, row),
            Self::WeaveIndex { row } => nonce(4, 0, row),
        }
    }
}

fn nonce(kind: u8, stream: u8, row: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[0] = kind;
    nonce[1] = stream;
    nonce[4..].copy_from_slice(&row.to_le_bytes());
    nonce
}

/// A part or private root is not what was sealed, or not in its place, or of another archive; a private
/// root also if header or root were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decrypt a sealed part: it was changed, or belongs elsewhere")]
pub struct SealBroken;

/// What seals an archive's private parts.
pub struct PrivateKey(Zeroizing<[u8; 32]>);

impl PrivateKey {
    /// The key that an archive key gives.
    pub fn new(archive: &ArchiveKey) -> Self {
        Self(Zeroizing::new(blake3::derive_key(
            "refrain czip v1 private",
            archive.as_bytes(),
        )))
    }

    /// Seals a part as it would be stored without encryption, in its memory.
    pub fn seal_part(&self, place: Place, part: Vec<u8>) -> Vec<u8> {
        self.seal(place.nonce(), &[], part)
    }

    /// Opens a part, in its memory.
    ///
    /// # Errors
    ///
    /// It is not the one that was sealed for this place.
    pub fn open_part(&self, place: Place, stored: Vec<u8>) -> Result<Vec<u8>, SealBroken> {
        self.open(place.nonce(), &[], stored)
    }

    /// Seals the private root as it would be stored without encryption. It then vouches for the header's
    /// first 152 bytes, which must be final, and for the root as stored.
    pub fn seal_private_root(
        &self,
        header: &[u8; 256],
        root: &[u8],
        private_root: Vec<u8>,
    ) -> Vec<u8> {
        self.seal(nonce(0, 0, 0), &bound(header, root), private_root)
    }

    /// Opens the private root.
    ///
    /// # Errors
    ///
    /// It is not what was sealed with this header and this root.
    pub fn open_private_root(
        &self,
        header: &[u8; 256],
        root: &[u8],
        stored: Vec<u8>,
    ) -> Result<Vec<u8>, SealBroken> {
        self.open(nonce(0, 0, 0), &bound(header, root), stored)
    }

    fn seal(&self, nonce: [u8; 12], bound: &[u8], plain: Vec<u8>) -> Vec<u8> {
        let mut bytes = plain;
        seal::seal(&self.0, nonce, bound, &mut bytes);
        bytes
    }

    fn open(&self, nonce: [u8; 12], bound: &[u8], stored: Vec<u8>) -> Result<Vec<u8>, SealBroken> {
        let mut bytes = stored;
        match seal::open(&self.0, nonce, bound, &mut bytes) {
            true => Ok(bytes),
            false => Err(SealBroken),
        }
    }
}

fn bound(header: &[u8; 256], root: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[..HEADER_BYTES_BOUND]).update(root);
    *hasher.finalize().as_bytes()
}
