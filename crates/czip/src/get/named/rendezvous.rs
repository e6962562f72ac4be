//! Which server is asked for a chunk: rendezvous hashing, also known as highest random weight (CZIP,
//! section 6.2, which takes it from Thaler and Ravishankar).
//!
//! A server's weight for a chunk is the first 8 bytes, little-endian, of the BLAKE3 of its URL followed
//! by the chunk's name. The greatest weight is asked. So all clients that name the same servers ask the
//! same one for a chunk, in whatever order they name them, and each cache holds a share of the chunks.
//! When a server goes, its chunks alone go elsewhere: to that with the next greatest weight.

use crate::format::{ChunkName, digest};

/// Servers, by number.
pub(super) struct Rendezvous {
    urls: Vec<String>,
}

impl Rendezvous {
    pub(super) fn new(urls: impl IntoIterator<Item = String>) -> Self {
        Self {
            urls: urls.into_iter().collect(),
        }
    }

    /// Who is asked for `name`, of those that are there.
    pub(super) fn choose(
        &self,
        name: ChunkName,
        is_there: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let there = (0..self.urls.len()).filter(|&number| is_there(number));
        there.max_by_key(|&number| self.weight(number, name))
    }

    /// Of equal weights, the URL decides: it is the same for all clients.
    fn weight(&self, number: usize, name: ChunkName) -> (u64, &str) {
        let url = &self.urls[number];
        let hashed = [url.as_bytes(), &name.0].concat();
        (u64::from_le_bytes(digest(&hashed)), url)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};

    use super::*;

    const CHUNKS: usize = 4000;

    fn urls(count: usize, salt: u64) -> Vec<String> {
        let url = |number| format!("http://edge-{number}.example/{salt}/");
        (0..count).map(url).collect()
    }

    fn names(salt: u64) -> impl Iterator<Item = ChunkName> {
        (0..CHUNKS as u64).map(move |number| ChunkName::of(&(number ^ salt << 32).to_le_bytes()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn each_has_its_share(count in 1..9_usize, salt: u64) {
            let servers = Rendezvous::new(urls(count, salt));
            let mut shares = vec![0_usize; count];
            for name in names(salt) {
                shares[servers.choose(name, |_| true).expect("there are servers")] += 1;
            }
            // Six standard deviations of a fair choice, and more.
            let fair = CHUNKS as f64 / count as f64;
            for share in shares {
                prop_assert!((share as f64 - fair).abs() <= 6.0 * fair.sqrt(), "{share} of {fair}");
            }
        }

        #[test]
        fn when_one_goes_its_chunks_alone_move(count in 2..9_usize, gone: Index, salt: u64) {
            let gone = gone.index(count);
            let servers = Rendezvous::new(urls(count, salt));
            let mut moved = vec![0_usize; count];
            for name in names(salt) {
                let before = servers.choose(name, |_| true).expect("there are servers");
                let after = servers.choose(name, |number| number != gone);
                let after = after.expect("there are others");
                match before == gone {
                    true => moved[after] += 1,
                    false => prop_assert_eq!(before, after),
                }
            }
            // And not all of them to one.
            let moved = moved.iter().filter(|&&chunks| chunks > 0).count();
            prop_assert_eq!(moved, count - 1);
        }

        #[test]
        fn the_order_in_which_they_are_named_does_not_matter(count in 1..9_usize, salt: u64) {
            let mut urls = urls(count, salt);
            let servers = Rendezvous::new(urls.clone());
            urls.reverse();
            let reversed = Rendezvous::new(urls);
            for name in names(salt).take(200) {
                let one = servers.choose(name, |_| true).expect("there are servers");
                let other = reversed.choose(name, |_| true).expect("there are servers");
                prop_assert_eq!(one, count - 1 - other);
            }
        }
    }

    #[test]
    fn where_nobody_is_nobody_is_chosen() {
        let servers = Rendezvous::new(urls(3, 0));
        assert_eq!(servers.choose(ChunkName([1; 20]), |_| false), None);
        let none = Rendezvous::new([]);
        assert_eq!(none.choose(ChunkName([1; 20]), |_| true), None);
    }

    #[test]
    fn the_choice_is_that_of_other_versions() {
        let servers = Rendezvous::new(urls(5, 0));
        let chosen: Vec<_> = (0..12)
            .map(|number| servers.choose(ChunkName([number; 20]), |_| true))
            .map(|chosen| chosen.expect("there are servers"))
            .collect();
        assert_eq!(chosen, [2, 3, 4, 2, 4, 4, 1, 2, 2, 4, 3, 2]);
    }
}
