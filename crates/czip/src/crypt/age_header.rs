//! What an age file's header asks of who opens it, before age reads it.
//!
//! age's parser begins anew with each line, so that the time for a header grows with the square of its
//! lines. A scan that allocates nothing but a list of bounded length comes first.

/// Stanzas of a header.
pub(super) const STANZAS_MAX: usize = 256;

/// One stanza's first line.
pub(super) struct Stanza<'a> {
    pub(super) kind: &'a [u8],
    /// For ssh keys what age calls the key: four bytes of its SHA-256, in base64.
    pub(super) first_argument: &'a [u8],
}

/// Why a header is not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScanError {
    NotAge,
    NoEnd,
    Stanzas,
}

/// The stanzas of an age file, in order.
pub(super) fn scan(file: &[u8]) -> Result<Vec<Stanza<'_>>, ScanError> {
    let mut lines = file.split(|&byte| byte == b'\n');
    if lines.next() != Some(b"age-encryption.org/v1") {
        return Err(ScanError::NotAge);
    }
    let mut stanzas = Vec::new();
    for line in lines {
        if line.starts_with(b"---") {
            return Ok(stanzas);
        }
        if let Some(arguments) = line.strip_prefix(b"-> ") {
            if stanzas.len() == STANZAS_MAX {
                return Err(ScanError::Stanzas);
            }
            let mut arguments = arguments.split(|&byte| byte == b' ');
            stanzas.push(Stanza {
                kind: arguments.next().unwrap_or_default(),
                first_argument: arguments.next().unwrap_or_default(),
            });
        }
    }
    Err(ScanError::NoEnd)
}
