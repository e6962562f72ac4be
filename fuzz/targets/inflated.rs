//! Content of captures that may be compressed: the same bytes in any pieces, and within bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_analysis::columns::InflatedStream;

fn inflated<'a>(is_http: bool, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut stream = InflatedStream::new(is_http);
    let mut out = Vec::new();
    for piece in pieces {
        stream.take(piece, &mut |bytes| out.extend_from_slice(bytes));
    }
    out
}

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else {
        return;
    };
    let (is_http, length) = (first % 2 == 1, usize::from(first / 2) + 1);
    let whole = inflated(is_http, [bytes].into_iter());
    // Each body may grow by a MiB, and has a head of four bytes at least.
    assert!(whole.len() <= bytes.len() * 201 + (bytes.len() / 4 + 1) * (1 << 20));
    assert!(
        whole == inflated(is_http, bytes.chunks(length)),
        "pieces of {length} give other bytes"
    );
});
