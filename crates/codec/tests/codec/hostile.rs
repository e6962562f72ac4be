//! Tokens from a peer that lies: typed errors, nothing emitted, the log as it was, and no
//! memory beyond the block's announced length.

use proptest::{collection::vec, prelude::*};
use refrain_codec::{
    Block, DecodeError, Decoder, LogPosition, SourceCursor, check,
    marker::MarkerAlgorithm,
    matching::{Everything, MatchingAlgorithm},
    token::{REGION_BYTES_MIN, push_varint, zigzag},
};

use crate::{
    content::{Random, edited},
    ends::{CACHE_BYTES, Receiver, Sender, Sent, config, geometry, markers},
};

const VERSE_BYTES: usize = 200_000;

/// A receiver that has a verse in its log, and honest blocks that refer to all of it.
struct Scene {
    verse: Vec<u8>,
    receiver: Receiver,
    /// Each with its plain bytes.
    next: Vec<(Sent, Vec<u8>)>,
}

impl Scene {
    fn new() -> Self {
        let mut random = Random::new(1);
        let verse = random.noise(VERSE_BYTES);
        let mut sender = Sender::new(config(
            MatchingAlgorithm::MaxMatch,
            markers(MarkerAlgorithm::SampleByte, 32, 32),
        ));
        let mut receiver = Receiver::new();
        for block in verse.chunks(50_000) {
            let sent = sender.send(0, block, &Everything);
            receiver.receive(&sent).expect("honest");
        }
        let next = edited(&mut random, &verse, 2000)
            .chunks(20_000)
            .map(|block| (sender.send(0, block, &Everything), block.to_vec()))
            .collect();
        Self {
            verse,
            receiver,
            next,
        }
    }

    /// Hands over a lie about a block: it must be refused, or be the truth in other words.
    fn lie(&mut self, block: Block<'_>, truth: &[u8]) -> Result<(), DecodeError> {
        let allocated = self.receiver.allocated_bytes();
        let cursors = self.receiver.cursors.clone();
        let decoded = self.receiver.receive_block(0, block);
        self.receiver.cursors = cursors;
        match decoded {
            Ok(plain) => {
                assert!(plain == truth, "wrong bytes");
                Ok(())
            }
            Err(error) => {
                assert_eq!(self.receiver.allocated_bytes(), allocated);
                Err(error)
            }
        }
    }

    /// Every byte of the log is as honest blocks left it.
    fn assert_unharmed(&mut self) {
        let at = self.next[0].0.at;
        let mut tokens = Vec::new();
        push_region(&mut tokens, 0, VERSE_BYTES, -(at.0 as i64));
        let block = Block {
            number: 0,
            at,
            len: VERSE_BYTES,
            tokens: &tokens,
            literals: &[],
            check: check(0, &self.verse),
        };
        let decoded = self.receiver.receive_block(9, block);
        assert_eq!(decoded.as_ref(), Ok(&self.verse));
    }
}

/// A region, `step` from where the flow's last source would go on.
fn push_region(tokens: &mut Vec<u8>, literals: usize, len: usize, step: i64) {
    push_varint(tokens, literals as u64);
    push_varint(tokens, (len - REGION_BYTES_MIN) as u64);
    push_varint(tokens, zigzag(step));
}

#[cfg(not(refrain_weak_hashes))]
#[test]
fn flipped_and_truncated_blocks_are_refused() {
    let mut scene = Scene::new();
    let mut random = Random::new(2);
    let (mut refused, mut tries) = (0, 0);
    for (sent, truth) in scene.next.clone() {
        for _ in 0..100 {
            let mut lie = sent.clone();
            match random.below(6) {
                0 => {
                    let byte = random.below(lie.encoded.tokens.len());
                    lie.encoded.tokens[byte] ^= 1 << random.below(8);
                }
                1 => {
                    let byte = random.below(lie.encoded.literals.len());
                    lie.encoded.literals[byte] ^= 1 << random.below(8);
                }
                2 => {
                    let len = random.below(lie.encoded.tokens.len());
                    lie.encoded.tokens.truncate(len);
                }
                3 => {
                    let len = random.below(lie.encoded.literals.len());
                    lie.encoded.literals.truncate(len);
                }
                4 => lie.encoded.check ^= 1 << random.below(64),
                _ => lie.len = random.below(2 * lie.len),
            }
            refused += usize::from(scene.lie(lie.as_block(), &truth).is_err());
            tries += 1;
        }
        assert_eq!(scene.receiver.receive(&sent).as_ref(), Ok(&truth));
    }
    // A flip may rename a source whose bytes are the same, or change nothing at all.
    assert!(refused * 100 > tries * 95, "{refused} of {tries}");
    scene.assert_unharmed();
}

proptest! {
    #[test]
    fn random_blocks_are_refused(
        lies in vec((
            vec(any::<u8>(), 0..200),
            vec(any::<u8>(), 0..200),
            prop_oneof![0..1000_usize, any::<usize>()],
            prop_oneof![3 => Just(None), 1 => any::<u64>().prop_map(Some)],
        ), 1..20),
        any_check: u64,
    ) {
        let mut scene = Scene::new();
        let next_at = scene.next[0].0.at;
        for (tokens, literals, len, at) in lies {
            let block = Block {
                number: 0,
                at: at.map_or(next_at, LogPosition),
                len,
                tokens: &tokens,
                literals: &literals,
                check: any_check,
            };
            prop_assert!(scene.lie(block, &[]).is_err());
        }
        scene.assert_unharmed();
    }
}

/// What each lie is refused for. The block begins at position 1000, after as many bytes.
#[test]
fn each_lie_has_its_error() {
    use DecodeError::{CheckMismatch, MalformedTokens, OutOfBounds, WrongLength};
    let known: Vec<u8> = Random::new(3).noise(1000);
    let region = |literals, len, step| {
        let mut tokens = Vec::new();
        push_region(&mut tokens, literals, len, step);
        tokens
    };
    let varints = |values: &[u64]| {
        let mut tokens = Vec::new();
        values
            .iter()
            .for_each(|&value| push_varint(&mut tokens, value));
        tokens
    };
    let outside = |source| DecodeError::SourceOutOfCache {
        source: LogPosition(source),
    };
    // tokens, literals, the block's length, its error
    let lies: Vec<(Vec<u8>, usize, usize, DecodeError)> = vec![
        (vec![0x80], 0, 100, MalformedTokens),
        (varints(&[0, 0]), 0, 8, MalformedTokens),
        (vec![0xff; 30], 0, 100, MalformedTokens),
        (varints(&[1 << 32, 0, 0]), 0, 100, MalformedTokens),
        (varints(&[0, 1 << 32, 0]), 0, 100, MalformedTokens),
        (varints(&[0, u64::MAX, 0]), 0, 100, MalformedTokens),
        (region(11, 8, -500), 10, 100, WrongLength),
        (region(0, 101, -500), 0, 100, WrongLength),
        (region(50, 51, -500), 50, 100, WrongLength),
        (region(0, u32::MAX as usize, -500), 0, 100, WrongLength),
        (region(0, 50, -500), 49, 100, WrongLength),
        (region(0, 50, -500), 51, 100, WrongLength),
        (vec![], 101, 100, WrongLength),
        (region(0, 100, -99), 0, 100, outside(901)),
        (region(0, 100, 0), 0, 100, outside(1000)),
        (region(50, 50, 1), 50, 100, outside(1001)),
        (
            region(0, 100, i64::MAX),
            0,
            100,
            outside(1000 + i64::MAX as u64),
        ),
        (region(0, 100, -1001), 0, 100, outside(u64::MAX)),
        (region(0, 100, i64::MIN), 0, 100, outside(1000 + (1 << 63))),
        (
            vec![],
            geometry().window_bytes() + 1,
            geometry().window_bytes() + 1,
            OutOfBounds,
        ),
        (vec![], 0, usize::MAX, OutOfBounds),
        (vec![], 100, 100, CheckMismatch),
        (region(0, 100, -100), 0, 100, CheckMismatch),
    ];
    for (index, (tokens, literals, len, error)) in lies.into_iter().enumerate() {
        let mut decoder = Decoder::new(geometry());
        let mut plain = Vec::new();
        let mut decode = |at, tokens: &[u8], literals: &[u8], len, check| {
            let block = Block {
                number: 0,
                at: LogPosition(at),
                len,
                tokens,
                literals,
                check,
            };
            plain.clear();
            let decoded = decoder.decode(block, &mut SourceCursor::default(), &mut plain);
            (decoded, plain.clone())
        };
        let (decoded, _) = decode(0, &[], &known, 1000, check(0, &known));
        assert_eq!(decoded, Ok(()));
        let (decoded, plain) = decode(1000, &tokens, &vec![7; literals], len, 12345);
        assert_eq!((decoded, plain), (Err(error), vec![]), "lie {index}");
        // What is true is still believed.
        let tokens = region(0, 1000, -1000);
        let (decoded, plain) = decode(1000, &tokens, &[], 1000, check(0, &known));
        assert_eq!(
            (decoded, plain),
            (Ok(()), known.clone()),
            "after lie {index}"
        );
    }
}

#[test]
fn what_was_written_over_or_never_written_is_out_of_the_cache() {
    let decode = |decoder: &mut Decoder, at: usize, len, tokens: &[u8], literals: &[u8]| {
        let block = Block {
            number: 0,
            at: LogPosition(at as u64),
            len,
            tokens,
            literals,
            check: check(0, &vec![0; len]),
        };
        decoder.decode(block, &mut SourceCursor::default(), &mut Vec::new())
    };
    let refer = |decoder: &mut Decoder, at: usize, source: usize| {
        let mut tokens = Vec::new();
        push_region(&mut tokens, 0, 100, source as i64 - at as i64);
        decode(decoder, at, 100, &tokens, &[])
    };
    let outside = |source: usize| {
        Err(DecodeError::SourceOutOfCache {
            source: LogPosition(source as u64),
        })
    };
    let at = 10 * CACHE_BYTES;
    let oldest = at + 100 - (CACHE_BYTES - geometry().window_bytes());

    let mut decoder = Decoder::new(geometry());
    assert_eq!(refer(&mut decoder, at, oldest), outside(oldest));
    assert_eq!(decoder.allocated_bytes(), 0);

    let zeros = vec![0; CACHE_BYTES / 16];
    for at in (at - CACHE_BYTES..at).step_by(zeros.len()) {
        let decoded = decode(&mut decoder, at, zeros.len(), &[], &zeros);
        assert_eq!(decoded, Ok(()));
    }
    assert_eq!(refer(&mut decoder, at, oldest - 1), outside(oldest - 1));
    assert_eq!(refer(&mut decoder, at, oldest), Ok(()));
}

#[test]
fn positions_beyond_use_are_refused() {
    let mut decoder = Decoder::new(geometry());
    for (at, expected) in [
        (u64::MAX / 2, Ok(())),
        (u64::MAX / 2 + 1, Err(DecodeError::OutOfBounds)),
        (u64::MAX, Err(DecodeError::OutOfBounds)),
    ] {
        let block = Block {
            number: 0,
            at: LogPosition(at),
            len: 5,
            tokens: &[],
            literals: b"plain",
            check: check(0, b"plain"),
        };
        let decoded = decoder.decode(block, &mut SourceCursor::default(), &mut Vec::new());
        assert_eq!(decoded, expected);
    }
}

/// Megabytes of tokens that each name a long region: they stop at the announced length.
#[test]
fn reference_bombs_take_no_more_memory_than_they_announced() {
    let known = Random::new(4).noise(100_000);
    let mut bomb = Vec::new();
    push_region(&mut bomb, 0, known.len(), -(known.len() as i64));
    while bomb.len() < 1 << 20 {
        push_region(&mut bomb, 0, known.len(), -(known.len() as i64));
    }
    let mut decoder = Decoder::new(geometry());
    let block = |at, tokens, literals, len, check| Block {
        number: 0,
        at: LogPosition(at),
        len,
        tokens,
        literals,
        check,
    };
    decoder
        .decode(
            block(0, &[], &known, known.len(), check(0, &known)),
            &mut SourceCursor::default(),
            &mut Vec::new(),
        )
        .expect("honest");
    let allocated = decoder.allocated_bytes();
    for len in [0, 99_999, 100_000, 150_000, geometry().window_bytes()] {
        let mut plain = Vec::new();
        let decoded = decoder.decode(
            block(known.len() as u64, &bomb, &[], len, 0),
            &mut SourceCursor::default(),
            &mut plain,
        );
        assert_eq!(decoded, Err(DecodeError::WrongLength));
        assert_eq!(plain, []);
        assert!(plain.capacity() <= len, "{} for {len}", plain.capacity());
        assert_eq!(decoder.allocated_bytes(), allocated);
    }
}
