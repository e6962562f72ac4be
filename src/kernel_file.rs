//! Files of the kernel, such as those below `/proc`.

use std::{fs::File, io::Read, path::Path};

/// The most that is read of one: more than any needs here.
const BYTES_MAX: u64 = 16 << 20;

/// The beginning of a file; none if it cannot be read.
pub(crate) fn text_of(path: impl AsRef<Path>) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The capability to connect from the addresses of others, and to mark packets.
pub(crate) const CAP_NET_RAW: u32 = 13;

/// Whether the process of such a file below `/proc` has the capability with this number.
pub(crate) fn has_capability(status: &str, capability: u32) -> Option<bool> {
    let mut lines = status.lines();
    let effective = lines.find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    Some(effective >> capability & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_those_in_effect() {
        let status =
            "Name:\trefrain\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000001000\nCapBnd:\t0\n";
        assert_eq!(has_capability(status, 12), Some(true));
        assert_eq!(has_capability(status, 13), Some(false));
        for status in ["", "CapEff:\tx\n", "CapEff:"] {
            assert_eq!(has_capability(status, 12), None, "{status}");
        }
    }
}
