//! The rounds of BLAKE3's compression (its specification, section 2.2), the same for each
//! kind of vector.
//!
//! ```text
//! for each of 7 rounds:
//!     mix the columns of the 4 × 4 state with message words 0 to 7
//!     mix its diagonals with message words 8 to 15
//!     permute the message words
//! ```
//!
//! The permutation is folded into the order in which the words are taken.

/// What a chaining value begins as: the fractions of the square roots of the first 8 primes.
pub(super) const IV: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The words of each column and each diagonal of the state.
pub(super) const COLUMNS: [[usize; 4]; 4] =
    [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
pub(super) const DIAGONALS: [[usize; 4]; 4] =
    [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];

/// Which message word each of the 16 steps takes, round by round.
pub(super) const SCHEDULE: [[usize; 16]; 7] = {
    let permutation = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
    let mut schedule = [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]; 7];
    let mut round = 1;
    while round < 7 {
        let mut word = 0;
        while word < 16 {
            schedule[round][word] = schedule[round - 1][permutation[word]];
            word += 1;
        }
        round += 1;
    }
    schedule
};

/// Mixes four columns, or the four diagonals, with the message words that `x` and `y` count;
/// that they are below 16 is said by a mask, which a compiler understands.
macro_rules! mix {
    ($v:ident, $m:ident, $four:expr, $x:expr, $y:expr) => {
        for ([a, b, _, _], x) in $four.into_iter().zip($x) {
            $v[a] = add(add($v[a], $m[x & 15]), $v[b]);
        }
        for [a, _, _, d] in $four {
            $v[d] = rotate_right::<16>(xor($v[d], $v[a]));
        }
        for [_, _, c, d] in $four {
            $v[c] = add($v[c], $v[d]);
        }
        for [_, b, c, _] in $four {
            $v[b] = rotate_right::<12>(xor($v[b], $v[c]));
        }
        for ([a, b, _, _], y) in $four.into_iter().zip($y) {
            $v[a] = add(add($v[a], $m[y & 15]), $v[b]);
        }
        for [a, _, _, d] in $four {
            $v[d] = rotate_right::<8>(xor($v[d], $v[a]));
        }
        for [_, _, c, d] in $four {
            $v[c] = add($v[c], $v[d]);
        }
        for [_, b, c, _] in $four {
            $v[b] = rotate_right::<7>(xor($v[b], $v[c]));
        }
    };
}
pub(super) use mix;

/// The seven rounds over state `$v` and message `$m`, by the `add`, `xor` and `rotate_right`
/// where it stands. A macro, because no function is generic over what its caller may use.
macro_rules! rounds {
    ($v:ident, $m:ident) => {
        // A schedule that the compiler knew would be written out, all rounds of one vector before
        // those of the next: then each step waits for the one before.
        for word in core::hint::black_box(&$crate::simd::blake3::rounds::SCHEDULE) {
            use $crate::simd::blake3::rounds::{COLUMNS, DIAGONALS, mix};
            let [a, b, c, d, e, f, g, h, i, j, k, l, o, p, q, r] = *word;
            mix!($v, $m, COLUMNS, [a, c, e, g], [b, d, f, h]);
            mix!($v, $m, DIAGONALS, [i, k, o, q], [j, l, p, r]);
        }
    };
}
pub(super) use rounds;
