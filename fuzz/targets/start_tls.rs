//! Messages before TLS, of clients and of servers: each takes bytes, waits for more, or ends the matter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::start_tls::{MESSAGES_MAX, StartTls, Step};

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else {
        return;
    };
    let protocols: Vec<_> = StartTls::all().collect();
    let protocol = protocols[usize::from(kind >> 1) % protocols.len()];
    let mut dialogue = match kind & 1 {
        0 => protocol.as_server(),
        _ => protocol.as_client(),
    };
    let mut received = bytes.to_vec();
    for _ in 0..MESSAGES_MAX {
        let before = received.clone();
        match dialogue.next(&mut received) {
            Step::Say(_) => assert!(received.len() < before.len()),
            Step::Direct | Step::Plain => assert_eq!(received, before),
            _ => break,
        }
        assert!(before.ends_with(&received));
    }
});
