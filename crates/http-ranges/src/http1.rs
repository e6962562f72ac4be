//! HTTP/1 as this client speaks it.

use hyper::client::conn::http1::Builder;

/// The longest head of an answer.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// So many fields fit: each has a name, a colon and the end of its line.
pub const FIELDS_MAX: usize = HEAD_BYTES_MAX / 3;

/// How connections begin, whose answers have at most `fields_max` fields.
pub(super) fn http(fields_max: usize) -> Builder {
    let mut http = Builder::new();
    http.max_header_size(HEAD_BYTES_MAX).max_headers(fields_max);
    // The rest of the buffer is for the body.
    http.max_buf_size(2 * HEAD_BYTES_MAX);
    http
}
