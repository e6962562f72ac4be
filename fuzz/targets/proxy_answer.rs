//! What a proxy answers to a near end that asks for a tunnel: whatever it is, the head is read within its bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::via_proxy::Answer;

fuzz_target!(|received: &[u8]| {
    if let Ok(Some((answer, head))) = Answer::read(received) {
        assert!(head > 0 && head <= received.len());
        assert!(received[..head].ends_with(b"\n"));
        assert!(!format!("{answer:?}").contains(char::is_control));
    }
});
