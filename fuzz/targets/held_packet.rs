//! Packets that the firewall hands to a near end: whatever they are, they are read within their bounds, and what is said of
//! them is in them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::intercept::queue::read_packet;

fuzz_target!(|message: &[u8]| {
    let Some(packet) = read_packet(message) else {
        return;
    };
    if let Some((source, destination)) = packet.opens {
        assert_eq!(source.is_ipv4(), destination.is_ipv4());
        for end in [source, destination] {
            let port = end.port().to_be_bytes();
            assert!(message.windows(2).any(|bytes| bytes == port));
        }
    }
});
