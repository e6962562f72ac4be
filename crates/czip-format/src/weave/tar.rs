//! What a tar header is to both directions: the places of its fields, its numbers, and the state
//! that one header leaves for the next.

use std::ops::Range;

/// A header.
pub(crate) type Block = [u8; 512];

pub(crate) const NAME: Range<usize> = 0..100;
pub(crate) const MODE: Range<usize> = 100..108;
pub(crate) const UID: Range<usize> = 108..116;
pub(crate) const GID: Range<usize> = 116..124;
pub(crate) const SIZE: Range<usize> = 124..136;
pub(crate) const MTIME: Range<usize> = 136..148;
pub(crate) const CHECKSUM: Range<usize> = 148..156;
pub(crate) const TYPE: usize = 156;
pub(crate) const LINK_NAME: Range<usize> = 157..257;
pub(crate) const REST: Range<usize> = 257..512;

/// The bits of the mask in fields.
pub(crate) mod fields_mask {
    pub(crate) const NAME: u8 = 1;
    pub(crate) const MODE: u8 = 2;
    pub(crate) const UID: u8 = 4;
    pub(crate) const GID: u8 = 8;
    pub(crate) const SIZE: u8 = 16;
    pub(crate) const LINK_NAME: u8 = 32;
    pub(crate) const REST: u8 = 64;
    pub(crate) const SEVEN_DIGITS: u8 = 128;
}

/// The bits of the mask in times.
pub(crate) mod times_mask {
    pub(crate) const TOP: u8 = 1;
    pub(crate) const MTIME: u8 = 2;
    pub(crate) const ROUNDED_UP: u8 = 4;
    pub(crate) const SIZE: u8 = 8;
    pub(crate) const ALL: u8 = 15;
}

/// Fields that are copied if a bit of the mask in fields says so, in their order in the stream.
pub(crate) const COPIED: [(u8, Range<usize>); 3] = [
    (fields_mask::MODE, MODE),
    (fields_mask::UID, UID),
    (fields_mask::GID, GID),
];

/// Whether headers of a type say more of the member that follows.
pub(crate) fn says_more(kind: u8) -> bool {
    matches!(kind, b'x' | b'g' | b'L' | b'K')
}

/// How many bytes follow a header, before the zeros. None if its size is no octal number.
pub(crate) fn data_bytes(header: &Block) -> Option<u64> {
    let size = octal(&header[SIZE])?;
    Some(match header[TYPE] {
        b'1'..=b'6' => 0,
        _ => size,
    })
}

/// How many zeros follow so many bytes of data.
pub(crate) fn padding_bytes(data: u64) -> usize {
    (data.wrapping_neg() % 512) as usize
}

/// An octal number: spaces, digits, and nothing more or a space or zero byte and anything.
pub(crate) fn octal(field: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for &byte in field.iter().skip_while(|byte| **byte == b' ') {
        match byte {
            b'0'..=b'7' => value = value.checked_mul(8)? | u64::from(byte - b'0'),
            b' ' | 0 => break,
            _ => return None,
        }
    }
    Some(value)
}

/// The sum of a header's bytes, those of the checksum counted as spaces.
pub(crate) fn checksum(header: &Block) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    sum(&header[..CHECKSUM.start]) + 8 * u32::from(b' ') + sum(&header[CHECKSUM.end..])
}

/// Puts the checksum into a header, in one of two notations.
pub(crate) fn put_checksum(header: &mut Block, seven_digits: bool) {
    let sum = u64::from(checksum(header));
    let field = &mut header[CHECKSUM];
    if seven_digits {
        put_octal(&mut field[..7], sum);
        field[7] = 0;
    } else {
        put_octal(&mut field[..6], sum);
        field[6..].copy_from_slice(b"\0 ");
    }
}

fn put_octal(digits: &mut [u8], mut value: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value & 7) as u8;
        value >>= 3;
    }
}

/// An extended time as the field mtime has it: 11 octal digits and a zero byte.
pub(crate) fn time_field(seconds: u64) -> [u8; 12] {
    let mut field = [0; 12];
    put_octal(&mut field[..11], seconds);
    field
}

/// The extended time that the text of a header of type `x` says: the number behind its last ` mtime=`.
pub(crate) fn extended_time(text: &[u8]) -> Option<u64> {
    extended_number(text, b" mtime=").filter(|seconds| *seconds < EXTENDED_TIME_END)
}

/// One more does not fit the field.
const EXTENDED_TIME_END: u64 = (1 << 33) - 1;

/// The decimal number behind the last `key` of an extended header's text.
pub(crate) fn extended_number(text: &[u8], key: &[u8]) -> Option<u64> {
    let at = text.windows(key.len()).rposition(|window| window == key)?;
    let digits = text[at + key.len()..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |value: Option<u64>, digit| {
        let tens = value.unwrap_or(0).saturating_mul(10);
        Some(tens.saturating_add(u64::from(digit - b'0')))
    })
}

/// What headers so far leave for the next one. At a restart point: nothing.
pub(crate) struct Headers {
    /// The last header of each type.
    models: [Option<Box<Block>>; 256],
    /// The first component of names, up to its slash.
    pub(crate) top: Vec<u8>,
    /// What an extended header said of the next member's time.
    pub(crate) extended_time: Option<u64>,
}

impl Headers {
    pub(crate) fn new() -> Headers {
        Headers {
            models: [const { None }; 256],
            top: Vec::new(),
            extended_time: None,
        }
    }

    /// The last header of a type, or zeros with that type.
    pub(crate) fn model(&self, kind: u8) -> Block {
        match &self.models[usize::from(kind)] {
            Some(model) => **model,
            None => {
                let mut model = [0; 512];
                model[TYPE] = kind;
                model
            }
        }
    }

    /// Makes a header the model of its type.
    pub(crate) fn passed(&mut self, header: &Block) {
        let kind = header[TYPE];
        match &mut self.models[usize::from(kind)] {
            Some(model) => **model = *header,
            model => *model = Some(Box::new(*header)),
        }
        if !says_more(kind) {
            self.extended_time = None;
        }
    }
}
