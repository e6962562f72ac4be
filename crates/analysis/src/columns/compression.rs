//! Each block compressed alone.

use std::io::Read;

use flate2::{Compression as Level, read::GzEncoder};

use super::{Column, Outcome};
use crate::blocks::Step;

/// Smaller blocks show nothing about their content.
const DENSITY_BYTES_MIN: usize = 256;

enum Method {
    Gzip,
    Zstd(zstd::bulk::Compressor<'static>),
}

/// A block that would become longer is sent as it is.
pub(super) struct Compression {
    method: Method,
    /// By group.
    dense_bytes: Vec<u64>,
    outcome: Outcome,
    out: Vec<u8>,
}

impl Compression {
    pub(super) fn gzip() -> Self {
        Self::by(Method::Gzip)
    }

    pub(super) fn zstd() -> Self {
        Self::by(Method::Zstd(compressor()))
    }

    fn by(method: Method) -> Self {
        Self {
            method,
            dense_bytes: Vec::new(),
            outcome: Outcome::default(),
            out: Vec::new(),
        }
    }
}

/// As a gateway compresses at its default level.
pub(super) fn compressor() -> zstd::bulk::Compressor<'static> {
    zstd::bulk::Compressor::new(3).expect("a valid level")
}

impl Column for Compression {
    fn step(&mut self, step: Step<'_>) {
        let Step::Block { flow, bytes, .. } = step else {
            return;
        };
        self.out.clear();
        match &mut self.method {
            Method::Gzip => {
                let mut encoder = GzEncoder::new(bytes, Level::default());
                encoder
                    .read_to_end(&mut self.out)
                    .expect("memory has no errors");
            }
            Method::Zstd(compressor) => {
                self.out
                    .reserve(zstd::zstd_safe::compress_bound(bytes.len()));
                let written = compressor.compress_to_buffer(bytes, &mut self.out);
                written.expect("the buffer has its bound");
            }
        }
        let compressed = self.out.len();
        self.outcome
            .add(flow.group, compressed.min(bytes.len()) as u64);
        if bytes.len() >= DENSITY_BYTES_MIN && compressed * 100 > bytes.len() * 95 {
            let group = flow.group.0 as usize;
            if self.dense_bytes.len() <= group {
                self.dense_bytes.resize(group + 1, 0);
            }
            self.dense_bytes[group] += bytes.len() as u64;
        }
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        if matches!(self.method, Method::Zstd(_)) {
            self.outcome.details.dense_bytes = Some(self.dense_bytes);
        }
        self.outcome
    }
}
