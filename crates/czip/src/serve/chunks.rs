//! Chunks by name: requests for them, and what is sent (CZIP, section 4.3). The chapter "Over HTTP" of
//! `docs/czip-format.md` says the bytes.

use std::sync::Arc;

use super::{
    names::Located,
    opened::Opened,
    plan::{Plan, Slice, Unit},
};
use crate::format::ChunkName;

/// Names in the path's query at most.
pub(super) const QUERY_NAMES_MAX: usize = 64;
/// Names in a request's body at most.
pub(super) const BODY_NAMES_MAX: usize = 4096;
/// Bytes of the longest body.
pub(super) const BODY_BYTES_MAX: usize = BODY_NAMES_MAX * ChunkName::BYTES;

/// A name in hexadecimal.
pub(super) fn parse_name(text: &str) -> Option<ChunkName> {
    let mut name = [0; ChunkName::BYTES];
    if text.len() != 2 * name.len() {
        return None;
    }
    for (byte, digits) in name.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(digits[0])? << 4 | digit(digits[1])?) as u8;
    }
    Some(ChunkName(name))
}

/// The names in a query: `names=` and then separated by commas.
pub(super) fn parse_query(query: &str) -> Option<Vec<ChunkName>> {
    let names = query.strip_prefix("names=")?;
    if names.len() > QUERY_NAMES_MAX * (2 * ChunkName::BYTES + 1) {
        return None;
    }
    names.split(',').map(parse_name).collect()
}

/// The names in a body: 20 bytes each.
pub(super) fn parse_body(body: &[u8]) -> Option<Vec<ChunkName>> {
    let (names, rest) = body.as_chunks();
    let is_list = rest.is_empty() && (1..=BODY_NAMES_MAX).contains(&names.len());
    is_list.then(|| names.iter().copied().map(ChunkName).collect())
}

/// Frames as stored, one after the other, each with its length before it if there may be several.
pub(super) fn plan(located: Vec<Located>, has_lengths: bool) -> (Plan, Vec<Arc<Opened>>, u64) {
    let mut plan = Plan::default();
    let mut opened = Vec::new();
    let mut literals = Vec::new();
    for located in located {
        let bytes = located
            .as_ref()
            .map_or(0, |(_, unit)| unit.frame.stored_bytes);
        if has_lengths {
            plan.slices.push(Slice::Literal {
                offset: literals.len() as u32,
                bytes: 4,
            });
            literals.extend_from_slice(&bytes.to_le_bytes());
        }
        if let Some((archive, unit)) = located {
            plan.slices.push(Slice::Unit {
                index: plan.units.len() as u32,
                offset: 0,
                bytes,
            });
            plan.units.push(Unit::Frame(unit));
            opened.push(archive);
        }
    }
    plan.literals = literals.into();
    let bytes = plan
        .slices
        .iter()
        .map(|slice| u64::from(slice.bytes()))
        .sum();
    (plan, opened, bytes)
}
