//! Arbitrary bytes as frames and as a hello: what is read, written again and read once more
//! is the same, and no prefix of it is more than incomplete.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_proto::{
    frame::Frame,
    hello::Hello,
    limits::{FRAME_BYTES_MAX, HELLO_BYTES_MAX},
};

/// A frame's type and the longest varint of its length.
const FRAME_HEADER_BYTES_MAX: usize = 11;

fuzz_target!(|input: &[u8]| {
    frames(input);
    hello(input);
});

fn frames(mut input: &[u8]) {
    let mut written = Vec::new();
    while let Ok(Some((frame, read))) = Frame::read(input) {
        assert!((1..=FRAME_HEADER_BYTES_MAX + FRAME_BYTES_MAX).contains(&read));
        assert_eq!(Frame::read(&input[..read - 1]), Ok(None));
        written.clear();
        frame.write(&mut written);
        assert_eq!(Frame::read(&written), Ok(Some((frame, written.len()))));
        if let Frame::Block(block) = frame {
            assert_eq!(block.wire_bytes(), written.len());
        }
        input = &input[read..];
    }
}

fn hello(input: &[u8]) {
    if let Ok(Some((hello, read))) = Hello::read(input) {
        assert_eq!(Hello::read(&input[..read - 1]), Ok(None));
        let mut written = Vec::new();
        hello.write(&mut written);
        assert!(written.len() <= HELLO_BYTES_MAX);
        assert_eq!(Hello::read(&written), Ok(Some((hello, written.len()))));
    }
}
