//! The version of nft.

use super::nft;

/// The oldest that loads the table: see `docs/interception.md`.
const MIN: [u32; 2] = [1, 0];

/// What nft prints of its version, if that is too old.
pub(super) fn too_old() -> Option<String> {
    let printed = nft(&["--version"], "").ok()?;
    let text = printed.lines().next()?.trim();
    (is_enough(text) == Some(false)).then(|| text.to_owned())
}

/// Whether the version in `nftables v1.0.6 (Lester Gooch #5)` loads the table; none if there is none.
pub(crate) fn is_enough(text: &str) -> Option<bool> {
    let number = text.split(' ').find_map(|word| word.strip_prefix('v'))?;
    Some(numbers(number)? >= MIN)
}

/// The first two numbers of a version.
pub(crate) fn numbers(text: &str) -> Option<[u32; 2]> {
    let mut numbers = text.trim().split(|char: char| !char.is_ascii_digit());
    Some([numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_print() {
        assert_eq!(is_enough("nftables v1.0.6 (Lester Gooch #5)"), Some(true));
        assert_eq!(is_enough("nftables v0.9.8 (E.D.S.)"), Some(false));
        assert_eq!(numbers("6.18.44-fc-v595\n"), Some([6, 18]));
        assert_eq!(numbers("5.4-rc1"), Some([5, 4]));
        for text in [
            "",
            "nftables",
            "nftables v",
            "nftables v99999999999.1",
            "v1",
            "\u{0}v1.é",
        ] {
            assert_eq!(is_enough(text), None, "{text}");
        }
    }
}
