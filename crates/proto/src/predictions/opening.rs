//! What a flow looks like before its first byte: the key of its opening.
//!
//! Where the receiver's own first bytes are an HTTP/1 request, the key is the request line and
//! the host, else the target alone: never the raw first bytes, whose split is an accident
//! (`docs/architecture.md`, 20). A key is 64 bits of a hash: who finds two requests with one
//! key gets a wrong prediction, and nothing else.

use crate::{limits::HTTP_HEAD_BYTES_MAX, targets::place};

const METHODS: [&[u8]; 4] = [b"GET ", b"HEAD ", b"POST ", b"PUT "];

/// The key of a flow to `target` of which nothing more is known.
pub(crate) fn of_target(target: &str) -> u64 {
    refrain_codec::check(1, place(target).as_bytes())
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
    let mut text = place(target).as_bytes().to_vec();
    for part in [line, host] {
        text.push(b'\n');
        text.extend_from_slice(part);
    }
    Some(refrain_codec::check(2, &text))
}

#[cfg(test)]
mod tests {
    use super::*;
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
