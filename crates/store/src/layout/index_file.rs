//! The index file of a segment: a header, then blocks of 64 records and a trailer.
//!
//! Chunks lie one after the other, so a record holds no offset: lengths add up. A block's trailer
//! says where its chunks end, so that a damaged block harms no other. The last block of a segment
//! that is still written has no trailer; sealing it adds one after however many records it has.

use refrain_codec::chunk::hash::ChunkDigest;

use super::{CHUNK_BYTES_MAX, FORMAT_VERSION, REALMS_MAX, take};
use crate::{Realm, key::check};

pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const RECORD_BYTES: usize = 35;
pub(crate) const BLOCK_RECORDS: usize = 64;
pub(crate) const TRAILER_BYTES: usize = 12;
pub(crate) const BLOCK_BYTES: usize = BLOCK_RECORDS * RECORD_BYTES + TRAILER_BYTES;

/// Where the mark lies in the header.
pub(crate) const MARK_AT: u64 = 32;
pub(crate) const MARK_BYTES: usize = 8;

const MAGIC: [u8; 8] = *b"rfnindex";

/// Bytes of an index file of so many records, when it is sealed.
pub(crate) fn bytes_of(records: u32) -> u64 {
    let blocks = u64::from(records).div_ceil(BLOCK_RECORDS as u64);
    HEADER_BYTES as u64 + u64::from(records) * RECORD_BYTES as u64 + blocks * TRAILER_BYTES as u64
}

/// Where a record lies, or will.
pub(crate) fn position_of(record: u32) -> u64 {
    let (block, line) = (
        record as usize / BLOCK_RECORDS,
        record as usize % BLOCK_RECORDS,
    );
    (HEADER_BYTES + line * RECORD_BYTES) as u64 + block as u64 * BLOCK_BYTES as u64
}

/// What an index file begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) segment: u32,
    /// Seconds since 1970.
    pub(crate) created_s: u64,
    /// Records before this one were synced, and their chunks before them.
    pub(crate) mark: u32,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.created_s.to_le_bytes());
        let check = check(&[&bytes[..24]]);
        bytes[24..28].copy_from_slice(&check.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.encode_mark());
        bytes
    }

    /// The part that is written again at each sync.
    pub(crate) fn encode_mark(&self) -> [u8; MARK_BYTES] {
        let mark = self.mark.to_le_bytes();
        let check = check(&[&self.segment.to_le_bytes(), &mark]).to_le_bytes();
        let mut bytes = [0; MARK_BYTES];
        bytes[..4].copy_from_slice(&mark);
        bytes[4..].copy_from_slice(&check);
        bytes
    }

    /// A mark that does not parse is 0: then all is verified.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..24)?;
        let magic: [u8; 8] = take(&mut bytes)?;
        let version = u32::from_le_bytes(take(&mut bytes)?);
        let mut header = Self {
            segment: u32::from_le_bytes(take(&mut bytes)?),
            created_s: u64::from_le_bytes(take(&mut bytes)?),
            mark: 0,
        };
        let found = u32::from_le_bytes(take(&mut bytes)?);
        let [_, _, _, _]: [u8; 4] = take(&mut bytes)?;
        let mark: [u8; MARK_BYTES] = take(&mut bytes)?;
        let with_mark = Self {
            mark: u32::from_le_bytes([mark[0], mark[1], mark[2], mark[3]]),
            ..header
        };
        if with_mark.encode_mark() == mark {
            header = with_mark;
        }
        (magic == MAGIC && version == FORMAT_VERSION && found == check(&[head])).then_some(header)
    }
}

/// A record: of a chunk, or of a realm that chunks and recipes after it name by its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Chunk {
        digest: ChunkDigest,
        /// 1 to [`CHUNK_BYTES_MAX`]
        bytes: u32,
        realm_slot: u8,
    },
    Realm {
        realm: Realm,
        slot: u8,
    },
}

impl Record {
    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        match self {
            Self::Chunk {
                digest,
                bytes,
                realm_slot,
            } => {
                debug_assert!((1..=CHUNK_BYTES_MAX).contains(&(*bytes as usize)));
                debug_assert!(usize::from(*realm_slot) < REALMS_MAX);
                record[..32].copy_from_slice(&digest.0);
                record[32..34].copy_from_slice(&(bytes - 1).to_le_bytes()[..2]);
                record[34] = realm_slot + 1;
            }
            Self::Realm { realm, slot } => {
                debug_assert!(usize::from(*slot) < REALMS_MAX);
                record[..16].copy_from_slice(&realm.0);
                record[16..32].copy_from_slice(&proof_of(*realm));
                record[32] = *slot;
            }
        }
        record
    }

    pub(crate) fn parse(record: &[u8; RECORD_BYTES]) -> Option<Self> {
        let [.., low, high, slot_and_one] = *record;
        let mut rest = &record[..];
        if let Some(realm_slot) = slot_and_one.checked_sub(1) {
            return Some(Self::Chunk {
                digest: ChunkDigest(take(&mut rest)?),
                bytes: u32::from(u16::from_le_bytes([low, high])) + 1,
                realm_slot,
            });
        }
        let realm = Realm(take(&mut rest)?);
        let proof: [u8; 16] = take(&mut rest)?;
        let is_one = proof == proof_of(realm) && usize::from(low) < REALMS_MAX && high == 0;
        is_one.then_some(Self::Realm { realm, slot: low })
    }

    /// Bytes of its chunk; a realm has none.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        match self {
            Self::Chunk { bytes, .. } => u64::from(*bytes),
            Self::Realm { .. } => 0,
        }
    }
}

/// By which a realm is told from zeros that a power cut left, before a trailer covers it.
fn proof_of(realm: Realm) -> [u8; 16] {
    let mut proof = [0; 16];
    proof.copy_from_slice(&blake3::hash(&realm.0).as_bytes()[..16]);
    proof
}

/// The trailer of the block `block`, whose chunks end at `end` of the chunk file.
pub(crate) fn encode_trailer(
    segment: u32,
    block: u32,
    records: &[u8],
    end: u64,
) -> [u8; TRAILER_BYTES] {
    let end = end.to_le_bytes();
    let place = [segment.to_le_bytes(), block.to_le_bytes()];
    let check = check(&[place.as_flattened(), records, &end]);
    let mut trailer = [0; TRAILER_BYTES];
    trailer[..8].copy_from_slice(&end);
    trailer[8..].copy_from_slice(&check.to_le_bytes());
    trailer
}

/// Where the chunks of a block end; nothing if its trailer does not fit to its records.
pub(crate) fn parse_trailer(
    segment: u32,
    block: u32,
    records: &[u8],
    trailer: &[u8],
) -> Option<u64> {
    let mut rest = trailer;
    let end = u64::from_le_bytes(take(&mut rest)?);
    (encode_trailer(segment, block, records, end) == trailer).then_some(end)
}

/// The records of a block, up to the first that is none.
pub(crate) fn parse_records(bytes: &[u8]) -> impl Iterator<Item = Record> {
    let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
    records.iter().map_while(Record::parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = Record> {
        prop_oneof![
            (any::<[u8; 32]>(), 1_u32..=1 << 16, 0_u8..255).prop_map(
                |(digest, bytes, realm_slot)| Record::Chunk {
                    digest: ChunkDigest(digest),
                    bytes,
                    realm_slot
                }
            ),
            (any::<[u8; 16]>(), 0_u8..255).prop_map(|(realm, slot)| Record::Realm {
                realm: Realm(realm),
                slot
            }),
        ]
    }

    proptest! {
        #[test]
        fn records_are_read_back(record in record()) {
            prop_assert_eq!(Record::parse(&record.encode()), Some(record));
        }

        #[test]
        fn any_bytes_are_a_record_or_none(bytes: [u8; RECORD_BYTES]) {
            if let Some(record) = Record::parse(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }

        #[test]
        fn headers_are_read_back_and_no_flipped_bit_passes(
            segment: u32, created_s: u64, mark: u32, bit in 0..28 * 8_usize,
        ) {
            let header = Header { segment, created_s, mark };
            let mut bytes = header.encode();
            prop_assert_eq!(Header::parse(&bytes), Some(header));
            bytes[36] ^= 1;
            prop_assert_eq!(Header::parse(&bytes), Some(Header { mark: 0, ..header }));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::parse(&bytes), None);
        }

        #[test]
        fn no_block_passes_with_a_flipped_bit(
            records in prop::collection::vec(record(), 1..=64), end: u64, bit: prop::sample::Index,
        ) {
            let mut bytes: Vec<u8> = records.iter().flat_map(Record::encode).collect();
            let trailer = encode_trailer(3, 5, &bytes, end);
            prop_assert_eq!(parse_trailer(3, 5, &bytes, &trailer), Some(end));
            prop_assert_eq!(parse_trailer(3, 6, &bytes, &trailer), None);
            prop_assert_eq!(parse_trailer(4, 5, &bytes, &trailer), None);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(parse_trailer(3, 5, &bytes, &trailer), None);
        }
    }

    #[test]
    fn zeros_are_no_record() {
        assert_eq!(Record::parse(&[0; RECORD_BYTES]), None);
    }

    #[test]
    fn no_slot_is_beyond_the_last() {
        let realm = Realm([1; 16]);
        let mut bytes = Record::Realm { realm, slot: 254 }.encode();
        assert!(Record::parse(&bytes).is_some());
        bytes[32] = 255;
        assert_eq!(Record::parse(&bytes), None);
        [bytes[32], bytes[33]] = [0, 1];
        assert_eq!(Record::parse(&bytes), None);
    }

    #[test]
    fn positions_leave_room_for_trailers() {
        assert_eq!(position_of(0), 64);
        assert_eq!(position_of(63), 64 + 63 * 35);
        assert_eq!(position_of(64), 64 + 64 * 35 + 12);
        assert_eq!(bytes_of(64), position_of(64));
        assert_eq!(bytes_of(65), position_of(65) + 12);
        assert_eq!(bytes_of(0), 64);
    }
}
