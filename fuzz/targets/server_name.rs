//! The first bytes of a redirected client: a name that was found stays the same with more bytes, and it can be a name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::intercept::server_name::{Search, search};

fuzz_target!(|received: &[u8]| {
    let whole = search(received);
    if let Search::Found(name) = &whole {
        assert!(name.len() <= 255 && !name.is_empty());
        assert_eq!(*name, name.to_ascii_lowercase());
    }
    // Every prefix of a short input, some of a long one: each search begins again.
    let step = received.len() / 128 + 1;
    for length in (0..received.len()).step_by(step) {
        match search(&received[..length]) {
            Search::More => {}
            decided => assert_eq!(decided, whole),
        }
    }
});
