//! Which requests to make for the ranges that are needed.
//!
//! Ranges enter, in any order; what leaves are the ranges to ask for, in the order of the file, none
//! touching another. A request costs about a round trip: gaps that take no longer to send are asked
//! for along with what lies around them ([`join`]). Long ranges are cut, so that all connections have
//! work ([`split`]).
//!
//! Requests are for single ranges: many servers and caches answer several ranges at once wrongly.

use std::ops::Range;

/// What is in any of `ranges`: sorted, and no two overlap or touch.
///
/// A range that ends where it starts, or before, is left out.
pub fn union(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges.iter().filter(|r| !r.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The fewest bytes that hold all of `ranges`, in at most `requests_max` (but at least one) ranges
/// between which more than `gap_bytes` lie.
///
/// ```
/// use refrain_http_ranges::join;
///
/// let needed = [0..100, 110..200, 5_000..6_000, 9_000..9_001];
/// assert_eq!(join(&needed, 32, 3), [0..200, 5_000..6_000, 9_000..9_001]);
/// assert_eq!(join(&needed, 32, 2), [0..200, 5_000..9_001]);
/// ```
pub fn join(ranges: &[Range<u64>], gap_bytes: u64, requests_max: usize) -> Vec<Range<u64>> {
    let joined = merge(union(ranges), |_, gap| gap <= gap_bytes);
    let surplus = joined.len().saturating_sub(requests_max.max(1));
    if surplus == 0 {
        return joined;
    }
    let mut gaps: Vec<(u64, usize)> = joined
        .windows(2)
        .enumerate()
        .map(|(index, pair)| (pair[1].start - pair[0].end, index))
        .collect();
    gaps.sort_unstable();
    let mut filled = vec![false; gaps.len()];
    for (_, index) in &gaps[..surplus] {
        filled[*index] = true;
    }
    merge(joined, |index, _| filled[index])
}

/// Joins neighbours of which `fills` says so, of the number and the length of the gap between them.
fn merge(ranges: Vec<Range<u64>>, fills: impl Fn(usize, u64) -> bool) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for (number, range) in ranges.into_iter().enumerate() {
        match merged.last_mut() {
            Some(last) if fills(number - 1, range.start - last.end) => last.end = range.end,
            _ => merged.push(range),
        }
    }
    merged
}

/// Cuts each of `joined` into equal pieces of at most `piece_bytes`; or into fewer, larger ones, so
/// that there are at most `pieces_max`. Never joins anything.
pub fn split(joined: &[Range<u64>], piece_bytes: u64, pieces_max: usize) -> Vec<Range<u64>> {
    let longest = joined.iter().map(bytes).max().unwrap_or(0);
    let pieces_of = |piece_bytes: u64| -> u64 {
        let counts = joined
            .iter()
            .map(|range| bytes(range).div_ceil(piece_bytes));
        counts.fold(0, u64::saturating_add)
    };
    let pieces_max = pieces_max.max(joined.len()) as u64;
    // The shortest that keeps the limit: the longest range whole always does.
    let (mut shortest, mut enough) = (piece_bytes.max(1), longest.max(1));
    while shortest < enough {
        let middle = shortest + (enough - shortest) / 2;
        if pieces_of(middle) <= pieces_max {
            enough = middle;
        } else {
            shortest = middle + 1;
        }
    }
    joined
        .iter()
        .flat_map(|range| equal_pieces(range, shortest))
        .collect()
}

fn equal_pieces(range: &Range<u64>, piece_bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let count = bytes(range).div_ceil(piece_bytes).max(1);
    let (each, longer) = (bytes(range) / count, bytes(range) % count);
    let mut start = range.start;
    (0..count).map(move |number| {
        let piece = start..start + each + u64::from(number < longer);
        start = piece.end;
        piece
    })
}

fn bytes(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        vec(
            (0..200u64, 0..30u64).prop_map(|(start, length)| start..start + length),
            0..9,
        )
    }

    fn holds(ranges: &[Range<u64>], byte: u64) -> bool {
        ranges.iter().any(|range| range.contains(&byte))
    }

    fn gaps(joined: &[Range<u64>]) -> Vec<u64> {
        joined
            .windows(2)
            .map(|pair| pair[1].start - pair[0].end)
            .collect()
    }

    fn total(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().map(bytes).sum()
    }

    /// The fewest bytes by which `ranges` can be asked for: all ways to fill gaps are tried.
    fn fewest_bytes(ranges: &[Range<u64>], gap_bytes: u64, requests_max: usize) -> u64 {
        let joined = union(ranges);
        let gaps = gaps(&joined);
        (0..1u32 << gaps.len())
            .filter(|filled| {
                let left = gaps.len() + 1 - filled.count_ones() as usize;
                let short = |(i, gap): (usize, &u64)| *gap > gap_bytes || filled >> i & 1 == 1;
                left <= requests_max.max(1) && gaps.iter().enumerate().all(short)
            })
            .map(|filled| {
                let fill = gaps
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| filled >> i & 1 == 1);
                total(&joined) + fill.map(|(_, gap)| gap).sum::<u64>()
            })
            .min()
            .unwrap_or(0)
    }

    proptest! {
        #[test]
        fn a_union_holds_what_its_ranges_hold(ranges in ranges()) {
            let joined = union(&ranges);
            prop_assert!(gaps(&joined).iter().all(|gap| *gap > 0));
            for byte in 0..240 {
                prop_assert_eq!(holds(&ranges, byte), holds(&joined, byte));
            }
        }

        #[test]
        fn joined_ranges_hold_all_that_is_needed_and_keep_their_bounds(
            ranges in ranges(), gap_bytes in 0..40u64, requests_max in 0..6usize
        ) {
            let joined = join(&ranges, gap_bytes, requests_max);
            prop_assert!(joined.len() <= requests_max.max(1));
            prop_assert!(gaps(&joined).iter().all(|gap| *gap > gap_bytes));
            for byte in 0..240 {
                prop_assert!(holds(&joined, byte) || !holds(&ranges, byte));
            }
        }

        #[test]
        fn nothing_within_the_bounds_asks_for_fewer_bytes(
            ranges in ranges(), gap_bytes in 0..40u64, requests_max in 0..6usize
        ) {
            let joined = join(&ranges, gap_bytes, requests_max);
            prop_assert_eq!(total(&joined), fewest_bytes(&ranges, gap_bytes, requests_max));
        }

        #[test]
        fn pieces_are_joined_ranges_cut_within_their_bounds(
            ranges in ranges(), piece_bytes in 0..50u64, pieces_max in 0..20usize
        ) {
            let joined = join(&ranges, 5, 100);
            let pieces = split(&joined, piece_bytes, pieces_max);
            prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
            prop_assert_eq!(union(&pieces), joined.clone());
            prop_assert_eq!(total(&pieces), total(&joined));
            prop_assert!(pieces.len() <= pieces_max.max(joined.len()));
            // As short as was asked for, or else the limit is what forbids it.
            let longest = pieces.iter().map(bytes).max().unwrap_or(0);
            let shorter: u64 = joined.iter().map(|r| bytes(r).div_ceil((longest.max(1) - 1).max(1))).sum();
            prop_assert!(
                longest <= piece_bytes.max(1) || shorter > pieces_max.max(joined.len()) as u64
            );
        }
    }

    #[test]
    fn ranges_at_the_end_of_numbers_are_joined_too() {
        let ranges = [u64::MAX - 10..u64::MAX, 0..1];
        assert_eq!(join(&ranges, 32, 9), [0..1, u64::MAX - 10..u64::MAX]);
        let all = vec![0..u64::MAX; 1];
        assert_eq!(join(&ranges, 32, 1), all);
        let pieces = split(&all, 1, 3);
        assert_eq!(pieces.len(), 3);
        assert_eq!(union(&pieces), all);
    }
}
