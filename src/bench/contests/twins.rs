//! Our algorithms as good programs without vectors would have them: what a speed-up is
//! measured from. The references of `codec` are slower still: they are written to be read.

use refrain_codec::{
    marker::{
        MarkerFinder, PackMask, SampleByteTable, WindowBytes,
        pack::WINDOW_BYTES as PACK_WINDOW_BYTES,
    },
    reference::max_match::MaxMatch,
};

use super::{
    BLOCK_BYTES,
    walk::{Pass, Work},
};

/// PACK's anchors as in Proc. 8 of the paper, of a stream that begins with `block`.
pub fn anchors(block: &[u8], mask: PackMask, found: &mut Vec<u64>) {
    found.clear();
    let mask = mask.bits();
    let mut rolling = 0_u64;
    for (index, &byte) in block.iter().enumerate() {
        rolling = (rolling << 1) ^ u64::from(byte);
        if rolling & mask == mask
            && let Some(first) = (index + 1).checked_sub(PACK_WINDOW_BYTES)
        {
            found.push(first as u64);
        }
    }
}

/// SAMPLEBYTE as in Figure 3 of EndRE: a look-up a byte, and the skip.
pub fn samplebyte(block: &[u8], period: usize, table: &SampleByteTable, found: &mut Vec<u32>) {
    found.clear();
    let count = (block.len() + 1).saturating_sub(WindowBytes::DEFAULT.bytes());
    let mut i = 0;
    while i < count {
        if table.contains(block[i]) {
            found.push(i as u32);
            i += period / 2;
        }
        i += 1;
    }
}

/// MODP as in Figure 2 of EndRE: a fingerprint that rolls by two look-ups a byte.
///
/// Any polynomial and any bits cost the same; these are not the codec's.
pub struct Modp {
    window: usize,
    /// What the top byte becomes when it is shifted out.
    reduced: [u64; 256],
    /// What a byte has become when it leaves the window.
    left: [u64; 256],
}

impl Modp {
    const POLYNOMIAL: u64 = 0x1b;

    pub fn new(window: usize) -> Self {
        let mut modp = Self {
            window,
            reduced: [0; 256],
            left: [0; 256],
        };
        for byte in 0..256 {
            let times_x = |value: u64, _| (value << 1) ^ ((value >> 63) * Self::POLYNOMIAL);
            modp.reduced[byte] = (0..64).fold(byte as u64, times_x);
            modp.left[byte] = (0..8 * window).fold(byte as u64, times_x);
        }
        modp
    }

    pub fn find(&self, block: &[u8], period: usize, found: &mut Vec<u32>) {
        found.clear();
        let mask = (period as u64 - 1) << 20;
        let mut fingerprint = 0;
        for (position, &entering) in block.iter().enumerate() {
            fingerprint = self.append(fingerprint, entering);
            let Some(marker) = (position + 1).checked_sub(self.window) else {
                continue;
            };
            if let Some(before) = marker.checked_sub(1) {
                fingerprint ^= self.left[usize::from(block[before])];
            }
            if fingerprint & mask == mask {
                found.push(marker as u32);
            }
        }
    }

    fn append(&self, fingerprint: u64, byte: u8) -> u64 {
        (fingerprint << 8 | u64::from(byte)) ^ self.reduced[(fingerprint >> 56) as usize]
    }
}

/// MAXP over bytes.
pub fn maxp_of_bytes(block: &[u8], period: usize, found: &mut Vec<u32>) {
    maxp_of(block, period, |at| block[at], found);
}

/// MAXP over eight-byte values.
pub fn maxp(block: &[u8], period: usize, found: &mut Vec<u32>) {
    let value = |at: usize| {
        let bytes = block[at..].first_chunk().expect("a window has eight bytes");
        u64::from_be_bytes(*bytes)
    };
    maxp_of(block, period, value, found);
}

/// Looks ahead as long as values fall, then back.
fn maxp_of<V: Ord>(block: &[u8], period: usize, value: impl Fn(usize) -> V, found: &mut Vec<u32>) {
    found.clear();
    let reach = period / 2;
    let count = (block.len() + 1).saturating_sub(WindowBytes::DEFAULT.bytes());
    let mut i = 0;
    while i < count {
        let peak = value(i);
        let mut ahead = i + 1..count.min(i + reach + 1);
        if let Some(larger) = ahead.find(|&other| value(other) > peak) {
            i = larger;
            continue;
        }
        // Until `reach` after it, only positions of the same value could be maxima.
        let mut behind = i.saturating_sub(reach)..i;
        match behind.rfind(|&other| value(other) > peak) {
            Some(larger) => i = (i + 1).max(larger + reach + 1),
            None => {
                found.push(i as u32);
                i += reach + 1;
            }
        }
    }
}

/// Max-Match by the book. It forgets nothing, so it starts anew when it holds a few logs' bytes.
pub struct NaiveMaxMatch<'a> {
    finder: MarkerFinder,
    /// What it has seen before it is measured.
    known: &'a [u8],
    reference: MaxMatch,
    room: usize,
}

impl<'a> NaiveMaxMatch<'a> {
    const HISTORY_BYTES_MAX: usize = 64 << 20;

    pub fn new(finder: MarkerFinder, known: &'a [u8]) -> Self {
        Self {
            reference: MaxMatch::new(finder.clone()),
            finder,
            known,
            room: 0,
        }
    }
}

impl<'a> Work<'a> for NaiveMaxMatch<'a> {
    fn prepare(&mut self) {
        if self.room == 0 {
            self.reference = MaxMatch::new(self.finder.clone());
            for block in self.known.chunks(BLOCK_BYTES) {
                self.reference.encode(block);
            }
            self.room = Self::HISTORY_BYTES_MAX;
        }
    }

    fn run(&mut self, pass: Pass<'a>) {
        for (_, block) in pass.blocks() {
            std::hint::black_box(self.reference.encode(block));
        }
        self.room = self.room.saturating_sub(pass.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::{super::markers::finder, *};
    use refrain_codec::marker::{AnchorFinder, FindMarkers, MarkerAlgorithm};

    fn blocks() -> impl Iterator<Item = Vec<u8>> {
        let text = include_bytes!("twins.rs").to_vec();
        let mut noise = vec![0; 5000];
        super::super::Noise::new(3).fill(&mut noise);
        [text, noise, vec![0; 3000], b"abc".repeat(500), Vec::new()].into_iter()
    }

    #[test]
    fn twins_find_what_the_finders_find() {
        for block in blocks() {
            let (mut ours, mut twin) = (Vec::new(), Vec::new());
            finder(MarkerAlgorithm::SampleByte, 64).find(&block, &mut ours);
            samplebyte(&block, 64, &SampleByteTable::default(), &mut twin);
            assert_eq!(twin, ours);
            finder(MarkerAlgorithm::Maxp, 64).find(&block, &mut ours);
            maxp(&block, 64, &mut twin);
            assert_eq!(twin, ours);
            finder(MarkerAlgorithm::MaxpBytes, 64).find(&block, &mut ours);
            maxp_of_bytes(&block, 64, &mut twin);
            assert_eq!(twin, ours);
            let (mut ours, mut twin) = (Vec::new(), Vec::new());
            AnchorFinder::new(PackMask::DEFAULT).feed(&block, &mut ours);
            anchors(&block, PackMask::DEFAULT, &mut twin);
            assert_eq!(twin, ours);
        }
    }

    /// What a window's fingerprint is must not depend on what came before it.
    #[test]
    fn the_fingerprint_rolls() {
        let modp = Modp::new(32);
        for block in blocks() {
            let mut found = Vec::new();
            modp.find(&block, 64, &mut found);
            let alone = (0..(block.len() + 1).saturating_sub(32)).filter(|&at| {
                let mut alone = Vec::new();
                modp.find(&block[at..at + 32], 64, &mut alone);
                alone == [0]
            });
            assert!(alone.map(|at| at as u32).eq(found));
        }
    }
}
