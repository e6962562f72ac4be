//! DNS queries of programs: each is answered by a message that parses, or not at all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::virtual_names::VirtualNames;

fuzz_target!(|query: &[u8]| {
    let names = VirtualNames::default();
    if let Some(answer) = names.answer(query) {
        assert!(answer.len() <= 512);
        // An answer is not a query: two such servers would not answer each other for ever.
        assert_eq!(names.answer(&answer), None);
    }
});
