//! A target as a peer names it on the wire: what parses writes itself as a text that names the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::target::{TARGET_BYTES_MAX, Target};

fuzz_target!(|bytes: &[u8]| {
    let Ok(target) = Target::from_wire(bytes) else {
        return;
    };
    assert_ne!(target.port, 0);
    let written = target.to_string();
    assert!(written.len() <= TARGET_BYTES_MAX);
    assert_eq!(Target::from_wire(written.as_bytes()), Ok(target));
});
