//! The two ends of a link, which share no object: what passes between them is [`Sent`].

use std::collections::BTreeMap;

use refrain_codec::{
    Block, DecodeError, Decoder, EncodedBlock, Encoder, EncoderConfig, LogPosition, SourceCursor,
    chunk::hash::ChunkHasher,
    geometry::CacheGeometry,
    marker::{MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes},
    matching::{MatchingAlgorithm, Reach},
    simd::Backend,
};

/// The smallest cache, so that it wraps soon.
pub(crate) const CACHE_BYTES: usize = 1 << 20;

pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 10;

pub(crate) fn geometry() -> CacheGeometry {
    CacheGeometry::new(CACHE_BYTES).expect("a valid size")
}

/// The backend that `REFRAIN_SIMD` names, as for the program; the machine's best without.
pub(crate) fn backend() -> Backend {
    std::env::var("REFRAIN_SIMD").map_or(Backend::best(), |name| {
        name.parse().expect("instructions that this machine has")
    })
}

pub(crate) fn markers(algorithm: MarkerAlgorithm, period: usize, window: usize) -> MarkerFinder {
    MarkerFinder::new(
        algorithm,
        SamplingPeriod::new(period).expect("a valid period"),
        WindowBytes::new(window).expect("a valid window"),
        SampleByteTable::default(),
    )
}

pub(crate) fn config(matching: MatchingAlgorithm, markers: MarkerFinder) -> EncoderConfig {
    EncoderConfig {
        geometry: geometry(),
        matching,
        markers,
        chunk_hasher: ChunkHasher::default(),
        backend: backend(),
    }
}

/// One block as it travels.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub number: u64,
    pub flow: u8,
    pub at: LogPosition,
    pub len: usize,
    pub encoded: EncodedBlock,
}

impl Sent {
    pub(crate) fn as_block(&self) -> Block<'_> {
        Block {
            number: self.number,
            at: self.at,
            len: self.len,
            tokens: &self.encoded.tokens,
            literals: &self.encoded.literals,
            check: self.encoded.check,
        }
    }
}

pub(crate) struct Sender {
    encoder: Encoder,
    cursors: BTreeMap<u8, SourceCursor>,
    next_number: u64,
}

impl Sender {
    pub(crate) fn new(config: EncoderConfig) -> Self {
        Self {
            encoder: Encoder::new(config),
            cursors: BTreeMap::new(),
            next_number: 0,
        }
    }

    pub(crate) fn set_period(&mut self, period: SamplingPeriod) {
        self.encoder.set_period(period);
    }

    pub(crate) fn send(&mut self, flow: u8, block: &[u8], reach: &impl Reach) -> Sent {
        let number = self.next_number;
        self.next_number += 1;
        let cursor = self.cursors.entry(flow).or_default();
        let mut encoded = EncodedBlock::default();
        let at = self
            .encoder
            .encode(number, block, reach, cursor, &mut encoded);
        Sent {
            number,
            flow,
            at,
            len: block.len(),
            encoded,
        }
    }
}

pub(crate) struct Receiver {
    decoder: Decoder,
    pub cursors: BTreeMap<u8, SourceCursor>,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            decoder: Decoder::with_backend(geometry(), backend()),
            cursors: BTreeMap::new(),
        }
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.decoder.allocated_bytes()
    }

    /// The block's plain bytes. After an error the flow goes on with the cursor that it had.
    pub(crate) fn receive(&mut self, sent: &Sent) -> Result<Vec<u8>, DecodeError> {
        self.receive_block(sent.flow, sent.as_block())
    }

    /// Checks as well that bytes decoded before stay, and that an error adds none.
    pub(crate) fn receive_block(
        &mut self,
        flow: u8,
        block: Block<'_>,
    ) -> Result<Vec<u8>, DecodeError> {
        const BEFORE: &[u8] = b"decoded before";
        let mut cursor = self.cursors.get(&flow).copied().unwrap_or_default();
        let mut plain = BEFORE.to_vec();
        let decoded = self.decoder.decode(block, &mut cursor, &mut plain);
        let new = plain.split_off(BEFORE.len());
        assert_eq!(plain, BEFORE);
        match decoded {
            Ok(()) => {
                self.cursors.insert(flow, cursor);
                Ok(new)
            }
            Err(error) => {
                assert!(new.is_empty(), "bytes of a block with an error");
                Err(error)
            }
        }
    }
}
