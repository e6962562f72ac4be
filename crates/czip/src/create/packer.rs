//! Packs chunks into frames.
//!
//! New chunks wait until there are enough for a frame, by *cohorts*: those whose files were written at
//! the same time are mostly of one package or one release, and somebody who has some of them has them all.
//! So whoever has most of an archive fetches few frames for what is missing. Of too many small cohorts,
//! as in a tree where each file has a time of its own, several become a frame, in the order in which they
//! came.
//!
//! A chunk that is similar to one that waits goes beside it. One that is similar to a chunk of an earlier
//! frame goes elsewhere, with others that are similar to chunks of that frame: what becomes a frame
//! of its own, with the earlier one as its base. So what a release changed in many places is
//! compressed against what it was, and beside what it became later.
//!
//! Chunks that an earlier archive has share no frame with new ones: who has that archive fetches frames
//! of new chunks alone.

use std::collections::{BTreeMap, HashMap};

use super::similarity::{FeatureFinder, Features, SimilarityIndex};

/// Plain bytes that wait for frames without a base. How far what is read together may lie apart, too.
const OPEN_BYTES_MAX: usize = 8 << 20;

/// And for frames with one.
const BESIDE_BYTES_MAX: usize = 32 << 20;

/// A cohort that has this part of a full frame becomes a frame alone, if something has to.
const ALONE: usize = 4;

/// Chunks that go into frames together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Cohort {
    /// When their files were written, in seconds since 1970.
    pub(super) mtime: i64,
    /// Whether an earlier archive has them.
    pub(super) is_earlier: bool,
}

/// What is to be a frame.
#[derive(Debug, Default)]
pub(super) struct Pack {
    pub(super) plain: Vec<u8>,
    /// The chunks in it, and where each begins.
    pub(super) chunks: Vec<(u64, u32)>,
    /// The frame that is its base.
    pub(super) base: Option<u64>,
    /// By what others may find it.
    features: Vec<Features>,
}

impl Pack {
    fn add(&mut self, number: u64, chunk: &[u8]) {
        self.chunks.push((number, self.plain.len() as u32));
        self.plain.extend_from_slice(chunk);
    }

    fn append(&mut self, other: Self) {
        let before = self.plain.len() as u32;
        let chunks = other.chunks.into_iter();
        (self.chunks).extend(chunks.map(|(number, offset)| (number, before + offset)));
        self.plain.extend_from_slice(&other.plain);
        self.features.extend(other.features);
    }

    /// The number of its first chunk: the lower, the longer it has waited.
    fn first(&self) -> u64 {
        self.chunks.first().map_or(0, |(number, _)| *number)
    }
}

pub(super) struct Packer {
    /// A frame is full from so many bytes on; 0 if each chunk is one.
    frame_bytes: usize,
    /// Finds similar chunks, if that is wanted.
    similarity: Option<(FeatureFinder, SimilarityIndex)>,
    open: BTreeMap<Cohort, Pack>,
    open_bytes: usize,
    /// Where among those chunks with a super-feature are.
    open_features: HashMap<u64, Cohort>,
    /// By their bases, and whether an earlier archive has what is in them.
    beside: HashMap<(u64, bool), Pack>,
    beside_bytes: usize,
}

impl Packer {
    pub(super) fn new(frame_bytes: usize, has_bases: bool) -> Self {
        Self {
            frame_bytes,
            similarity: has_bases.then(|| (FeatureFinder::new(), SimilarityIndex::default())),
            open: BTreeMap::new(),
            open_bytes: 0,
            open_features: HashMap::new(),
            beside: HashMap::new(),
            beside_bytes: 0,
        }
    }

    /// Takes a chunk that is new in this archive; what is full with it is to be a frame at once.
    pub(super) fn push(&mut self, number: u64, chunk: &[u8], mut cohort: Cohort) -> Option<Pack> {
        let features = (self.similarity.as_ref()).and_then(|(finder, _)| finder.features(chunk));
        if let (Some(features), Some((_, index))) = (&features, &self.similarity) {
            let open = features
                .iter()
                .filter_map(|one| self.open_features.get(one));
            let similar = open.filter(|open| open.is_earlier == cohort.is_earlier);
            match (similar.copied().next(), index.find(features)) {
                (Some(similar), _) => cohort = similar,
                (None, Some(base)) => {
                    return self.push_beside((base, cohort.is_earlier), number, chunk);
                }
                (None, None) => {}
            }
        }
        let open = self.open.entry(cohort).or_default();
        open.add(number, chunk);
        self.open_bytes += chunk.len();
        if let Some(features) = features {
            open.features.push(features);
            for feature in features {
                self.open_features.entry(feature).or_insert(cohort);
            }
        }
        if open.plain.len() >= self.frame_bytes {
            return self.close(cohort);
        }
        (self.open_bytes > OPEN_BYTES_MAX).then(|| self.close_some())?
    }

    fn close(&mut self, cohort: Cohort) -> Option<Pack> {
        let pack = self.open.remove(&cohort)?;
        self.open_bytes -= pack.plain.len();
        for feature in pack.features.iter().flatten() {
            if self.open_features.get(feature) == Some(&cohort) {
                self.open_features.remove(feature);
            }
        }
        Some(pack)
    }

    /// The longest open pack, if it is worth a frame. Else those that wait longest, together.
    fn close_some(&mut self) -> Option<Pack> {
        let (cohort, longest) = (self.open.iter()).max_by_key(|(_, pack)| pack.plain.len())?;
        if longest.plain.len() >= self.frame_bytes / ALONE {
            return self.close(*cohort);
        }
        let mut by_age: Vec<(u64, Cohort)> = (self.open.iter())
            .map(|(cohort, pack)| (pack.first(), *cohort))
            .collect();
        by_age.sort_unstable();
        let mut together = Pack::default();
        let is_earlier = by_age.first()?.1.is_earlier;
        for (_, cohort) in by_age {
            let bytes = together.plain.len() + self.open.get(&cohort)?.plain.len();
            if bytes > self.frame_bytes {
                break;
            }
            if cohort.is_earlier == is_earlier {
                together.append(self.close(cohort)?);
            }
        }
        Some(together)
    }

    fn push_beside(&mut self, place: (u64, bool), number: u64, chunk: &[u8]) -> Option<Pack> {
        let pack = self.beside.entry(place).or_default();
        pack.base = Some(place.0);
        pack.add(number, chunk);
        self.beside_bytes += chunk.len();
        let full = match pack.plain.len() >= self.frame_bytes {
            true => place,
            false if self.beside_bytes > BESIDE_BYTES_MAX => {
                let waiting = self.beside.iter();
                let longest = waiting.max_by_key(|(place, pack)| (pack.plain.len(), **place));
                *longest.expect("one was just added to").0
            }
            false => return None,
        };
        let pack = self.beside.remove(&full)?;
        self.beside_bytes -= pack.plain.len();
        Some(pack)
    }

    /// A pack became frame `number`: later chunks may be similar to what is in it.
    pub(super) fn became(&mut self, pack: &Pack, number: u64) {
        if let Some((_, index)) = &mut self.similarity {
            for features in &pack.features {
                index.insert(features, number);
            }
        }
    }

    /// What is left, as it is to become frames, one at a time.
    pub(super) fn finish(&mut self) -> Option<Pack> {
        if let Some(pack) = self.close_some() {
            return Some(pack);
        }
        let place = *self.beside.keys().min()?;
        self.beside.remove(&place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::create::tests::noise;

    const FRAME_BYTES: usize = 64 << 10;
    const CHUNK_BYTES_MAX: usize = 32 << 10;

    fn of(mtime: i64) -> Cohort {
        Cohort {
            mtime,
            is_earlier: false,
        }
    }

    /// The packs of chunks that are unlike each other, given by their cohorts and lengths.
    fn pack(packer: &mut Packer, chunks: &[(Cohort, usize)]) -> Vec<Pack> {
        let mut packs = Vec::new();
        for (number, &(cohort, bytes)) in (0..).zip(chunks) {
            packs.extend(packer.push(number, &noise(number, bytes), cohort));
            assert!(packer.open_bytes <= OPEN_BYTES_MAX);
        }
        packs.extend(std::iter::from_fn(|| packer.finish()));
        assert!(packer.open_bytes == 0 && packer.open_features.is_empty());
        packs
    }

    fn cohorts(pack: &Pack, chunks: &[(Cohort, usize)]) -> HashSet<Cohort> {
        let numbers = pack.chunks.iter().map(|(number, _)| *number as usize);
        numbers.map(|number| chunks[number].0).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn each_chunk_is_in_one_frame_that_is_not_too_long(
            chunks in vec(((0..40_i64, any::<bool>()), 1..CHUNK_BYTES_MAX), 0..600),
        ) {
            let chunks: Vec<_> = (chunks.into_iter())
                .map(|((mtime, is_earlier), bytes)| (Cohort { mtime, is_earlier }, bytes))
                .collect();
            let packs = pack(&mut Packer::new(FRAME_BYTES, true), &chunks);
            let mut seen = vec![false; chunks.len()];
            for pack in &packs {
                prop_assert!(pack.plain.len() < FRAME_BYTES + CHUNK_BYTES_MAX);
                let mut end = 0;
                for &(number, offset) in &pack.chunks {
                    let bytes = chunks[number as usize].1;
                    let range = offset as usize..offset as usize + bytes;
                    prop_assert_eq!(end, range.start);
                    prop_assert!(pack.plain[range.clone()] == noise(number, bytes));
                    prop_assert!(!std::mem::replace(&mut seen[number as usize], true));
                    end = range.end;
                }
                prop_assert_eq!(end, pack.plain.len());
                let earlier: HashSet<bool> = (cohorts(pack, &chunks).iter())
                    .map(|cohort| cohort.is_earlier)
                    .collect();
                prop_assert_eq!(earlier.len(), 1);
            }
            prop_assert!(seen.into_iter().all(|seen| seen));
        }
    }

    #[test]
    fn files_of_one_time_share_frames_with_no_others_however_they_alternate() {
        let chunks: Vec<_> = (0..400).map(|at| (of(at % 3), 5000)).collect();
        let packs = pack(&mut Packer::new(FRAME_BYTES, true), &chunks);
        let alone = packs.iter().filter(|p| cohorts(p, &chunks).len() == 1);
        // What is left of each in the end may be together.
        assert!(alone.count() + 1 >= packs.len());
        assert!(
            packs
                .iter()
                .filter(|p| p.plain.len() >= FRAME_BYTES)
                .count()
                >= 400 * 5000 / 70_000 - 3
        );
    }

    #[test]
    fn files_that_all_have_times_of_their_own_fill_frames_in_the_order_in_which_they_came() {
        let chunks: Vec<_> = (0..4000).map(|at| (of(at * 7919 % 4001), 5000)).collect();
        let packs = pack(&mut Packer::new(FRAME_BYTES, true), &chunks);
        let numbers = packs
            .iter()
            .flat_map(|p| p.chunks.iter().map(|(number, _)| *number));
        assert!(numbers.eq(0..4000));
        let (_, full) = packs.split_last().expect("packs");
        assert!(full.iter().all(|p| p.plain.len() > FRAME_BYTES - 5000));
    }

    #[test]
    fn a_chunk_like_one_that_waits_is_beside_it_whatever_its_time() {
        let mut packer = Packer::new(FRAME_BYTES, true);
        let chunk = noise(1, 20_000);
        let mut changed = chunk.clone();
        changed[10_000] ^= 1;
        assert!(packer.push(0, &chunk, of(1)).is_none());
        assert!(packer.push(1, &noise(2, 20_000), of(2)).is_none());
        assert!(packer.push(2, &changed, of(2)).is_none());
        let packs: Vec<Pack> = std::iter::from_fn(|| packer.finish()).collect();
        let numbers = packs
            .iter()
            .map(|p| p.chunks.iter().map(|chunk| chunk.0).collect());
        assert_eq!(numbers.collect::<Vec<Vec<u64>>>(), [vec![0, 2], vec![1]]);
    }
}
