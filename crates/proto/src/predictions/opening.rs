//! What a flow looks like before its first byte: the key of its opening.
//!
//! Where the receiver's own first bytes are an HTTP/1 request, the key is the request line and
//! the host, else the target alone: never the raw first bytes, whose split is an accident
//! (`docs/architecture.md`, 20).
//!
//! Requests whose lines differ in numbers only are *alike*, such as those for `/app-5.4.2.js` and `/app-5.4.3.js`. The
//! upper half of a key is a hash of what alike requests have in common, and the lower half of the rest. It is 0 where
//! there is no rest. Two requests with one key get a wrong prediction, and nothing else.

use super::history::upper;
use crate::{limits::HTTP_HEAD_BYTES_MAX, targets::place};

const METHODS: [&[u8]; 4] = [b"GET ", b"HEAD ", b"POST ", b"PUT "];

/// The key of a flow to `target` of which nothing more is known.
pub(crate) fn of_target(target: &str) -> u64 {
    upper(refrain_codec::check(1, place(target).as_bytes()))
}

/// The key of what answers `bytes`, if they begin with an HTTP/1 request.
pub(crate) fn of_request(target: &str, bytes: &[u8]) -> Option<u64> {
    if !METHODS.iter().any(|method| bytes.starts_with(method)) {
        return None;
    }
    let head = &bytes[..bytes.len().min(HTTP_HEAD_BYTES_MAX)];
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let line = lines.next()?;
    let version = line.rsplit(|&byte| byte == b' ').next()?;
    if !version.starts_with(b"HTTP/1.") {
        return None;
    }
    let host = lines
        .take_while(|line| !line.is_empty())
        .find_map(|line| {
            let (name, value) = line.split_at_checked(5)?;
            name.eq_ignore_ascii_case(b"host:")
                .then(|| value.trim_ascii())
        })
        .unwrap_or_default();
    let text = [place(target).as_bytes(), line, host].join(&b'\n');
    let alike = [place(target).as_bytes(), &without_numbers(line), host].join(&b'\n');
    let rest = match alike == text {
        true => 0,
        false => refrain_codec::check(2, &text) as u32,
    };
    Some(upper(refrain_codec::check(3, &alike)) | u64::from(rest))
}

/// A request line with one sign for each number in it.
fn without_numbers(line: &[u8]) -> Vec<u8> {
    // The version of HTTP is no number of the request.
    let (request, version) = line.split_at(line.len().saturating_sub(VERSION_BYTES));
    let mut text = Vec::with_capacity(line.len());
    for &byte in request {
        match byte.is_ascii_digit() {
            false => text.push(byte),
            true if text.last() == Some(&b'#') => {}
            true => text.push(b'#'),
        }
    }
    text.extend(version);
    text
}

const VERSION_BYTES: usize = b"HTTP/1.1".len();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictions::history::alike;
    use proptest::prelude::*;

    const REQUEST: &[u8] =
        b"GET /terms HTTP/1.1\r\nAccept: */*\r\nHost: example.org\r\nCookie: a\r\n\r\n";

    #[test]
    fn a_request_is_known_by_its_line_and_its_host() {
        let key = |request: &[u8]| of_request("example.org:80", request);
        let same = b"GET /terms HTTP/1.1\r\nCookie: b\r\nhost:example.org\r\n\r\n";
        assert_eq!(key(REQUEST), key(same));
        assert!(key(REQUEST).is_some());
        for other in [
            &b"GET /other HTTP/1.1\r\nHost: example.org\r\n\r\n"[..],
            b"GET /terms HTTP/1.1\r\nHost: example.com\r\n\r\n",
            b"HEAD /terms HTTP/1.1\r\nHost: example.org\r\n\r\n",
        ] {
            assert_ne!(key(REQUEST), key(other));
        }
        assert_ne!(key(REQUEST), of_request("example.org:81", REQUEST));
    }

    #[test]
    fn requests_that_differ_in_numbers_are_alike() {
        let key = |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            of_request("a:80", request.as_bytes()).expect("a request")
        };
        let one = key("/app-5.4.2.js?v=1");
        for like in ["/app-5.4.3.js?v=1", "/app-5.10.3.js?v=12"] {
            assert_ne!(key(like), one, "{like}");
            assert_eq!(alike(key(like)), alike(one), "{like}");
        }
        assert!(alike(one).is_some());
        for other in ["/app-5.4.js?v=1", "/lib-5.4.2.js?v=1", "/app-5.4.2.js"] {
            assert_ne!(alike(key(other)), alike(one), "{other}");
        }
        // Of those without numbers, there is one. The key of all is alike to none.
        for only in [
            key("/app.js"),
            alike(one).expect("it has others"),
            of_target("a:80"),
        ] {
            assert_eq!(alike(only), None);
        }
        let digests =
            ["3f9a".repeat(16), "7c21".repeat(16)].map(|digest| key(&format!("/{digest}")));
        assert_ne!(alike(digests[0]), alike(digests[1]));
    }

    #[test]
    fn what_is_no_request_has_no_key_of_its_own() {
        for bytes in [
            &b""[..],
            b"GET ",
            b"GET /terms",
            b"EHLO example.org\r\n",
            b"GET /terms RTSP/1.0\r\n\r\n",
        ] {
            assert_eq!(of_request("t:1", bytes), None);
        }
        assert_ne!(of_target("a:1"), of_target("a:2"));
        assert_eq!(of_target("a:1"), of_target("a:1 from 10.0.0.1"));
    }

    proptest! {
        #[test]
        fn hostile_requests_never_panic(bytes: Vec<u8>, cut in 0..REQUEST.len()) {
            of_request("t:1", &bytes);
            of_request("t:1", &[&REQUEST[..cut], &bytes].concat());
        }
    }
}
