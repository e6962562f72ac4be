//! Which chunks make up a stream, as runs in parts.

use std::io;

use super::parts::PartSpool;
use crate::format::part::{RUNS_MAX, Run, encode_runs};

/// Takes the numbers of a stream's chunks, one after the other.
pub(super) struct References {
    parts: PartSpool,
    /// Runs of the part to come, the last of which may still grow.
    runs: Vec<Run>,
    /// Of that part: references, bytes, new chunks.
    sums: [u64; 3],
    next_new: u64,
}

impl References {
    pub(super) fn new(parts: PartSpool) -> Self {
        Self {
            parts,
            runs: Vec::new(),
            sums: [0; 3],
            next_new: 0,
        }
    }

    /// The next chunk of the stream is `number`, of so many bytes.
    pub(super) fn push(&mut self, number: u64, bytes: u32) -> io::Result<()> {
        if !self.grow_last_run(number) {
            if self.runs.len() == RUNS_MAX {
                self.end_part()?;
            }
            self.runs.push(match self.next_new.checked_sub(number + 1) {
                None => Run::New { count: 1 },
                Some(distance) => Run::Copy { count: 1, distance },
            });
        }
        let is_new = number == self.next_new;
        self.next_new += u64::from(is_new);
        self.sums[0] += 1;
        self.sums[1] += u64::from(bytes);
        self.sums[2] += u64::from(is_new);
        Ok(())
    }

    fn grow_last_run(&mut self, number: u64) -> bool {
        let next_new = self.next_new;
        let Some(last) = self.runs.last_mut() else {
            return false;
        };
        match last {
            Run::New { count } if number == next_new => *count += 1,
            Run::Copy { count, distance }
                if number < next_new && number == next_new - 1 - *distance + *count =>
            {
                *count += 1;
            }
            Run::Copy { count: 1, distance } if number == next_new - 1 - *distance => {
                let distance = *distance;
                *last = Run::Repeat { count: 2, distance };
            }
            Run::Repeat { count, distance } if number == next_new - 1 - *distance => *count += 1,
            Run::New { .. } | Run::Copy { .. } | Run::Repeat { .. } => return false,
        }
        true
    }

    fn end_part(&mut self) -> io::Result<()> {
        let [references, bytes, new] = self.sums;
        self.parts.push(
            self.runs.len(),
            encode_runs(&self.runs),
            [references, bytes, new, 0, 0],
        )?;
        self.runs.clear();
        self.sums = [0; 3];
        Ok(())
    }

    /// All its parts.
    pub(super) fn finish(mut self) -> io::Result<PartSpool> {
        if !self.runs.is_empty() {
            self.end_part()?;
        }
        Ok(self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{
        Stream,
        part::{PartKind, parse_runs},
    };
    use proptest::prelude::*;
    use std::path::Path;

    fn parts(folder: &Path) -> PartSpool {
        PartSpool::new(PartKind::References, Some(Stream::Content), folder, None)
    }

    /// Numbers in which each new one is one more than the highest before.
    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec((0_u8..4, any::<u64>(), 1_u64..9), 0..200).prop_map(|steps| {
            let (mut numbers, mut next) = (Vec::new(), 0);
            for (kind, pick, count) in steps {
                match kind {
                    0 => {
                        numbers.extend(next..next + count);
                        next += count;
                    }
                    _ if next == 0 => {}
                    1 => numbers.extend((pick % next..next).take(count as usize)),
                    2 => numbers.extend((0..count).map(|_| pick % next)),
                    _ => numbers.push(pick % next),
                }
            }
            numbers
        })
    }

    proptest! {
        #[test]
        fn runs_say_which_chunks_follow_each_other(numbers in numbers()) {
            let folder = tempfile::tempdir().expect("a folder");
            let mut references = References::new(parts(folder.path()));
            for &number in &numbers {
                references.push(number, number as u32 + 1).expect("room");
            }
            let chunks = references.next_new;
            let mut parts = references.finish().expect("room");
            let (mut found, mut next) = (Vec::new(), 0);
            for part in 0..parts.drafts.len() {
                let (draft, bytes) = parts.read_plain(part).expect("readable");
                prop_assert!(draft.place.items as usize <= RUNS_MAX);
                let runs = parse_runs(&bytes, draft.place.items as usize, next, chunks).expect("runs");
                let before = found.len();
                for run in runs {
                    match run {
                        Run::New { count } => {
                            found.extend(next..next + count);
                            next += count;
                        }
                        Run::Copy { count, distance } => {
                            found.extend((next - 1 - distance..).take(count as usize));
                        }
                        Run::Repeat { count, distance } => {
                            found.extend((0..count).map(|_| next - 1 - distance));
                        }
                    }
                }
                let bytes: u64 = found[before..].iter().map(|number| number + 1).sum();
                prop_assert_eq!(draft.further[0], (found.len() - before) as u64);
                prop_assert_eq!(draft.further[1], bytes);
            }
            prop_assert_eq!(found, numbers);
        }
    }

    #[test]
    fn many_equal_chunks_are_one_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut references = References::new(parts(folder.path()));
        for _ in 0..1_000_000 {
            references.push(0, 8).expect("room");
        }
        let mut parts = references.finish().expect("room");
        assert_eq!(parts.drafts.len(), 1);
        assert_eq!(parts.read_plain(0).expect("readable").0.place.items, 2);
    }
}
