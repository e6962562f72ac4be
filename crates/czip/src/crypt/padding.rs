//! Padding that hides all but the rough length of a frame: Padmé (Nikitin et al., "Reducing Metadata
//! Leakage from Encrypted Files and Communication with PURBs", PETS 2019, section 4).

/// The byte that ends what is padded. Zeros follow it.
const END: u8 = 128;

/// The least length that is not below `bytes` and that padded texts may have. At most 12 % more.
///
/// With e the position of the highest bit of `bytes`, counted from 0, that bit is kept, and after it as many
/// bits as e has in binary. The rest is rounded up. `bytes` is that of something in memory, so at most
/// `isize::MAX`.
pub fn padded_bytes(bytes: usize) -> usize {
    if bytes < 2 {
        return bytes;
    }
    let exponent = bytes.ilog2();
    let low_bits = exponent - exponent.ilog2() - 1;
    let mask = (1 << low_bits) - 1;
    (bytes + mask) & !mask
}

/// Ends `text` and fills it up.
pub(super) fn pad(text: &mut Vec<u8>) {
    text.push(END);
    text.resize(padded_bytes(text.len()), 0);
}

/// Takes off what [`pad`] added; `false` if this is not what it makes.
pub(super) fn unpad(text: &mut Vec<u8>) -> bool {
    let padded = text.len();
    let Some(end) = text.iter().rposition(|&byte| byte != 0) else {
        return false;
    };
    if text[end] != END || padded_bytes(end + 1) != padded {
        return false;
    }
    text.truncate(end);
    true
}
