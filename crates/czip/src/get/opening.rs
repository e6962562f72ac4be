//! The header and the root of an archive on a server: one request, or two.

use super::{GetError, GetOptions};
use crate::{
    format::{FormatError, Portion, header::Header, limits::HEADER_BYTES},
    remote::Remote,
};

/// What is asked for first: the root of most archives is within, and much of the table.
pub(super) const FIRST_BYTES: usize = 64 << 10;
/// The same where the table comes from caches.
pub(super) const FIRST_BYTES_WITH_CACHES: usize = 16 << 10;

/// Bytes of an archive, with their offset.
type Piece = (u64, Vec<u8>);

/// Reads header and root, and what else is needed; `bytes` at first, as many as came when `remote` was
/// opened. Gives the header that counts, and all bytes that came: header, root, and the keys if they are
/// needed are among them.
pub(super) fn open(
    remote: &Remote,
    bytes: usize,
    options: &GetOptions,
) -> Result<(Header, Vec<Piece>), GetError> {
    let first = remote.first().to_vec();
    let no_archive = || GetError::NotAnArchive { url: remote.url() };
    let Some(header) = first.first_chunk::<HEADER_BYTES>() else {
        return Err(no_archive());
    };
    let mut header = match Header::parse_first(header) {
        Err(FormatError::NotAnArchive) => return Err(no_archive()),
        parsed => parsed?,
    };
    let mut pieces = vec![(0, first)];
    if header.is_advisory() {
        let last = remote.tail(bytes)?;
        let footer = last.last_chunk::<HEADER_BYTES>();
        let footer = footer.ok_or(FormatError::Truncated(Portion::Footer))?;
        header = Header::parse_last(footer)?;
        let offset = header.archive_bytes.saturating_sub(last.len() as u64);
        pieces.push((offset, last));
    }
    if let Some(found) = remote.len().filter(|&len| len != header.archive_bytes) {
        let expected = header.archive_bytes;
        return Err(FormatError::Length { expected, found }.into());
    }
    let root = &header.root;
    let root_bytes = u64::from(root.stored_bytes) + u64::from(root.private_stored_bytes);
    let mut needed = vec![(root.offset, root_bytes)];
    // One that is kept as it is needs nothing else.
    if header.encryption.is_some() && !options.keeps_archive {
        if options.keys.is_none() {
            return Err(GetError::Encrypted { url: remote.url() });
        }
        needed.push((header.keys.offset, header.keys.bytes.into()));
    }
    for (begin, length) in needed {
        let end = begin + length;
        let is_here =
            |(offset, bytes): &Piece| *offset <= begin && end <= offset + bytes.len() as u64;
        if !pieces.iter().any(is_here) {
            let mut bytes = vec![0; length as usize];
            remote.read_at(begin, &mut bytes)?;
            pieces.push((begin, bytes));
        }
    }
    Ok((header, pieces))
}
