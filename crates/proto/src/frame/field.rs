//! The fields of frames, as they are on the wire.

use refrain_codec::token::{push_varint, take_varint, unzigzag, zigzag};

use super::{FlowId, LaneId, LaneList};
use crate::{
    limits::{LANES_EVER_MAX, LANES_MAX},
    terms::RunDigest,
};

pub(super) trait Field<'a>: Copy {
    fn put(self, body: &mut Vec<u8>);

    /// Takes it from the front of a body, whose bytes may be a peer's.
    fn take(body: &mut &'a [u8]) -> Option<Self>;
}

/// A number of 8 bytes, little endian; plain ones are varints.
#[derive(Clone, Copy)]
pub(super) struct Fixed(pub(super) u64);

impl<'a> Field<'a> for u64 {
    fn put(self, body: &mut Vec<u8>) {
        push_varint(body, self);
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        take_varint(body)
    }
}

impl<'a> Field<'a> for usize {
    fn put(self, body: &mut Vec<u8>) {
        push_varint(body, self as u64);
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        take_varint(body)?.try_into().ok()
    }
}

impl<'a> Field<'a> for i64 {
    fn put(self, body: &mut Vec<u8>) {
        push_varint(body, zigzag(self));
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        take_varint(body).map(unzigzag)
    }
}

/// 0 stands for nothing, n + 1 for n.
impl<'a> Field<'a> for Option<u64> {
    fn put(self, body: &mut Vec<u8>) {
        push_varint(body, self.map_or(0, |value| value + 1));
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        take_varint(body).map(|value| value.checked_sub(1))
    }
}

impl<'a, const N: usize> Field<'a> for [u8; N] {
    fn put(self, body: &mut Vec<u8>) {
        body.extend(self);
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        body.split_off(..N)?.try_into().ok()
    }
}

impl<'a> Field<'a> for Fixed {
    fn put(self, body: &mut Vec<u8>) {
        body.extend(self.0.to_le_bytes());
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        Field::take(body).map(u64::from_le_bytes).map(Self)
    }
}

impl<'a> Field<'a> for u8 {
    fn put(self, body: &mut Vec<u8>) {
        body.push(self);
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        body.split_off_first().copied()
    }
}

impl<'a> Field<'a> for bool {
    fn put(self, body: &mut Vec<u8>) {
        body.push(self.into());
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        let byte = u8::take(body).filter(|&byte| byte <= 1)?;
        Some(byte == 1)
    }
}

/// The rest of the body.
impl<'a> Field<'a> for &'a [u8] {
    fn put(self, body: &mut Vec<u8>) {
        body.extend(self);
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        Some(core::mem::take(body))
    }
}

/// The rest of the body.
impl<'a> Field<'a> for &'a str {
    fn put(self, body: &mut Vec<u8>) {
        body.extend(self.as_bytes());
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        core::str::from_utf8(core::mem::take(body)).ok()
    }
}

impl<'a> Field<'a> for FlowId {
    fn put(self, body: &mut Vec<u8>) {
        self.0.put(body);
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        take_varint(body).map(Self)
    }
}

impl<'a> Field<'a> for LaneId {
    fn put(self, body: &mut Vec<u8>) {
        u64::from(self.0).put(body);
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        let number = u32::try_from(take_varint(body)?).ok()?;
        (number < LANES_EVER_MAX).then_some(Self(number))
    }
}

impl<'a> Field<'a> for RunDigest {
    fn put(self, body: &mut Vec<u8>) {
        self.0.put(body);
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        Field::take(body).map(Self)
    }
}

/// The rest of the body.
impl<'a> Field<'a> for LaneList<'a> {
    fn put(self, body: &mut Vec<u8>) {
        self.0.put(body);
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        let list = Self(core::mem::take(body));
        let mut rest = list.0;
        for _ in 0..LANES_MAX {
            if rest.is_empty() {
                break;
            }
            LaneId::take(&mut rest)?;
        }
        rest.is_empty().then_some(list)
    }
}
