//! A text that opens a flow, as a peer writes it: the text of anything that parses names the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::target::{FlowTarget, TARGET_BYTES_MAX};

fuzz_target!(|text: &str| {
    let Ok(target) = FlowTarget::from_wire(text) else {
        return;
    };
    assert_ne!(target.target.port, 0);
    let written = target.to_string();
    assert!(written.len() <= TARGET_BYTES_MAX);
    assert_eq!(FlowTarget::from_wire(&written), Ok(target));
});
