//! Byte ranges from web servers, right and wrong ones.

// A list of one range is what is meant.
#![allow(clippy::single_range_in_vec_init)]

mod answers;
mod changes;
mod connections;
mod lies;
mod no_ranges;
#[allow(dead_code)]
#[path = "../../../../tests/common/programs.rs"]
mod programs;
mod proxies;
mod ranges;
mod real_servers;
mod redirects;
mod retries;
// Other rooms of tests use more of it.
#[allow(dead_code)]
mod server;

use std::ops::Range;

use refrain_http_ranges::{Remote, RemoteError};
use server::options;

/// What a fetch hands on, in that order.
fn fetched(remote: &Remote, ranges: &[Range<u64>]) -> Result<Vec<(u64, Vec<u8>)>, RemoteError> {
    let mut fetched = Vec::new();
    remote.fetch(ranges, &mut |offset, bytes| {
        fetched.push((offset, bytes.to_vec()));
        Ok::<(), RemoteError>(())
    })?;
    Ok(fetched)
}

/// Fails unless `fetched` is all of `ranges`, and no more, in the order of the file.
fn assert_holds(fetched: &[(u64, Vec<u8>)], ranges: &[Range<u64>], file: &server::File) {
    let mut wanted = vec![false; file.bytes.len()];
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        wanted[range.start as usize..range.end as usize].fill(true);
    }
    let mut expected = (0..file.len()).filter(|offset| wanted[*offset as usize]);
    for (offset, bytes) in fetched {
        assert!(!bytes.is_empty());
        for (at, byte) in (*offset..).zip(bytes) {
            assert_eq!(expected.next(), Some(at));
            assert_eq!(*byte, file.bytes[at as usize], "at {at}");
        }
    }
    assert_eq!(expected.next(), None);
}
