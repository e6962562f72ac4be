//! What flows carry: bytes that follow from a seed and an offset alone, so that both sides
//! can make them piece by piece and compare without keeping any.

/// What a flow carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Blocks that other flows carry too, text, and noise.
    Mixed,
    /// Noise: nothing repeats, nothing shrinks.
    Noise,
    /// Words of letters at random: nothing repeats, and zstd takes a third.
    Letters,
}

/// One direction of one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    seed: u64,
    kind: Kind,
}

/// What is drawn at once.
const BLOCK_BYTES: u64 = 4096;

/// Blocks that flows share.
const SHARED_BLOCKS: u64 = 1024;

impl Content {
    pub(crate) fn new(seed: u64, kind: Kind) -> Self {
        Self { seed, kind }
    }

    /// The bytes from `offset` on.
    pub(crate) fn fill(&self, mut offset: u64, mut out: &mut [u8]) {
        let mut block = [0; BLOCK_BYTES as usize];
        while !out.is_empty() {
            self.block(offset / BLOCK_BYTES, &mut block);
            let from = (offset % BLOCK_BYTES) as usize;
            let len = out.len().min(block.len() - from);
            out[..len].copy_from_slice(&block[from..from + len]);
            out = &mut out[len..];
            offset += len as u64;
        }
    }

    /// Whether `bytes` are what belongs at `offset`.
    pub(crate) fn is_at(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut expected = vec![0; bytes.len()];
        self.fill(offset, &mut expected);
        expected == bytes
    }

    fn block(&self, index: u64, block: &mut [u8; BLOCK_BYTES as usize]) {
        let drawn = mix(self.seed ^ mix(index));
        match (self.kind, drawn % 10) {
            (Kind::Mixed, 0..=4) => fill_with_noise(mix(drawn / 10 % SHARED_BLOCKS), block),
            (Kind::Mixed, 5..=7) => fill_with_text(drawn, block),
            (Kind::Letters, _) => fill_with_letters(drawn, block),
            _ => fill_with_noise(drawn, block),
        }
    }
}

/// The start of [`Kind::Noise`].
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    start(seed, Kind::Noise, bytes)
}

/// The start of [`Kind::Letters`].
pub(crate) fn letters(seed: u64, bytes: usize) -> Vec<u8> {
    start(seed, Kind::Letters, bytes)
}

fn start(seed: u64, kind: Kind, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Content::new(seed, kind).fill(0, &mut content);
    content
}

/// SplitMix64's output function.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn fill_with_noise(seed: u64, out: &mut [u8]) {
    for (index, word) in out.chunks_mut(8).enumerate() {
        let bytes = mix(seed.wrapping_add(index as u64 * 0x9e37_79b9)).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

fn fill_with_letters(seed: u64, out: &mut [u8]) {
    fill_with_noise(seed, out);
    for byte in out {
        *byte = match *byte {
            0..=31 => b' ',
            drawn => b'a' + drawn % 26,
        };
    }
}

/// Words of a small vocabulary, which zstd likes.
fn fill_with_text(seed: u64, out: &mut [u8]) {
    const WORDS: [&[u8]; 16] = [
        b"refrain ",
        b"verse ",
        b"again ",
        b"link ",
        b"flow ",
        b"lane ",
        b"cache ",
        b"token ",
        b"region ",
        b"block ",
        b"marker ",
        b"window ",
        b"<p>",
        b"</p>\n",
        b"the ",
        b"of ",
    ];
    let mut at = 0;
    let mut state = seed;
    while at < out.len() {
        state = mix(state);
        for draw in 0..16 {
            let word = WORDS[(state >> (4 * draw)) as usize % WORDS.len()];
            let len = word.len().min(out.len() - at);
            out[at..at + len].copy_from_slice(&word[..len]);
            at += len;
        }
    }
}
