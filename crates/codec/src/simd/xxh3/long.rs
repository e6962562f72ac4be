//! What the versions with vectors share: all of XXH3-64 for long inputs but the inner loop.

use xxhash_rust::const_xxh3::const_custom_default_secret;

pub(super) const STRIPE_BYTES: usize = 64;
const SECRET_BYTES: usize = 192;
/// Each stripe takes its secret so many bytes after the one before.
pub(super) const SECRET_STEP_BYTES: usize = 8;
pub(super) const STRIPES_A_BLOCK: usize = (SECRET_BYTES - STRIPE_BYTES) / SECRET_STEP_BYTES;
/// Where the secret of the scrambling begins, of the last stripe, and of the merge.
pub(super) const SCRAMBLE_SECRET: usize = SECRET_BYTES - STRIPE_BYTES;
const LAST_SECRET: usize = SECRET_BYTES - STRIPE_BYTES - 7;
const MERGE_SECRET: usize = 11;

pub(super) const PRIME_32_1: u64 = 0x9e37_79b1;
const PRIME_32_2: u64 = 0x85eb_ca77;
const PRIME_32_3: u64 = 0xc2b2_ae3d;
const PRIME_64_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_64_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME_64_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME_64_5: u64 = 0x27d4_eb2f_1656_67c5;

/// XXH3-64 of more than 240 bytes. `accumulate` takes stripes in, the first with the secret's
/// beginning, and scrambles after each block of them.
pub(super) fn xxh3(
    seed: u64,
    input: &[u8],
    accumulate: impl Fn(&mut [u64; 8], &[[u8; STRIPE_BYTES]], &[u8]),
) -> u64 {
    let secret = const_custom_default_secret(seed);
    let mut sums = [
        PRIME_32_3, PRIME_64_1, PRIME_64_2, PRIME_64_3, PRIME_64_4, PRIME_32_2, PRIME_64_5,
        PRIME_32_1,
    ];
    // The last byte belongs to the last stripe, which is taken apart.
    let (stripes, _) = input[..input.len() - 1].as_chunks();
    accumulate(&mut sums, stripes, &secret);
    let last = stripe_at(input, input.len() - STRIPE_BYTES);
    accumulate(
        &mut sums,
        core::slice::from_ref(last),
        &secret[LAST_SECRET..],
    );
    merge(&sums, stripe_at(&secret, MERGE_SECRET), input.len())
}

fn merge(sums: &[u64; 8], secret: &[u8; STRIPE_BYTES], len: usize) -> u64 {
    let secret = words(secret);
    let start = (len as u64).wrapping_mul(PRIME_64_1);
    let merged = (0..8).step_by(2).fold(start, |merged, lane| {
        let (a, b) = (sums[lane] ^ secret[lane], sums[lane + 1] ^ secret[lane + 1]);
        let product = u128::from(a) * u128::from(b);
        merged.wrapping_add(product as u64 ^ (product >> 64) as u64)
    });
    // XXH3's avalanche.
    let mixed = (merged ^ merged >> 37).wrapping_mul(0x1656_6791_9e37_79f9);
    mixed ^ mixed >> 32
}

#[inline]
fn words(bytes: &[u8; STRIPE_BYTES]) -> [u64; 8] {
    let (words, _) = bytes.as_chunks::<8>();
    core::array::from_fn(|lane| u64::from_le_bytes(words[lane]))
}

/// The 64 bytes from `start` on.
#[inline]
pub(super) fn stripe_at(bytes: &[u8], start: usize) -> &[u8; STRIPE_BYTES] {
    bytes[start..].first_chunk().expect("a stripe's length")
}
