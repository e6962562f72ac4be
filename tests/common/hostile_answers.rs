//! Answers of hostile origins: more than one at once, or with several ends.

/// An answer that nobody has asked for.
pub(crate) const SECRET: &str = "HTTP/1.1 200 OK\r\nX: secret\r\nContent-Length: 6\r\n\r\nsecret";

/// What a client makes of an origin's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A body, whole, behind which the connection stays.
    Whole(&'static str),
    /// The same, with which the connection ends.
    Last(&'static str),
    /// A response of the proxy instead, with this status.
    Instead(u16),
    /// Less than was promised, with which the connection ends.
    Truncated,
}

use Reading::{Instead, Last, Truncated, Whole};

/// Answers of hostile origins to a GET, and how a client may read them.
const ANSWERS: [(&str, Reading); 39] = [
    // More than one answer.
    ("Content-Length: 4\r\n\r\nbody", Whole("body")),
    ("Content-Length: 0\r\n\r\n", Whole("")),
    (
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Whole("body"),
    ),
    (
        "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n4;a=\"b\"\r\nbody\r\n0\r\nX: 1\r\n\r\n",
        Whole("body"),
    ),
    // Two ends.
    (
        "Content-Length: 4\r\nContent-Length: 60\r\n\r\nbody",
        Instead(502),
    ),
    ("Content-Length: 4, 60\r\n\r\nbody", Instead(502)),
    ("Content-Length: 4, 4\r\n\r\nbody", Whole("body")),
    (
        "Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
        Whole("body"),
    ),
    (
        "Content-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Whole("body"),
    ),
    (
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Whole("body"),
    ),
    // Lengths that are none.
    ("Content-Length: -4\r\n\r\nbody", Instead(502)),
    ("Content-Length: +4\r\n\r\nbody", Instead(502)),
    ("Content-Length: 0x4\r\n\r\nbody", Instead(502)),
    ("Content-Length: 4 4\r\n\r\nbody", Instead(502)),
    ("Content-Length: \r\n\r\nbody", Instead(502)),
    (
        "Content-Length: 18446744073709551620\r\n\r\nbody",
        Instead(502),
    ),
    ("Content-Length: 4\x0b\r\n\r\nbody", Instead(502)),
    // Codings that two readers could understand differently.
    (
        "Transfer-Encoding: chunked, chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Instead(502),
    ),
    (
        "Transfer-Encoding: chunked, identity\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Instead(502),
    ),
    (
        "Transfer-Encoding: \x0bchunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Instead(502),
    ),
    (
        "Transfer-Encoding : chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Whole("body"),
    ),
    (
        "X: 1\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Whole("body"),
    ),
    (
        "X: 1\rTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Instead(502),
    ),
    (
        "Transfer-Encoding:\r\n chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Whole("body"),
    ),
    (
        "Transfer-Encoding\x00: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Instead(502),
    ),
    (
        " Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Instead(502),
    ),
    // Chunks that are none.
    (
        "Transfer-Encoding: chunked\r\n\r\n-4\r\nbody\r\n0\r\n\r\n",
        Truncated,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n0x4\r\nbody\r\n0\r\n\r\n",
        Truncated,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n4\nbody\r\n0\r\n\r\n",
        Truncated,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\n0\r\n\r\n",
        Truncated,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\n",
        Truncated,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n3\r\nbody\r\n0\r\n\r\n",
        Truncated,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n10000000000000004\r\nbody\r\n0\r\n\r\n",
        Truncated,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n4 2\r\nbody\r\n0\r\n\r\n",
        Truncated,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0;\n\r\n",
        Truncated,
    ),
    // It asks the client to keep another connection than this.
    (
        "Connection: content-length\r\nContent-Length: 4\r\n\r\nbody",
        Whole("body"),
    ),
    (
        "Connection: close\r\nContent-Length: 4\r\n\r\nbody",
        Whole("body"),
    ),
    (
        "Upgrade: h2c\r\nContent-Length: 4\r\n\r\nbody",
        Whole("body"),
    ),
    // Only its end shows the end of this, and all that comes before it belongs to it.
    ("Transfer-Encoding: gzip\r\n\r\nbody", Last("body")),
];

/// Answers whose first line matters.
const WHOLE_ANSWERS: [(&str, Reading); 9] = [
    (
        "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nbody",
        Whole(""),
    ),
    (
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Whole(""),
    ),
    ("HTTP/1.1 304 Not Modified\r\nX: 1\r\n\r\nbody", Whole("")),
    (
        "HTTP/1.1 100 Continue\r\nContent-Length: 4\r\n\r\nbody",
        Instead(502),
    ),
    (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        Instead(502),
    ),
    ("HTTP/1.1 099 Early\r\n\r\n", Instead(502)),
    (
        "HTTP/2.0 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        Instead(502),
    ),
    (
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Whole("body"),
    ),
    (
        "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        Whole("body"),
    ),
];

/// All of them, whole.
pub(crate) fn hostile_answers() -> Vec<(String, Reading)> {
    let ok = ANSWERS
        .iter()
        .map(|(answer, reading)| (format!("HTTP/1.1 200 OK\r\n{answer}"), *reading));
    let whole = WHOLE_ANSWERS
        .iter()
        .map(|(answer, reading)| ((*answer).to_owned(), *reading));
    ok.chain(whole).collect()
}
