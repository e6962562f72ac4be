//! What clients accept, lowered to plain content (RFC 9110, section 12.5.3).
//!
//! An origin's gzip or br hides repeats: one changed byte changes all that follow. The link finds repeats in plain
//! content, and compresses it. Only what a client accepts is changed, and never an answer: origin and client agree
//! about representations, validators and `Vary` as they would without a proxy
//! (`docs/decisions/0044-plain-content.md`).

use httparse::Header;
use refrain_codec::names;

use super::fields;

names! {
    /// What the HTTP proxy asks origins for.
    pub enum AcceptEncoding {
        /// Plain content, where the client takes it.
        Identity = "identity",
        /// What the client accepts.
        Keep = "keep",
    }
}

const ACCEPT_ENCODING: &str = "Accept-Encoding";

const IDENTITY: &str = "identity";

/// Asks for plain content, if a request asks for another and may be changed.
pub(super) fn lower(received: &mut [Header]) {
    if !asks_for_coded(received)
        || refuses_plain(received)
        || fields::lists(received, "Cache-Control", "no-transform")
    {
        return;
    }
    // All of them: some origins read the first, some the last, some the list that they are together.
    for field in received {
        if field.name.eq_ignore_ascii_case(ACCEPT_ENCODING) {
            field.value = IDENTITY.as_bytes();
        }
    }
}

/// Whether a coding is acceptable. Without the field any is, but origins then send plain content.
fn asks_for_coded(received: &[Header]) -> bool {
    let mut codings = codings(received);
    codings.any(|coding| !coding.is(IDENTITY) && !coding.is_refused)
}

/// `identity;q=0`, or `*;q=0` and nothing about `identity`.
fn refuses_plain(received: &[Header]) -> bool {
    let refuses = |name| codings(received).any(|coding| coding.is(name) && coding.is_refused);
    let names_it = codings(received).any(|coding| coding.is(IDENTITY));
    refuses(IDENTITY) || !names_it && refuses("*")
}

/// An element of the list.
struct Coding<'a> {
    name: &'a [u8],
    /// Whether its weight is zero. A weight that cannot be read may be.
    is_refused: bool,
}

impl Coding<'_> {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

fn codings<'a>(received: &'a [Header]) -> impl Iterator<Item = Coding<'a>> {
    fields::elements(received, ACCEPT_ENCODING).map(|element| {
        let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        Coding {
            name: parts.next().unwrap_or_default(),
            is_refused: parts.any(|weight| !is_positive(weight)),
        }
    })
}

/// Whether it is `q=` and a number that is not zero.
fn is_positive(weight: &[u8]) -> bool {
    let Some((b"q=" | b"Q=", number)) = weight.split_at_checked(2) else {
        return false;
    };
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    number.iter().all(is_number) && number.iter().any(|byte| matches!(byte, b'1'..=b'9'))
}

#[cfg(test)]
mod tests;
