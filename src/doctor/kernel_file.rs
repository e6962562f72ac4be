//! Files of the kernel, such as those below `/proc`.

use std::{fs::File, io::Read, path::Path};

/// The most that is read of one: more than any needs here.
const BYTES_MAX: u64 = 16 << 20;

/// The beginning of a file; none if it cannot be read.
pub(super) fn text_of(path: impl AsRef<Path>) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
