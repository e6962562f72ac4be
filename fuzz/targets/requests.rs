//! Logs of requests: any lines are read or refused, and their sums stay within bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_analysis::requests::{
    Requests,
    servers::{Work, servers},
    trace::parse,
};

fuzz_target!(|log: &[u8]| {
    // Few objects are kept, so that some are forgotten.
    let mut requests = Requests::new(1_000);
    let mut count = 0;
    for line in log.split(|byte| *byte == b'\n') {
        if let Some(request) = parse(line) {
            count += 1;
            requests.request(&request);
        }
    }
    let found = requests.finish();
    assert_eq!(found.requests + found.other_requests, count);
    assert!(found.same_client.by_cache_size.is_sorted());
    let bytes = found.intervals.iter().map(|interval| interval.bytes);
    let sum = bytes.fold(0_u64, u64::saturating_add);
    assert_eq!(sum, found.total_bytes());
    let work = Work {
        by_byte: 0.2,
        by_repeated_byte: 0.2,
    };
    assert_eq!(servers(&found, 1e9, work).len(), found.intervals.len());
});
