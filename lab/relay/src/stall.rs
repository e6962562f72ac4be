//! Which segments stall: a pure function of the seed and the segment's place.
//!
//! TCP under the applications never loses a byte, so loss shows as time: a retransmission holds
//! back a connection's direction while others go on. The relay draws for each segment whether it
//! stalls. The draw depends on the seed, the connection, the direction and the segment's number
//! and on nothing else, so that a run stalls the same segments however its timing falls out.

use crate::Direction;

/// Whether segment number `segment` of a direction of a connection stalls, at `probability` (0
/// to 1) a segment. Connections are numbered from 0 in the order in which the relay accepted
/// them, segments from 0 at the start of each direction.
pub fn stalls(
    seed: u64,
    connection: u64,
    direction: Direction,
    segment: u64,
    probability: f64,
) -> bool {
    let direction = match direction {
        Direction::Up => 0,
        Direction::Down => 1,
    };
    let draw = [connection, direction, segment]
        .iter()
        .fold(splitmix64(seed), |state, part| splitmix64(state ^ part));
    // The top 53 bits are all that an f64 can hold: a uniform number in [0, 1).
    ((draw >> 11) as f64) / ((1_u64 << 53) as f64) < probability
}

/// One step of Steele, Lea and Flood's SplitMix64, as a mixer: written out here so that a seed
/// means the same stalls whatever a library's generator becomes.
pub(crate) fn splitmix64(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalled_segments(seed: u64, connection: u64, direction: Direction) -> Vec<u64> {
        (0..100_000)
            .filter(|n| stalls(seed, connection, direction, *n, 0.01))
            .collect()
    }

    #[test]
    fn the_mixer_is_the_published_one() {
        // First outputs of the reference implementation for the states 0 and 1234567.
        assert_eq!(splitmix64(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(splitmix64(1_234_567), 6_457_827_717_110_365_317);
    }

    #[test]
    fn the_share_is_the_probability() {
        let stalled = stalled_segments(7, 0, Direction::Up).len();
        assert!((900..1100).contains(&stalled), "{stalled}");
        assert!((0..1000).all(|n| stalls(7, 0, Direction::Up, n, 1.0)));
        assert!((0..1000).all(|n| !stalls(7, 0, Direction::Up, n, 0.0)));
    }

    #[test]
    fn every_argument_counts() {
        let stalled = stalled_segments(7, 0, Direction::Up);
        assert_eq!(stalled, stalled_segments(7, 0, Direction::Up));
        assert_ne!(stalled, stalled_segments(8, 0, Direction::Up));
        assert_ne!(stalled, stalled_segments(7, 1, Direction::Up));
        assert_ne!(stalled, stalled_segments(7, 0, Direction::Down));
    }
}
