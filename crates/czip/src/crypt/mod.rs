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
//! - Without the feature `encrypt` there are no [`Recipients`] and no [`Identities`]: no archive is encrypted,
//!   and none that is can be opened.
//!
//! ```
//! use refrain_czip::crypt::{
//!     ArchiveKey, GroupKeys, Identities, Place, PrivateKey, Recipients, open_frame, unwrap, wrap,
//! };
//!
//! // The writer has public keys and perhaps a group secret.
//! let recipients = Recipients::parse(&["age18x9npz5grrssnqcn3q7jczj74m57w0km58xhh6f9xg8znvqad9ys99mrhc"])?;
//! let archive_key = ArchiveKey::generate()?;
//! let keys_section = wrap(&archive_key, &recipients)?;
//! let frame = GroupKeys::new(None).seal_frame(b"\0plain".to_vec(), false);
//! let place = Place::Keys { stream: 0, row: 0 };
//! let key_part = PrivateKey::new(&archive_key).seal_part(place, frame.key.0.to_vec());
//!
//! // The reader has a private key.
//! let mut identities = Identities::new();
//! identities.add("key.txt", b"AGE-SECRET-KEY-13FRM9VGUH6XJ3AYLZ5VZDFH576C77QH98GK5PFVGUNNX5QYC0SQSLEAYVE")?;
//! let archive_key = unwrap(&keys_section, &identities, &mut |_file| None)?;
//! let frame_keys = PrivateKey::new(&archive_key).open_part(place, key_part)?;
//! assert_eq!(frame_keys, frame.key.0);
//! let opened = open_frame(Some(&GroupKeys::new(None)), &frame.key, frame.stored, false)?;
//! assert_eq!(opened, b"\0plain");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Deviation: the paper encrypts with the hash of the plain chunk. Here a frame's key depends on the group
//! secret too, and is the hash of what is sealed, so that no key seals two things.

mod frames;
#[cfg(feature = "encrypt")]
mod identities;
#[cfg(not(feature = "encrypt"))]
mod keyless;
#[cfg(feature = "encrypt")]
mod keys;
mod keys_section;
mod padding;
mod parts;
#[cfg(feature = "encrypt")]
mod recipients;
mod secrets;
#[cfg(feature = "encrypt")]
mod ssh_numbers;

pub use frames::{FrameError, FrameKey, GroupKeys, SealedFrame, open_frame, stored_frame_bytes};
#[cfg(feature = "encrypt")]
pub use identities::{Identities, IdentityError, IdentityProblem};
#[cfg(not(feature = "encrypt"))]
pub use keyless::{Identities, Recipients, unwrap, wrap};
#[cfg(feature = "encrypt")]
pub use keys::{unwrap, wrap};
pub use keys_section::{UnwrapError, WrapError, recipient_kinds};
pub use padding::padded_bytes;
pub use parts::{Place, PrivateKey, SealBroken};
#[cfg(feature = "encrypt")]
pub use recipients::{RECIPIENTS_MAX, RecipientError, RecipientProblem, Recipients};
pub use secrets::{ArchiveKey, GroupSecret, GroupSecretError, NoRandomness};

/// What a seal adds to what it seals: the tag of AES-256-GCM-SIV.
pub(crate) const SEAL_BYTES: usize = 16;

/// Shows no more of a secret than that it is one.
macro_rules! conceal {
    ($($Secret:ident),*) => {
        $(impl std::fmt::Debug for $Secret {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($Secret), "(..)"))
            }
        })*
    };
}

conceal!(ArchiveKey, FrameKey, GroupKeys, GroupSecret, PrivateKey);
