//! Frames and names of a group: who has the same chunk and the same group secret has the same name, the
//! same key and the same stored bytes, in whatever archive.

use refrain_czip_format::seal;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{GroupSecret, SEAL_BYTES, padding};

/// Of all frames: each has a key of its own.
const NONCE: [u8; 12] = [0; 12];

/// A frame's key. It is a hash of what it seals, so it never seals another text, and its nonce may be
/// the same for all.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct FrameKey(pub [u8; 32]);

/// A frame as it is stored, and the key that opens it.
#[derive(Debug)]
pub struct SealedFrame {
    /// For the key part.
    pub key: FrameKey,
    /// For the archive and for caches.
    pub stored: Vec<u8>,
}

/// Why a frame does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Damaged, cut, or sealed with another key.
    #[error("the frame cannot be decrypted with its key")]
    Broken,
    /// The key opens it, and was not made from it.
    #[error("the frame's key is not derived from its content: wrong group secret, or forged frame")]
    KeyOfAnother,
    /// What is behind the text is no padding.
    #[error("the frame's padding is invalid")]
    Padding,
}

/// What a group secret, or none, makes of chunks: names and frame keys.
pub struct GroupKeys {
    name: Zeroizing<[u8; 32]>,
    frame: Zeroizing<[u8; 32]>,
}

impl GroupKeys {
    /// The keys of this group. Those of `None` are known to everybody.
    pub fn new(secret: Option<&GroupSecret>) -> Self {
        let secret: &[u8] = secret.map_or(&[], |secret| secret.as_bytes());
        Self {
            name: Zeroizing::new(blake3::derive_key("refrain czip v1 name", secret)),
            frame: Zeroizing::new(blake3::derive_key("refrain czip v1 frame", secret)),
        }
    }

    /// What a chunk is called.
    pub fn name(&self, plain: &[u8]) -> [u8; 20] {
        let digest = blake3::keyed_hash(&self.name, plain);
        *digest.as_bytes().first_chunk().expect("32 bytes have 20")
    }

    /// Seals a frame: method byte and payload, as they would be stored without encryption. Works in the
    /// memory of `frame`.
    pub fn seal_frame(&self, frame: Vec<u8>, padded: bool) -> SealedFrame {
        let mut text = frame;
        text.reserve_exact(stored_frame_bytes(text.len(), padded) - text.len());
        if padded {
            padding::pad(&mut text);
        }
        let key = self.key_of(&text);
        seal::seal(&key.0, NONCE, &[], &mut text);
        SealedFrame { key, stored: text }
    }

    fn key_of(&self, text: &[u8]) -> FrameKey {
        FrameKey(*blake3::keyed_hash(&self.frame, text).as_bytes())
    }
}

/// Opens a stored frame: gives method byte and payload. Works in the memory of `stored`.
///
/// `group` is `None` for who has no secret of an archive that has one. He must have checked the digest of
/// what is stored: who knows what is in a frame knows its key, and can seal something else with it.
///
/// # Errors
///
/// The frame is not what was sealed, or not in this group, or not `padded` as it should be.
pub fn open_frame(
    group: Option<&GroupKeys>,
    key: &FrameKey,
    stored: Vec<u8>,
    padded: bool,
) -> Result<Vec<u8>, FrameError> {
    let mut text = stored;
    if !seal::open(&key.0, NONCE, &[], &mut text) {
        return Err(FrameError::Broken);
    }
    if group.is_some_and(|group| group.key_of(&text) != *key) {
        return Err(FrameError::KeyOfAnother);
    }
    if padded && !padding::unpad(&mut text) {
        return Err(FrameError::Padding);
    }
    Ok(text)
}

/// How many bytes a frame of `bytes` takes when it is sealed.
pub fn stored_frame_bytes(bytes: usize, padded: bool) -> usize {
    let text = if padded {
        padding::padded_bytes(bytes + 1)
    } else {
        bytes
    };
    text + SEAL_BYTES
}
