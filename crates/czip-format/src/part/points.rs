//! Parts of the weave index: where the weave may be entered.

use crate::{FormatError, Input, Portion, Violation, kind::PartKind, limits, put_varint};

/// Restart points as a part: where each begins, in plain content, weave, content, fields and times,
/// and where the last ends.
pub fn encode_points(points: &[[u64; 5]], end: &[u64; 5]) -> Vec<u8> {
    let mut out = Vec::new();
    for of in 0..5 {
        for (point, next) in points.iter().zip(points.iter().skip(1).chain([end])) {
            put_varint(&mut out, next[of] - point[of]);
        }
    }
    out
}

/// A weave index part of `count` points, which cover what is between `start` and `end`.
pub fn parse_points(
    bytes: &[u8],
    count: usize,
    start: &[u64; 5],
    end: &[u64; 5],
) -> Result<Vec<[u64; 5]>, FormatError> {
    let mut input = Input::new(Portion::Part(PartKind::WeaveIndex), bytes);
    let mut points = vec![[0; 5]; count];
    for of in 0..5 {
        let mut at = start[of];
        for point in &mut points {
            point[of] = at;
            let bytes = input.varint()?;
            let limit = limits::STRETCH_BYTES_MAX;
            FormatError::check_limit("the distance between restart points", bytes, limit)?;
            at = at.saturating_add(bytes);
        }
        if at != end[of] {
            return Err(FormatError::Invalid(Violation::RestartPoints));
        }
    }
    input.finish()?;
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::tests::{assert_refused, numbers};

    #[test]
    fn restart_points_that_cannot_be_are_refused() {
        let parse = |part: &[u64], end: &[u64; 5]| parse_points(&numbers(part), 1, &[3; 5], end);
        let points = parse(&[1; 5], &[4; 5]).expect("one point");
        assert_eq!(points, [[3; 5]]);
        let stretch = limits::STRETCH_BYTES_MAX;
        parse(&[stretch; 5], &[3 + stretch; 5]).expect("as long as may be");
        assert_refused(parse(&[1; 5], &[5; 5]), "do not cover");
        assert_refused(
            parse(&[stretch + 1; 5], &[4 + stretch; 5]),
            "between restart points",
        );
        assert_refused(
            parse(&[u64::MAX; 5], &[u64::MAX; 5]),
            "between restart points",
        );
    }
}
