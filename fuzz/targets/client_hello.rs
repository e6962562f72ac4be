//! The first bytes of a client that may speak TLS: a hello is found at its last byte, and not before.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::client_hello::Beginning;

fuzz_target!(|bytes: &[u8]| {
    let is_hello = matches!(Beginning::of(bytes), Beginning::Hello(_));
    let step = bytes.len() / 64 + 1;
    for length in (0..bytes.len()).step_by(step) {
        match Beginning::of(&bytes[..length]) {
            Beginning::More => {}
            Beginning::Hello(accepted) => {
                let _ = accepted.client_hello().server_name();
            }
            // What follows cannot mend it.
            Beginning::Other => assert!(!is_hello),
        }
    }
});
