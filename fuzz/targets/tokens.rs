//! Arbitrary tokens and literals, to a decoder and to one by the book: both take them or both
//! refuse them, and what they take is equal.
//!
//! Input: the block's length (two bytes), the length of its tokens (two bytes), the tokens;
//! the rest are literals. The log holds the numbers from 0 on, two bytes each, so that every
//! place in it is another one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_codec::{
    Block, Decoder, LogPosition, SourceCursor, check,
    geometry::{CACHE_BYTES_MIN, CacheGeometry},
    token::{REGION_BYTES_MIN, take_varint, unzigzag},
};

const KNOWN_BYTES: usize = 4096;

fuzz_target!(|input: &[u8]| {
    let Some((&[len_low, len_high, tokens_low, tokens_high], rest)) = input.split_first_chunk()
    else {
        return;
    };
    let len = usize::from(u16::from_le_bytes([len_low, len_high]));
    let tokens = usize::from(u16::from_le_bytes([tokens_low, tokens_high]));
    let (tokens, literals) = rest.split_at(tokens.min(rest.len()));

    let geometry = CacheGeometry::new(CACHE_BYTES_MIN).expect("a valid size");
    let known: Vec<u8> = (0..KNOWN_BYTES as u16 / 2)
        .flat_map(u16::to_le_bytes)
        .collect();
    let mut decoder = Decoder::new(geometry);
    let first = Block {
        number: 0,
        at: LogPosition(0),
        len: known.len(),
        tokens: &[],
        literals: &known,
        check: check(0, &known),
    };
    decoder
        .decode(first, &mut SourceCursor::default(), &mut Vec::new())
        .expect("literals alone");
    let allocated = decoder.allocated_bytes();

    let expected = decode_by_the_book(&known, len, tokens, literals);
    let block = Block {
        number: 1,
        at: LogPosition(known.len() as u64),
        len,
        tokens,
        literals,
        check: expected.as_ref().map_or(0, |plain| check(1, plain)),
    };
    let mut plain = Vec::new();
    let decoded = decoder.decode(block, &mut SourceCursor::default(), &mut plain);
    assert_eq!(decoded.is_ok(), expected.is_some(), "{decoded:?}");
    assert_eq!(plain, expected.unwrap_or_default());
    // The allocator's least is eight.
    assert!(plain.capacity() <= len.max(8));
    assert_eq!(decoder.allocated_bytes(), allocated);
});

/// The format as `refrain_codec::token` documents it; `None` for what must be refused. The
/// cache is so large that nothing has left it.
fn decode_by_the_book(
    known: &[u8],
    len: usize,
    mut tokens: &[u8],
    mut literals: &[u8],
) -> Option<Vec<u8>> {
    let mut log = known.to_vec();
    let mut expected: Option<usize> = None;
    while !tokens.is_empty() {
        let run = usize::try_from(take_varint(&mut tokens)?).ok()?;
        let region = usize::try_from(take_varint(&mut tokens)?).ok()?;
        let region = region.checked_add(REGION_BYTES_MIN)?;
        let step = unzigzag(take_varint(&mut tokens)?);
        log.extend_from_slice(literals.split_off(..run)?);
        let from = match expected {
            Some(expected) => expected + run,
            None => known.len(),
        };
        let source = from.checked_add_signed(isize::try_from(step).ok()?)?;
        let source = source..source.checked_add(region)?;
        if region > (known.len() + len).checked_sub(log.len())? {
            return None;
        }
        expected = Some(source.end);
        log.get(source.clone())?;
        log.extend_from_within(source);
    }
    log.extend_from_slice(literals);
    let plain = log.split_off(known.len());
    (plain.len() == len).then_some(plain)
}
