//! Which names a run surely does not hold, in about ten bits a name: a Bloom filter split into blocks
//! of a cache line's half, so that a look-up costs one miss (Putze et al., WEA 2007; the parameters are
//! those of Parquet's). At ten bits a name it is wrong, on the safe side, for about one name of 80.

/// Odd multipliers, one a word.
const SALTS: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];
const BLOCK_BYTES: usize = 32;

#[derive(Debug)]
pub(super) struct Filter {
    blocks: Box<[[u32; 8]]>,
}

impl Filter {
    /// An empty filter of at most `bytes` bytes, if that is a block or more.
    pub fn new(bytes: usize) -> Self {
        let blocks = (bytes / BLOCK_BYTES).max(1);
        Self {
            blocks: vec![[0; 8]; blocks].into(),
        }
    }

    pub fn insert(&mut self, prefix: u64) {
        let block = self.block(prefix);
        for (word, bit) in self.blocks[block].iter_mut().zip(bits(prefix)) {
            *word |= bit;
        }
    }

    pub fn may_hold(&self, prefix: u64) -> bool {
        let block = &self.blocks[self.block(prefix)];
        let missing = block
            .iter()
            .zip(bits(prefix))
            .map(|(word, bit)| !word & bit);
        missing.fold(0, |all, bit| all | bit) == 0
    }

    pub fn memory_bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// By the upper half; the lower one says which bits.
    fn block(&self, prefix: u64) -> usize {
        (((prefix >> 32) * self.blocks.len() as u64) >> 32) as usize
    }
}

fn bits(prefix: u64) -> impl Iterator<Item = u32> {
    let low = prefix as u32;
    SALTS
        .iter()
        .map(move |salt| 1 << (low.wrapping_mul(*salt) >> 27))
}
