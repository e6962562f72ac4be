//! The frames of predictions: what a receiver offers, and what a sender confirms.

use super::{FlowId, field::Field, varint_bytes};
use crate::{
    limits::OFFER_BYTES_MAX,
    terms::{Hint, RunDigest, Signature},
};

/// The frame of offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferFrame<'a> {
    /// The flow.
    pub flow: FlowId,
    /// Offers with lower numbers are withdrawn.
    pub withdrawn_below: u64,
    /// Where the first one is expected, and each further one behind the one before; `None`
    /// where they may come anywhere.
    pub start: Option<u64>,
    /// What is offered; numbers go on from the flow's offer before.
    pub offers: OfferList<'a>,
}

/// What a frame of offers holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferList<'a>(pub(super) &'a [u8]);

/// One expected chunk, or in aligned mode a range of several, on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Plain bytes, 1 to [`OFFER_BYTES_MAX`].
    pub len: u32,
    /// What is checked before anything is hashed.
    pub hint: Hint,
    /// What decides.
    pub signature: Signature,
}

/// The frame of a confirmation: a run of offers, adjacent in number and in the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmFrame {
    /// The flow.
    pub flow: FlowId,
    /// Number of the first offer.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Plain bytes of all.
    pub len: u64,
    /// As a block's.
    pub offset: Option<u64>,
    /// Of the run's bytes and place.
    pub digest: RunDigest,
}

impl ConfirmFrame {
    /// Bytes of the frame on the wire, type and length included.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        let offset = self.offset.map_or(0, |offset| offset + 1);
        let numbers = [self.flow.0, self.first, self.count, self.len, offset];
        let body = numbers.into_iter().map(varint_bytes).sum::<usize>() + 16;
        1 + varint_bytes(body as u64) + body
    }
}

impl<'a> OfferList<'a> {
    /// The list of `offers`, written to `bytes`.
    pub fn write(offers: impl Iterator<Item = Offer>, bytes: &'a mut Vec<u8>) -> Self {
        for offer in offers {
            u64::from(offer.len).put(bytes);
            offer.hint.prefix.to_le_bytes().put(bytes);
            offer.hint.sum.put(bytes);
            offer.signature.0.put(bytes);
        }
        Self(bytes)
    }

    /// The offers.
    pub fn iter(&self) -> impl Iterator<Item = Offer> + 'a {
        let mut rest = self.0;
        core::iter::from_fn(move || offer(&mut rest))
    }

    /// Bytes on the wire.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        self.0.len()
    }
}

/// The rest of the body.
impl<'a> Field<'a> for OfferList<'a> {
    fn put(self, body: &mut Vec<u8>) {
        self.0.put(body);
    }

    fn take(body: &mut &'a [u8]) -> Option<Self> {
        let list = Self(core::mem::take(body));
        let mut rest = list.0;
        while !rest.is_empty() {
            offer(&mut rest)?;
        }
        Some(list)
    }
}

fn offer(body: &mut &[u8]) -> Option<Offer> {
    let len = u32::try_from(u64::take(body)?).ok()?;
    if !(1..=OFFER_BYTES_MAX as u32).contains(&len) {
        return None;
    }
    Some(Offer {
        len,
        hint: Hint {
            prefix: u16::from_le_bytes(Field::take(body)?),
            sum: Field::take(body)?,
        },
        signature: Signature(Field::take(body)?),
    })
}
