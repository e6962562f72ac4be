//! A SOCKS5 client's greeting, login and request, and a SOCKS4 client's request: however the bytes are split, the answer is that of the
//! first prefix that decides, and a message of the greatest length decides.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use refrain_gateway::socks4;
use refrain_gateway::socks5::{
    LOGIN_BYTES_MAX, MESSAGE_BYTES_MAX, Method, parse_greeting, parse_login, parse_request,
};

fuzz_target!(|received: &[u8]| {
    let open = |received: &[u8]| parse_greeting(received, Method::NoAuthentication);
    check_any_split(received, MESSAGE_BYTES_MAX, open);
    let with_password = |received: &[u8]| parse_greeting(received, Method::Password);
    check_any_split(received, MESSAGE_BYTES_MAX, with_password);
    check_any_split(received, LOGIN_BYTES_MAX, parse_login);
    check_any_split(received, MESSAGE_BYTES_MAX, parse_request);
    check_any_split(received, socks4::REQUEST_BYTES_MAX, socks4::parse_request);
});

fn check_any_split<M: PartialEq + Debug, E: PartialEq + Debug>(
    received: &[u8],
    bytes_max: usize,
    parse: fn(&[u8]) -> Result<Option<(M, usize)>, E>,
) {
    let whole = parse(received);
    let prefixes = (0..=received.len()).map(|length| &received[..length]);
    let decided = prefixes
        .map(|prefix| (prefix, parse(prefix)))
        .find(|(_, parsed)| *parsed != Ok(None));
    match decided {
        None => assert!(received.len() < bytes_max),
        Some((prefix, parsed)) => {
            if let Ok(Some((_, length))) = parsed {
                assert_eq!(length, prefix.len());
            }
            assert_eq!(whole, parsed);
        }
    }
}
