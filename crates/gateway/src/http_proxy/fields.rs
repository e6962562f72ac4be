//! Header fields: room to parse as many as a head has, which of them end at a proxy, and how the
//! others are written anew.

use std::collections::HashSet;

use httparse::{EMPTY_HEADER, Header};
use refrain_proto::planted::Bug;

/// As many as most heads have: they are parsed without an allocation.
const USUAL_FIELDS: usize = 64;

/// Calls `parse` with room for every field that `head` may have, which is one per line. So the
/// limit on a head's bytes is the only one.
pub(crate) fn with_room<'head, R>(
    head: &'head [u8],
    parse: impl FnOnce(&mut [Header<'head>]) -> R,
) -> R {
    let lines = head.iter().filter(|&&byte| byte == b'\n').count();
    match lines <= USUAL_FIELDS {
        true => parse(&mut [EMPTY_HEADER; USUAL_FIELDS]),
        false => parse(&mut vec![EMPTY_HEADER; lines]),
    }
}

/// Appends one field.
pub(super) fn push(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend(name.as_bytes());
    head.extend(b": ");
    head.extend(value);
    head.extend(b"\r\n");
}

/// Appends those of `fields` that are for the other end, but for those named by `without`, and the
/// `Via` that says who passed them on (RFC 9110, section 7.6); `minor` is the version that they
/// came in. Returns the secret ones, which are to follow: the order of fields with different names has no meaning
/// (RFC 9110, section 5.3).
#[must_use]
pub(crate) fn push_end_to_end(
    head: &mut Vec<u8>,
    fields: &[Header],
    without: &[&str],
    minor: u8,
) -> Vec<u8> {
    let mut secret = Vec::new();
    let listed = listed_names(fields);
    for field in fields {
        if is_one_of(&HOP_BY_HOP, field.name.as_bytes())
            || is_one_of(without, field.name.as_bytes())
            || !listed.is_empty() && listed.contains(&field.name.to_ascii_lowercase().into_bytes())
        {
            continue;
        }
        match is_secret(field.name) {
            true => push(&mut secret, field.name, field.value),
            false => push(head, field.name, field.value),
        }
    }
    head.extend(b"Via: 1.");
    head.extend([b'0' + minor]);
    head.extend(b" refrain\r\n");
    secret
}

/// Whether knowledge of a field's value is enough to act as the client.
pub(super) fn is_secret(name: &str) -> bool {
    const NAMES: [&str; 4] = ["authorization", "cookie", "x-jfrog-art-api", "npm-otp"];
    const PARTS: [&str; 8] = [
        "token", "secret", "password", "api-key", "apikey", "session", "csrf", "xsrf",
    ];
    let name = name.to_ascii_lowercase();
    let is_listed = NAMES.contains(&&*name) || PARTS.iter().any(|part| name.contains(part));
    is_listed && !Bug::NoSecretFields.is_planted()
}

/// Whether a field is about content, and not about the client: those that storage services and content networks need.
pub(super) fn is_of_content(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "cache-control",
        "expect",
        "pragma",
        "range",
        "transfer-encoding",
        "user-agent",
        "via",
    ];
    const STARTS: [&str; 6] = ["accept", "content-", "if-", "x-amz-", "x-goog-", "x-ms-"];
    let name = name.to_ascii_lowercase();
    NAMES.contains(&&*name) || STARTS.iter().any(|start| name.starts_with(start))
}

/// The values of all fields of that name.
pub(crate) fn values<'a>(fields: &'a [Header], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let named = move |field: &&Header| field.name.eq_ignore_ascii_case(name);
    fields.iter().filter(named).map(|field| field.value)
}

/// The elements of the comma-separated lists that all fields of that name are together. Empty ones
/// do not count (RFC 9110, section 5.6.1).
pub(crate) fn elements<'a>(fields: &'a [Header], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    values(fields, name)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// Whether a field's list has this element.
pub(super) fn lists(fields: &[Header], name: &str, element: &str) -> bool {
    elements(fields, name).any(|item| item.eq_ignore_ascii_case(element.as_bytes()))
}

/// Whether who sent these fields, in HTTP/1.`minor`, keeps its connection open for another
/// message (RFC 9112, section 9.3).
pub(crate) fn keep_open(fields: &[Header], minor: u8) -> bool {
    let closes = lists(fields, "Connection", "close");
    !closes && (minor == 1 || lists(fields, "Connection", "keep-alive"))
}

/// Digits and nothing else, not more than fit.
pub(super) fn decimal(value: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(value).ok()?;
    let is_decimal = value.iter().all(u8::is_ascii_digit);
    digits.parse().ok().filter(|_| is_decimal)
}

/// Fields between one end and its proxy, which the other must not see (RFC 9110, section 7.6.1).
/// `Transfer-Encoding` stays with the body, which passes as it is.
const HOP_BY_HOP: [&str; 8] = [
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "Proxy-Authorization",
    "Proxy-Authenticate",
    "Proxy-Authentication-Info",
    "TE",
    "Upgrade",
];

/// What `Connection` says without naming a field, and the fields that it must not take away, since
/// they frame the body.
const NEVER_LISTED: [&str; 3] = ["close", "Content-Length", "Transfer-Encoding"];

/// The further fields that `Connection` declares to be for the proxy, in lower case. In a set,
/// since both a head's fields and this list may be thousands.
fn listed_names(fields: &[Header]) -> HashSet<Vec<u8>> {
    elements(fields, "Connection")
        .filter(|name| !is_one_of(&HOP_BY_HOP, name) && !is_one_of(&NEVER_LISTED, name))
        .map(<[u8]>::to_ascii_lowercase)
        .collect()
}

fn is_one_of(names: &[&str], name: &[u8]) -> bool {
    names
        .iter()
        .any(|other| other.as_bytes().eq_ignore_ascii_case(name))
}
