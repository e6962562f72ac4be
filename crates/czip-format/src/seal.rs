//! Bytes sealed with AES-256-GCM-SIV (RFC 8452): encrypted, and followed by a tag that vouches for them and for what is
//! bound to them.
//!
//! The cipher is generic code, which is built where it is used: here with optimization for tests too.

use aes_gcm_siv::{Aes256GcmSiv, KeyInit, aead::AeadInOut};

/// Seals `bytes` in their memory.
///
/// # Panics
/// If they are 64 GiB or longer. Parts, roots and frames are far shorter.
pub fn seal(key: &[u8; 32], nonce: [u8; 12], bound: &[u8], bytes: &mut Vec<u8>) {
    cipher(key)
        .encrypt_in_place(&nonce.into(), bound, bytes)
        .expect("less than 64 GiB");
}

/// Opens sealed `bytes`, in their memory. They are unusable if this says `false`: they were not sealed so.
#[must_use]
pub fn open(key: &[u8; 32], nonce: [u8; 12], bound: &[u8], bytes: &mut Vec<u8>) -> bool {
    let opened = cipher(key).decrypt_in_place(&nonce.into(), bound, bytes);
    opened.is_ok()
}

fn cipher(key: &[u8; 32]) -> Aes256GcmSiv {
    Aes256GcmSiv::new(&(*key).into())
}
