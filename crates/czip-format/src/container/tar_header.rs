//! A tar header as fields and times have it.

use crate::weave::tar::{self, Block, Headers, fields_mask, times_mask};

/// Appends what a header brings against the state before it, and makes it the state. False, and nothing is
/// changed, if a reader would build other bytes.
pub(super) fn write(
    header: &Block,
    state: &mut Headers,
    fields: &mut Vec<u8>,
    times: &mut Vec<u8>,
) -> bool {
    let (Some(name), Some(link_name)) = (text(&header[tar::NAME]), text(&header[tar::LINK_NAME]))
    else {
        return false;
    };
    let Some(seven_digits) = notation(header) else {
        return false;
    };
    let kind = header[tar::TYPE];
    let model = state.model(kind);
    let new = |field: std::ops::Range<usize>| header[field.clone()] != model[field];
    let mut fields_bits = match seven_digits {
        true => fields_mask::SEVEN_DIGITS,
        false => 0,
    };
    let mut times_bits = 0;
    let masks_at = (fields.len() + 1, times.len());
    fields.extend([kind, 0]);
    times.push(0);

    if new(tar::NAME) {
        fields_bits |= fields_mask::NAME;
        let mut name = name;
        if !tar::says_more(kind) {
            let top = top_of(name);
            if top != state.top {
                times_bits |= times_mask::TOP;
                times.extend_from_slice(top);
                times.push(0);
                state.top.clear();
                state.top.extend_from_slice(top);
            }
            name = &name[top.len()..];
        }
        fields.extend_from_slice(name);
        fields.push(0);
    }
    for (bit, field) in tar::COPIED {
        if new(field.clone()) {
            fields_bits |= bit;
            fields.extend_from_slice(&header[field]);
        }
    }
    if new(tar::SIZE) {
        // The text of an extended header is mostly times, and so is its length.
        if matches!(kind, b'x' | b'g') {
            times_bits |= times_mask::SIZE;
            times.extend_from_slice(&header[tar::SIZE]);
        } else {
            fields_bits |= fields_mask::SIZE;
            fields.extend_from_slice(&header[tar::SIZE]);
        }
    }
    if new(tar::LINK_NAME) {
        fields_bits |= fields_mask::LINK_NAME;
        fields.extend_from_slice(link_name);
        fields.push(0);
    }
    if new(tar::REST) {
        fields_bits |= fields_mask::REST;
        let rest = &header[tar::REST];
        let count = rest.len() - rest.iter().rev().take_while(|byte| **byte == 0).count();
        fields.push(count as u8);
        fields.extend_from_slice(&rest[..count]);
    }
    let extended = match tar::says_more(kind) {
        true => None,
        false => state.extended_time,
    };
    let mtime = &header[tar::MTIME];
    match extended {
        Some(seconds) if mtime == tar::time_field(seconds) => {}
        // Python's tarfile rounds, others cut.
        Some(seconds) if mtime == tar::time_field(seconds + 1) => {
            times_bits |= times_mask::ROUNDED_UP;
        }
        None if !new(tar::MTIME) => {}
        _ => {
            times_bits |= times_mask::MTIME;
            times.extend_from_slice(mtime);
        }
    }
    fields[masks_at.0] = fields_bits;
    times[masks_at.1] = times_bits;
    state.passed(header);
    true
}

/// The first component of a name, with its slash.
pub(super) fn top_of(name: &[u8]) -> &[u8] {
    let slash = name.iter().position(|byte| *byte == b'/');
    &name[..slash.map_or(0, |at| at + 1)]
}

/// What is before the zeros that fill a field. None if other bytes are behind a zero.
fn text(field: &[u8]) -> Option<&[u8]> {
    let end = field
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(field.len());
    let (text, zeros) = field.split_at(end);
    zeros.iter().all(|byte| *byte == 0).then_some(text)
}

/// Whether the checksum has seven digits, not six. None if it is not there in either notation.
fn notation(header: &Block) -> Option<bool> {
    [false, true].into_iter().find(|seven_digits| {
        let mut built = *header;
        tar::put_checksum(&mut built, *seven_digits);
        built[tar::CHECKSUM] == header[tar::CHECKSUM]
    })
}
