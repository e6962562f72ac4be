//! The hello: the first thing each end says on a lane.
//!
//! Its first 12 bytes never change, whatever the version, so that two versions that
//! cannot talk can still name each other:
//!
//! ```text
//! magic            8 bytes  "refrain\n"
//! oldest, newest   1 + 1    wire versions that the sender speaks
//! length           2        of the body, big endian
//! body                      in both versions:
//!   instance       8        drawn at random by this end for this link, little endian
//!   peer instance  8        the other end's, as this one knows it; 0: none
//!   lane           varint   number of this lane, never used twice in a link
//!   send cache     varint   bytes of cache that this end can keep as a sender
//!   receive cache  varint   bytes of cache that this end can keep as a receiver
//!   features       1        1: takes offers; 2: makes offers, on the terms that follow;
//!                           4: counts confirmations as it counts blocks
//!                           8: only checks whether the pair works
//!   mask           1        bits of the PACK mask of its chunks
//!                           and from version 2 on:
//!   capabilities   varint   1: shares a window, of which its own size follows; 2: the span of its caches is long
//!                           4: speaks TLS with targets; 8: knows secret blocks
//!   window         varint   plain bytes that this end can hold for its readers
//! ```
//!
//! A cache of 0 bytes is none. An end of before offers says no features. An end uses the capabilities that both
//! hellos list, so that a later one needs no new version: it is a bit, and what it says of itself comes behind
//! what the bits before it say.
//!
//! A body may be longer than this version reads: a later one may append fields.

use refrain_codec::{
    geometry::{CACHE_BYTES_MAX, CACHE_BYTES_MIN},
    token::{push_varint, take_varint},
};

use crate::{
    codes::{capability::*, feature::*},
    limits::{HELLO_BYTES_MAX, LANES_EVER_MAX},
    terms::OfferTerms,
};

/// Newest wire version that this program speaks.
pub const WIRE_VERSION: u8 = 2;

/// Oldest wire version that this program speaks: the one before.
pub(crate) const WIRE_VERSION_OLDEST: u8 = 1;

const MAGIC: &[u8; 8] = b"refrain\n";
const PROLOGUE_BYTES: usize = 12;

/// What an end says of itself and of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// This end's link instance.
    pub instance: u64,
    /// The other end's link instance, as far as this end knows it.
    pub peer_instance: Option<u64>,
    /// Number of the lane.
    pub lane: u32,
    /// Bytes of cache that this end can keep as a sender; 0: it keeps none.
    pub send_cache_bytes: u64,
    /// Bytes of cache that this end can keep as a receiver; 0: it keeps none.
    pub receive_cache_bytes: u64,
    /// Whether this end, as a sender, heeds offers.
    pub takes_offers: bool,
    /// On which terms this end, as a receiver, makes offers, if it does.
    pub offers: Option<OfferTerms>,
    /// Whether this end only checks that the pair works, and will open no flow.
    pub is_check: bool,
    /// Whether this end's counts of a lane's blocks include confirmations, if the other end's do.
    pub counts_confirmations: bool,
    /// Plain bytes that this end can hold for all its readers, beyond the floor of each, if it shares windows.
    pub window_bytes: Option<u64>,
    /// Whether the span of this end's caches is longer than their window, if the other end's is.
    pub has_long_span: bool,
    /// Whether this end speaks TLS with targets of which an OPEN says so.
    pub speaks_tls_to_targets: bool,
    /// Whether this end keeps no copy of blocks that are marked as secret.
    pub knows_secret_blocks: bool,
}

/// Why a hello is none that this end can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// Something else speaks on the other end.
    #[error("the peer does not speak refrain's protocol")]
    NotRefrain,
    /// The other end speaks no version that this one does.
    #[error(
        "the peer speaks wire versions {oldest} to {newest}, this end {WIRE_VERSION_OLDEST} to \
         {WIRE_VERSION}: update the older of the two"
    )]
    Version {
        /// Oldest version of the peer.
        oldest: u8,
        /// Newest version of the peer.
        newest: u8,
    },
    /// A field is missing or out of its bounds.
    #[error("the peer's hello is malformed")]
    Malformed,
}

impl Hello {
    /// The hello of a lane without a history: no caches, no offers.
    #[must_use]
    pub fn of_lane(instance: u64, peer_instance: Option<u64>, lane: u32) -> Self {
        Self {
            instance,
            peer_instance,
            lane,
            send_cache_bytes: 0,
            receive_cache_bytes: 0,
            takes_offers: false,
            offers: None,
            is_check: false,
            counts_confirmations: false,
            window_bytes: None,
            has_long_span: false,
            speaks_tls_to_targets: false,
            knows_secret_blocks: false,
        }
    }

    /// Appends the hello to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(32);
        body.extend(self.instance.to_le_bytes());
        body.extend(self.peer_instance.unwrap_or(0).to_le_bytes());
        push_varint(&mut body, u64::from(self.lane));
        push_varint(&mut body, self.send_cache_bytes);
        push_varint(&mut body, self.receive_cache_bytes);
        let feature = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
        body.push(
            feature(self.takes_offers, TAKES_OFFERS)
                | feature(self.offers.is_some(), MAKES_OFFERS)
                | feature(self.counts_confirmations, COUNTS_CONFIRMATIONS)
                | feature(self.is_check, IS_CHECK),
        );
        body.extend(self.offers.map(|terms| terms.mask.count()));
        let capability = |is_there: bool, bit: u64| if is_there { bit } else { 0 };
        let capabilities = capability(self.window_bytes.is_some(), SHARES_WINDOW)
            | capability(self.has_long_span, HAS_LONG_SPAN)
            | capability(self.speaks_tls_to_targets, TLS_TO_TARGETS)
            | capability(self.knows_secret_blocks, SECRET_BLOCKS);
        push_varint(&mut body, capabilities);
        self.window_bytes
            .into_iter()
            .for_each(|bytes| push_varint(&mut body, bytes));

        out.extend(MAGIC);
        out.extend([WIRE_VERSION_OLDEST, WIRE_VERSION]);
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
    }

    /// Reads the hello at the front of `bytes` and says how many bytes it took; `None`
    /// while it is incomplete.
    ///
    /// # Errors
    /// See [`HelloError`]; a wrong magic is found at its first wrong byte.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, HelloError> {
        let magic_bytes = bytes.len().min(MAGIC.len());
        if bytes[..magic_bytes] != MAGIC[..magic_bytes] {
            return Err(HelloError::NotRefrain);
        }
        let Some(prologue) = bytes.first_chunk::<PROLOGUE_BYTES>() else {
            return Ok(None);
        };
        let [.., oldest, newest, length_high, length_low] = *prologue;
        if oldest > newest || newest < WIRE_VERSION_OLDEST || oldest > WIRE_VERSION {
            return Err(HelloError::Version { oldest, newest });
        }
        let length = usize::from(u16::from_be_bytes([length_high, length_low]));
        if length > HELLO_BYTES_MAX {
            return Err(HelloError::Malformed);
        }
        let Some(body) = bytes[PROLOGUE_BYTES..].get(..length) else {
            return Ok(None);
        };
        let hello = Self::read_body(newest, body).ok_or(HelloError::Malformed)?;
        Ok(Some((hello, PROLOGUE_BYTES + length)))
    }

    fn read_body(newest: u8, body: &[u8]) -> Option<Self> {
        let (&instance, body) = body.split_first_chunk::<8>()?;
        let (&peer_instance, mut body) = body.split_first_chunk::<8>()?;
        let lane = take_varint(&mut body)?;
        let mut cache_bytes = || {
            let possible = CACHE_BYTES_MIN as u64..=CACHE_BYTES_MAX as u64;
            take_varint(&mut body).filter(|bytes| *bytes == 0 || possible.contains(bytes))
        };
        let (send_cache_bytes, receive_cache_bytes) = (cache_bytes()?, cache_bytes()?);
        let features = body.split_off_first().copied().unwrap_or(0);
        let offers = match features & MAKES_OFFERS {
            0 => None,
            _ => Some(OfferTerms::read(*body.split_off_first()?)?),
        };
        let capabilities = match newest {
            1 => 0,
            _ => take_varint(&mut body)?,
        };
        let window_bytes = match capabilities & SHARES_WINDOW {
            0 => None,
            _ => Some(take_varint(&mut body)?),
        };
        let hello = Self {
            instance: u64::from_le_bytes(instance),
            peer_instance: Some(u64::from_le_bytes(peer_instance)).filter(|&id| id != 0),
            lane: u32::try_from(lane)
                .ok()
                .filter(|&lane| lane < LANES_EVER_MAX)?,
            send_cache_bytes,
            receive_cache_bytes,
            takes_offers: features & TAKES_OFFERS != 0,
            offers,
            is_check: features & IS_CHECK != 0,
            counts_confirmations: features & COUNTS_CONFIRMATIONS != 0,
            window_bytes,
            has_long_span: capabilities & HAS_LONG_SPAN != 0,
            speaks_tls_to_targets: capabilities & TLS_TO_TARGETS != 0,
            knows_secret_blocks: capabilities & SECRET_BLOCKS != 0,
        };
        (hello.instance != 0).then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            instance: 7,
            peer_instance: Some(9),
            lane: 3,
            send_cache_bytes: 1 << 20,
            receive_cache_bytes: 128 << 20,
            takes_offers: true,
            offers: Some(OfferTerms::default()),
            is_check: true,
            counts_confirmations: true,
            window_bytes: Some(64 << 20),
            has_long_span: true,
            speaks_tls_to_targets: true,
            knows_secret_blocks: true,
        }
    }

    fn written(hello: Hello) -> Vec<u8> {
        let mut bytes = Vec::new();
        hello.write(&mut bytes);
        bytes
    }

    #[test]
    fn a_hello_is_read_from_any_split() {
        let bytes = written(hello());
        for cut in 0..bytes.len() {
            assert_eq!(Hello::read(&bytes[..cut]), Ok(None), "{cut} bytes");
        }
        let longer = [&bytes[..], b"frames"].concat();
        assert_eq!(Hello::read(&longer), Ok(Some((hello(), bytes.len()))));
    }

    #[test]
    fn an_end_of_before_offers_makes_and_takes_none() {
        let (read, _) = Hello::read(&of_version_1(2))
            .expect("valid")
            .expect("whole");
        assert_eq!((read.takes_offers, read.offers), (false, None));
        assert!(!read.is_check);
    }

    /// A hello of the version before, shorter by so many bytes.
    fn of_version_1(shorter: usize) -> Vec<u8> {
        let without = Hello {
            window_bytes: None,
            has_long_span: false,
            speaks_tls_to_targets: false,
            knows_secret_blocks: false,
            ..hello()
        };
        let mut bytes = written(without);
        bytes.truncate(bytes.len() - 1 - shorter);
        bytes[9] = 1;
        bytes[11] -= 1 + shorter as u8;
        bytes
    }

    #[test]
    fn an_end_of_the_version_before_has_no_capabilities() {
        let (read, _) = Hello::read(&of_version_1(0))
            .expect("valid")
            .expect("whole");
        let expected = Hello {
            window_bytes: None,
            has_long_span: false,
            speaks_tls_to_targets: false,
            knows_secret_blocks: false,
            ..hello()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn another_version_is_refused_with_both_numbers() {
        let mut bytes = written(hello());
        (bytes[8], bytes[9]) = (3, 4);
        let error = Hello::read(&bytes[..12]).expect_err("a version of the future");
        assert_eq!(
            error,
            HelloError::Version {
                oldest: 3,
                newest: 4
            }
        );
        let text = error.to_string();
        assert!(text.contains("3 to 4") && text.contains("1 to 2"), "{text}");
    }

    #[test]
    fn a_newer_peer_that_still_speaks_ours_is_accepted() {
        let mut bytes = written(hello());
        bytes[9] = WIRE_VERSION + 1;
        bytes[11] += 4;
        bytes.extend(*b"more");
        assert_eq!(Hello::read(&bytes), Ok(Some((hello(), bytes.len()))));
    }

    #[test]
    fn a_capability_of_the_future_and_its_field_are_skipped() {
        let mut bytes = written(hello());
        // Before the window's four bytes.
        let capabilities = bytes.len() - 5;
        assert_eq!(
            u64::from(bytes[capabilities]),
            SHARES_WINDOW | HAS_LONG_SPAN | TLS_TO_TARGETS | SECRET_BLOCKS
        );
        bytes[capabilities] |= 16;
        bytes[11] += 2;
        bytes.extend([0x81, 1]);
        assert_eq!(Hello::read(&bytes), Ok(Some((hello(), bytes.len()))));
    }

    #[test]
    fn something_else_is_told_at_once() {
        assert_eq!(
            Hello::read(b"GET / HTTP/1.1\r\n"),
            Err(HelloError::NotRefrain)
        );
        assert_eq!(Hello::read(b"r3"), Err(HelloError::NotRefrain));
    }

    proptest! {
        #[test]
        fn hostile_hellos_never_panic(mut tail: Vec<u8>, flip in 0usize..40, with: u8) {
            let mut bytes = written(hello());
            let at = flip % bytes.len();
            bytes[at] ^= with;
            bytes.append(&mut tail);
            let _ = Hello::read(&bytes);
        }
    }
}
