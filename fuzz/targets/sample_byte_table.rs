//! A SAMPLEBYTE table as a user's file: what parses holds a value, and says the same when it is
//! written out again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_codec::marker::SampleByteTable;

fuzz_target!(|text: &str| {
    let Ok(table) = SampleByteTable::parse(text) else {
        return;
    };
    let values: Vec<u8> = (0..=255).filter(|&value| table.contains(value)).collect();
    assert_eq!(SampleByteTable::from_bytes(&values).as_ref(), Ok(&table));
    assert_eq!(
        SampleByteTable::parse(&format!("{values:?}").replace(['[', ']'], "")),
        Ok(table)
    );
});
