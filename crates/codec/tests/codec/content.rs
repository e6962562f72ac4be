//! Plain bytes as links see them: text, noise, zero runs, short periods, and repeats of all
//! that went before, as it was or with edits.

/// Small, seeded, and the same on every machine (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// 1 to `max`, each magnitude as likely as any other.
    pub(crate) fn length(&mut self, max: usize) -> usize {
        let magnitude = 1 << self.below(max.ilog2() as usize + 1);
        (magnitude + self.below(magnitude)).min(max)
    }

    pub(crate) fn noise(&mut self, len: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.next() as u8)
            .take(len)
            .collect()
    }
}

/// Words of the paper's introduction, in random order.
pub(crate) fn text(random: &mut Random, len: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "endpoint ",
        "redundancy ",
        "elimination ",
        "of ",
        "the ",
        "network ",
        "service ",
        "is ",
        "branch ",
        "office ",
        "to ",
        "an ",
        "enterprise ",
        "and\n",
        "link, ",
        "cost. ",
    ];
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        text.extend_from_slice(WORDS[random.below(WORDS.len())].as_bytes());
    }
    text.truncate(len);
    text
}

/// `original` with bytes changed, put in and taken out, about one edit in `distance` bytes.
pub(crate) fn edited(random: &mut Random, original: &[u8], distance: usize) -> Vec<u8> {
    let mut copy = Vec::with_capacity(original.len());
    let mut rest = original;
    while !rest.is_empty() {
        let (kept, after) = rest.split_at(random.below(2 * distance).min(rest.len()));
        copy.extend_from_slice(kept);
        let edit = random.length(8);
        rest = match random.below(3) {
            0 => after,
            1 => &after[edit.min(after.len())..],
            _ => &after[1.min(after.len())..],
        };
        if !random.one_in(3) {
            copy.extend(random.noise(edit));
        }
    }
    copy
}

/// An endless source of blocks, each made of several kinds of content.
pub(crate) struct Content {
    random: Random,
    /// All blocks so far, or the younger half of them.
    history: Vec<u8>,
}

/// How much of its past the content repeats.
const HISTORY_BYTES: usize = 2 << 20;

impl Content {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            history: Vec::new(),
        }
    }

    /// A block of 1 byte to `bytes_max`.
    pub(crate) fn block(&mut self, bytes_max: usize) -> Vec<u8> {
        let len = self.random.length(bytes_max);
        let mut block = Vec::with_capacity(len);
        while block.len() < len {
            let part = self.part();
            block.extend_from_slice(&part[..part.len().min(len - block.len())]);
        }
        if self.history.len() >= HISTORY_BYTES {
            self.history.drain(..HISTORY_BYTES / 2);
        }
        self.history.extend_from_slice(&block);
        block
    }

    fn part(&mut self) -> Vec<u8> {
        let len = self.random.length(16 << 10);
        match self.random.below(8) {
            0 => self.random.noise(len),
            1 => text(&mut self.random, len),
            2 => vec![0; len],
            3 => {
                let period = self.random.length(300);
                self.random.noise(period).repeat(len.div_ceil(period))
            }
            4 | 5 => self.past(len).to_vec(),
            _ => {
                let past = self.past(len).to_vec();
                let distance = self.random.length(1000);
                edited(&mut self.random, &past, distance)
            }
        }
    }

    fn past(&mut self, len: usize) -> &[u8] {
        let len = len.min(self.history.len());
        let start = self.random.below(self.history.len() - len + 1);
        &self.history[start..start + len]
    }
}
