//! Numbers out of bytes, and into them.

use crate::{FormatError, Portion, Violation};

/// Bytes that are yet to be parsed, and what of the archive they are, for errors.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
    of: Portion,
}

impl<'a> Input<'a> {
    pub(crate) fn new(of: Portion, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, of }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else {
            return Err(FormatError::Truncated(self.of));
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let Some((&array, rest)) = self.rest.split_first_chunk() else {
            return Err(FormatError::Truncated(self.of));
        };
        self.rest = rest;
        Ok(array)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, FormatError> {
        self.array().map(|[byte]| byte)
    }

    /// An unsigned LEB128 number in its shortest form.
    pub(crate) fn varint(&mut self) -> Result<u64, FormatError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let is_last = byte & 0x80 == 0;
            let is_shortest = !is_last || byte != 0 || shift == 0;
            if shift == 63 && bits > 1 || !is_shortest {
                break;
            }
            value |= bits << shift;
            if is_last {
                return Ok(value);
            }
        }
        Err(FormatError::Invalid(Violation::Number))
    }

    pub(crate) fn zigzag(&mut self) -> Result<i64, FormatError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Says that nothing may be left.
    pub(crate) fn finish(self) -> Result<(), FormatError> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(FormatError::Invalid(Violation::BytesBehindEnd)),
        }
    }
}

/// Appends an unsigned LEB128 number.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `to - from` as a zigzag number.
pub(crate) fn put_zigzag(out: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from) as i64;
    put_varint(out, (difference << 1 ^ difference >> 63) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_read_back(value: u64, from: u64, to: u64) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            put_zigzag(&mut bytes, from, to);
            let mut input = Input::new(Portion::Root, &bytes);
            prop_assert_eq!(input.varint(), Ok(value));
            prop_assert_eq!(input.zigzag().map(|by| from.wrapping_add_signed(by)), Ok(to));
            prop_assert_eq!(input.finish(), Ok(()));
        }

        #[test]
        fn a_number_has_one_form(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut input = Input::new(Portion::Root, &bytes);
            if let Ok(value) = input.varint() {
                let mut again = Vec::new();
                put_varint(&mut again, value);
                prop_assert_eq!(&bytes[..bytes.len() - input.len()], &again[..]);
            }
        }
    }

    #[test]
    fn numbers_beyond_64_bits_and_longer_forms_are_refused() {
        let refused: [&[u8]; 4] = [
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
            &[0xff; 11],
            &[0x80, 0x00],
            &[0x80],
        ];
        for bytes in refused {
            assert!(
                Input::new(Portion::Root, bytes).varint().is_err(),
                "{bytes:x?}"
            );
        }
    }
}
