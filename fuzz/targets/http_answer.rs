//! What an origin sends through the HTTP proxy: however the bytes are split, the client gets the
//! same, and it begins with a head that is the proxy's own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::http_proxy::Answer;

fuzz_target!(|origin: &[u8]| {
    for may_switch in [false, true] {
        let whole = passed(origin, may_switch, origin.len().max(1));
        for piece_bytes in [1, 7] {
            assert_eq!(passed(origin, may_switch, piece_bytes), whole);
        }
        assert!(whole.starts_with(b"HTTP/1.1 "), "{whole:?}");
    }
});

/// What the client gets of `origin`, which comes in pieces and ends.
fn passed(origin: &[u8], may_switch: bool, piece_bytes: usize) -> Vec<u8> {
    let mut answer = Answer::new(may_switch);
    let mut out = Vec::new();
    for piece in origin.chunks(piece_bytes) {
        let mut piece = piece.to_vec();
        answer.pass(&mut piece);
        out.append(&mut piece);
    }
    out.extend(answer.finish());
    out
}
