//! A decoder by the book: it keeps every byte that was ever sent, reads the token format as
//! `refrain_codec::token` documents it, and tells what each region refers to.

use std::{collections::BTreeMap, ops::Range};

use refrain_codec::token::{REGION_BYTES_MIN, take_varint, unzigzag};

use crate::ends::{Sent, geometry};

#[derive(Default)]
pub(crate) struct Model {
    /// Each byte at its log position.
    history: Vec<u8>,
    expected_sources: BTreeMap<u8, u64>,
}

impl Model {
    /// The block's plain bytes, and the log ranges that it refers to.
    ///
    /// # Panics
    /// If a region lies outside of what a block may refer to at all.
    pub(crate) fn receive(&mut self, sent: &Sent) -> (Vec<u8>, Vec<Range<u64>>) {
        let at = sent.at.0;
        let oldest = geometry().oldest_for(sent.at + sent.len as u64).0;
        assert_eq!(at, self.history.len() as u64, "positions have no gaps");

        let mut tokens = &sent.encoded.tokens[..];
        let mut literals = &sent.encoded.literals[..];
        let mut sources = Vec::new();
        let mut expected = self.expected_sources.get(&sent.flow).copied();
        while !tokens.is_empty() {
            let mut next = || take_varint(&mut tokens).expect("a varint");
            let (run, len, step) = (next(), next() + REGION_BYTES_MIN as u64, unzigzag(next()));
            let source = expected
                .map_or(at, |expected| expected + run)
                .checked_add_signed(step)
                .expect("a position");
            self.take_literals(&mut literals, run as usize);
            let region = source..source + len;
            assert!(
                oldest <= region.start && region.end <= self.history.len() as u64,
                "{region:?} is not in {oldest}..{}",
                self.history.len()
            );
            self.history
                .extend_from_within(region.start as usize..region.end as usize);
            expected = Some(region.end);
            sources.push(region);
        }
        let last_run = literals.len();
        self.take_literals(&mut literals, last_run);
        if let Some(expected) = expected {
            self.expected_sources
                .insert(sent.flow, expected + last_run as u64);
        }

        let covered: u64 = sources.iter().map(|source| source.end - source.start).sum();
        assert_eq!(covered, sent.encoded.region_bytes as u64);
        let longest = sources
            .iter()
            .max_by_key(|source| source.end - source.start);
        assert_eq!(
            longest.map(|longest| longest.end - longest.start),
            sent.encoded.longest_source.and_then(|start| {
                let at_start = sources.iter().filter(|source| source.start == start.0);
                at_start.map(|source| source.end - source.start).max()
            })
        );
        let plain = self.history[at as usize..].to_vec();
        assert_eq!(plain.len(), sent.len);
        (plain, sources)
    }

    fn take_literals(&mut self, literals: &mut &[u8], len: usize) {
        let (run, rest) = literals.split_at(len);
        self.history.extend_from_slice(run);
        *literals = rest;
    }
}
