//! Content in any amount: other bytes each time a source is repeated, and noise.

use std::io::{self, Write};

const PIECE_BYTES: usize = 1 << 20;

/// Writes `bytes` bytes: `source` again and again, each time with all its bytes changed in another
/// way. What could not be compressed still cannot, and no chunk comes twice.
pub(super) fn altered(source: &[u8], bytes: u64, out: &mut dyn Write) -> io::Result<()> {
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(PIECE_BYTES as u64);
        out.write_all(&altered_range(source, at, len))?;
        at += len;
    }
    Ok(())
}

/// `bytes` of what [`altered`] writes, from `start` on.
pub(super) fn altered_range(source: &[u8], start: u64, bytes: u64) -> Vec<u8> {
    let mut range = Vec::with_capacity(bytes as usize);
    while (range.len() as u64) < bytes {
        let at = start + range.len() as u64;
        let (turn, offset) = (
            at / source.len() as u64,
            (at % source.len() as u64) as usize,
        );
        let len = (source.len() - offset).min(bytes as usize - range.len());
        // Each turn has another byte; it never is 0, so that no container is found in any.
        let change = (turn % 255) as u8 + 1;
        range.extend(
            source[offset..offset + len]
                .iter()
                .map(|byte| byte ^ change),
        );
    }
    range
}

/// Writes `bytes` bytes of noise.
pub(super) fn noise(bytes: u64, out: &mut dyn Write) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let len = left.min(PIECE_BYTES as u64);
        random.fill(&mut piece[..len as usize]);
        out.write_all(&piece[..len as usize])?;
        left -= len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_is_what_the_whole_has_there() {
        let source: Vec<u8> = (0..100).collect();
        let mut whole = Vec::new();
        altered(&source, 1000, &mut whole).expect("memory");
        assert_eq!(whole.len(), 1000);
        for start in [0, 50, 99, 100, 730] {
            let range = altered_range(&source, start, 150);
            assert_eq!(range, whole[start as usize..][..150]);
        }
    }

    #[test]
    fn no_turn_is_like_another() {
        let source = vec![7; 10];
        let turns: Vec<_> = (0..20)
            .map(|turn| altered_range(&source, turn * 10, 10))
            .collect();
        for (at, turn) in turns.iter().enumerate() {
            assert!(!turns[..at].contains(turn));
        }
    }

    #[test]
    fn noise_has_the_length_that_was_asked_for() {
        let mut out = Vec::new();
        noise(PIECE_BYTES as u64 + 3, &mut out).expect("memory");
        assert_eq!(out.len(), PIECE_BYTES + 3);
    }
}
