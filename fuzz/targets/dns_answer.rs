//! Packets that the firewall copies for a near end: whatever they are, a DNS answer in them is read within its bounds, its
//! name can be that of a host, and its addresses are in it.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use refrain_gateway::intercept::dns_names::read_answer;

fuzz_target!(|message: &[u8]| {
    let Some(answer) = read_answer(message) else {
        return;
    };
    assert!(!answer.name.is_empty() && answer.name.len() <= 255);
    assert_eq!(answer.name, answer.name.to_ascii_lowercase());
    assert!(answer.name.parse::<IpAddr>().is_err());
    assert!(answer.addresses.len() <= 16);
    for address in answer.addresses.into_iter().chain([answer.client]) {
        let octets = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        assert!(message.windows(octets.len()).any(|bytes| bytes == octets));
    }
});
