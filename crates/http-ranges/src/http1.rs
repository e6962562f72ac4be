//! HTTP/1 as this client speaks it.

use hyper::client::conn::http1::Builder;

/// The longest head of an answer.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// The most fields in the head of an answer. Room for them is made for each answer: as many as could fit in
/// [`HEAD_BYTES_MAX`] took half of the time of fetching small chunks.
pub const FIELDS_MAX: usize = 1000;

/// How connections begin.
pub(super) fn http() -> Builder {
    let mut http = Builder::new();
    http.max_header_size(HEAD_BYTES_MAX).max_headers(FIELDS_MAX);
    // The rest of the buffer is for the body.
    http.max_buf_size(2 * HEAD_BYTES_MAX);
    http
}
