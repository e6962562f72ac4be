//! Encryption: what makes an archive readable for its recipients alone, and lets caches share what they
//! cannot read (CZIP, section 3.2; `docs/czip-format.md`, Encryption; `docs/threat-model.md`, Encrypted
//! archives).
//!
//! No I/O: names and contents of key files come in, the bytes of an archive go in and out. Randomness comes
//! from the operating system, for archive keys and age's own.
//!
//! - Two secrets: the [`ArchiveKey`], wrapped for each recipient as an age file ([`wrap`], [`unwrap`]),
//!   and a [`GroupSecret`], which no archive holds.
//! - [`GroupKeys`] name chunks and seal frames, so that equal ones stay equal.
//! - [`PrivateKey`] seals parts of the table and the private root, each in its [`Place`].
//!
//! Deviation: the paper encrypts with the hash of the plain chunk. Here a frame's key depends on the group
//! secret too, and is the hash of what is sealed, so that no key seals two things.

mod age_header;
mod frames;
mod identities;
mod keys;
mod padding;
mod parts;
mod recipients;
mod secrets;

pub use frames::{FrameError, FrameKey, GroupKeys, SealedFrame, open_frame, stored_frame_bytes};
pub use identities::{Identities, IdentityError, IdentityProblem};
pub use keys::{KEYS_BYTES_MAX, UnwrapError, WrapError, unwrap, wrap};
pub use padding::padded_bytes;
pub use parts::{Place, PrivateKey, SealBroken};
pub use recipients::{RECIPIENTS_MAX, RecipientError, RecipientProblem, Recipients};
pub use secrets::{ArchiveKey, GroupSecret, GroupSecretError, NoRandomness};

/// What a seal adds to what it seals: the tag of AES-256-GCM-SIV.
pub const SEAL_BYTES: usize = 16;
