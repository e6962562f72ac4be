//! Header fields: which of them end at a proxy, and how the others are written anew.

use httparse::Header;

/// More than browsers send, few enough for the stack.
pub const FIELDS_MAX: usize = 128;

/// Appends one field.
pub fn push(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend(name.as_bytes());
    head.extend(b": ");
    head.extend(value);
    head.extend(b"\r\n");
}

/// Appends those of `fields` that are for the other end, each on one line, and the `Via` that
/// says who passed them on (RFC 9110, section 7.6); `minor` is the version that they came in.
pub fn push_end_to_end(head: &mut Vec<u8>, fields: &[Header], minor: u8) {
    for field in fields {
        let is_for_proxy = HOP_BY_HOP
            .iter()
            .any(|name| name.eq_ignore_ascii_case(field.name));
        if is_for_proxy || may_be_listed(field.name) && lists(fields, "Connection", field.name) {
            continue;
        }
        push(head, field.name, field.value);
    }
    push(head, "Via", format!("1.{minor} refrain").as_bytes());
}

/// The values of all fields of that name.
pub fn values<'a>(fields: &'a [Header], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let named = move |field: &&Header| field.name.eq_ignore_ascii_case(name);
    fields.iter().filter(named).map(|field| field.value)
}

/// Whether a field's comma-separated list has this element.
pub fn lists(fields: &[Header], name: &str, element: &str) -> bool {
    let is_element = |item: &[u8]| item.trim_ascii().eq_ignore_ascii_case(element.as_bytes());
    values(fields, name).any(|value| value.split(|&byte| byte == b',').any(is_element))
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

/// Whether `Connection` can declare this field to be for the proxy. It must not take away what
/// frames the body.
fn may_be_listed(name: &str) -> bool {
    !name.eq_ignore_ascii_case("Content-Length") && !name.eq_ignore_ascii_case("Transfer-Encoding")
}
