//! The files file of a segment: in which files of others its chunks lie. A header with the realm,
//! then parts of files, in the order of their records. Nearly always a part is a whole file.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{FORMAT_VERSION, take};
use crate::{Realm, key::check};

pub(crate) const HEADER_BYTES: usize = 32;

/// Of a part without its path.
const PART_BYTES: usize = 74;

/// The longest path that systems take.
const PATH_BYTES_MAX: usize = 4096;

/// The most that a part takes.
pub(crate) const PART_BYTES_MAX: usize = PART_BYTES + PATH_BYTES_MAX;

const MAGIC: [u8; 8] = *b"rfnfiles";

/// What a files file begins with.
pub(crate) fn encode_header(segment: u32, realm: Realm) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&segment.to_le_bytes());
    bytes[16..].copy_from_slice(&realm.0);
    bytes
}

/// The realm that a header names, if it is one.
pub(crate) fn parse_header(segment: u32, bytes: &[u8]) -> Option<Realm> {
    let realm = Realm(*bytes.get(16..)?.first_chunk()?);
    (bytes.first_chunk() == Some(&encode_header(segment, realm))).then_some(realm)
}

/// By which a file is known to be as it was: what the system says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileState {
    pub(crate) bytes: u64,
    pub(crate) modified_s: i64,
    pub(crate) modified_ns: u32,
    pub(crate) inode: u64,
    pub(crate) device: u64,
}

/// A part of a file, or all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePart {
    pub(crate) first_record: u32,
    /// Where in the segment's chunks, all files one after the other, the part begins.
    pub(crate) start: u64,
    /// Where in the file.
    pub(crate) offset: u64,
    /// How long it is.
    pub(crate) part_bytes: u64,
    pub(crate) state: FileState,
    /// Absolute.
    pub(crate) path: PathBuf,
}

impl FilePart {
    /// Nothing if the path is longer than systems take.
    pub(crate) fn encode(&self, segment: u32) -> Option<Vec<u8>> {
        let path = self.path.as_os_str().as_bytes();
        let path_bytes = u16::try_from(path.len()).ok();
        let path_bytes = path_bytes.filter(|&bytes| usize::from(bytes) <= PATH_BYTES_MAX)?;
        let mut bytes = vec![0; 4];
        bytes.extend(path_bytes.to_le_bytes());
        bytes.extend(self.first_record.to_le_bytes());
        for number in [self.start, self.offset, self.part_bytes, self.state.bytes] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.state.modified_s.to_le_bytes());
        bytes.extend(self.state.modified_ns.to_le_bytes());
        bytes.extend(self.state.inode.to_le_bytes());
        bytes.extend(self.state.device.to_le_bytes());
        bytes.extend([0; 4]);
        debug_assert_eq!(bytes.len(), PART_BYTES);
        bytes.extend(path);
        let check = check(&[&segment.to_le_bytes(), &bytes[4..]]);
        bytes[..4].copy_from_slice(&check.to_le_bytes());
        Some(bytes)
    }

    /// The part that `bytes` begin with, if it is whole, and its length.
    pub(crate) fn parse(segment: u32, bytes: &[u8]) -> Option<(Self, usize)> {
        let mut rest = bytes;
        let found = u32::from_le_bytes(take(&mut rest)?);
        let path_bytes = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let first_record = u32::from_le_bytes(take(&mut rest)?);
        let mut number = || Some(u64::from_le_bytes(take(&mut rest)?));
        let (start, offset, part_bytes, file_bytes) = (number()?, number()?, number()?, number()?);
        let state = FileState {
            bytes: file_bytes,
            modified_s: i64::from_le_bytes(take(&mut rest)?),
            modified_ns: u32::from_le_bytes(take(&mut rest)?),
            inode: u64::from_le_bytes(take(&mut rest)?),
            device: u64::from_le_bytes(take(&mut rest)?),
        };
        let [_, _, _, _]: [u8; 4] = take(&mut rest)?;
        let path = rest.get(..path_bytes)?;
        let len = PART_BYTES + path_bytes;
        if check(&[&segment.to_le_bytes(), &bytes[4..len]]) != found || path_bytes > PATH_BYTES_MAX
        {
            return None;
        }
        let path = Path::new(OsStr::from_bytes(path)).to_owned();
        let part = Self {
            first_record,
            start,
            offset,
            part_bytes,
            state,
            path,
        };
        Some((part, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_read_back_and_no_flipped_bit_passes(
            (first_record, start, offset, part_bytes) in any::<(u32, u64, u64, u64)>(),
            (bytes, modified_s, modified_ns, inode, device) in any::<(u64, i64, u32, u64, u64)>(),
            path in "/[a-z/]{0,60}", bit: prop::sample::Index,
        ) {
            let state = FileState { bytes, modified_s, modified_ns, inode, device };
            let path = PathBuf::from(path);
            let part = FilePart { first_record, start, offset, part_bytes, state, path };
            let mut encoded = part.encode(7).expect("a short path");
            let len = encoded.len();
            prop_assert_eq!(FilePart::parse(7, &encoded), Some((part, len)));
            prop_assert_eq!(FilePart::parse(8, &encoded), None);
            prop_assert_eq!(FilePart::parse(7, &encoded[..len - 1]), None);
            let bit = bit.index(len * 8);
            encoded[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(FilePart::parse(7, &encoded), None);
        }
    }

    #[test]
    fn headers_name_the_realm() {
        let realm = Realm::named("x");
        let header = encode_header(7, realm);
        assert_eq!(parse_header(7, &header), Some(realm));
        assert_eq!(parse_header(8, &header), None);
        assert_eq!(parse_header(7, &header[..31]), None);
    }
}
