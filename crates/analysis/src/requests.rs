//! Workloads without content: requests for named objects (PACK, sections 5.1.1 and 5.3).
//!
//! An object that was transferred before repeats, as far as it was transferred. This is an upper bound of what predictions
//! find of whole objects: the same name means the same content. Parts that two objects share are not seen.

pub mod servers;
pub mod trace;

use std::{collections::HashMap, hash::Hash};

use refrain_codec::chunk::hash::ChunkHasher;
use serde::Serialize;

use crate::details::{ByAge, age_index, doubling};
use trace::Request;

/// Sizes of a cache in bytes, for which repeats are counted: 16 MiB to 16 TiB.
pub const CACHE_SIZES: [u64; 21] = doubling(16 << 20);

/// The seconds of an interval. A longer trace has longer intervals.
const INTERVALS: [u64; 8] = [1, 10, 60, 600, 3_600, 21_600, 86_400, 864_000];

/// Intervals of a trace. Of ten days each they are seven years; later ones are counted in the last one.
const INTERVALS_MAX: usize = 256;

/// Limit for names: one object in so many million million is no sample.
const ZEROS_MAX: u32 = 48;

/// Memory of a known object, or of a client.
const ENTRY_BYTES: u64 = 96;

/// Counts repeats in requests, one after the other.
pub struct Requests {
    findings: Findings,
    any_client: Store<Name>,
    same_client: Store<(Name, Name)>,
    /// Bytes of each client so far.
    clients: HashMap<Name, u64>,
    /// Only objects whose names have so many zeros at their ends are known. They count for the others too.
    zeros: u32,
    known_max: usize,
    clients_max: usize,
    first_nanos: Option<u64>,
}

/// The digest of a name.
type Name = u64;

/// Known objects, and their repeats.
struct Store<K> {
    known: HashMap<K, Known>,
    repeats: Repeats,
}

/// An object as it was requested last.
#[derive(Clone, Copy)]
struct Known {
    /// Bytes of it that were transferred at most.
    bytes: u64,
    /// Bytes of all objects before it.
    position: u64,
    nanos: u64,
}

/// The findings.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Findings {
    /// Requests for named objects.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that name no content that could repeat: other methods, and errors.
    pub other_requests: u64,
    /// Their bytes. They are new.
    pub other_bytes: u64,
    /// Clients, up to a bound by memory.
    pub clients: u64,
    /// Different objects. An estimate if `sampled_one_in` is above 1.
    pub objects: u64,
    /// Repeats of objects that the same client had: the store is the client's, as in PACK.
    pub same_client: Repeats,
    /// Repeats of objects that any of the clients had: the store is the clients' near end's.
    pub any_client: Repeats,
    /// The seconds of an interval.
    pub interval_seconds: u64,
    /// From the first request on.
    pub intervals: Vec<Interval>,
    /// Only one in so many objects was followed, for memory. It counted for the others too.
    pub sampled_one_in: u64,
}

/// Repeats, for one place of the store.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Repeats {
    /// Requests for objects that were there.
    pub requests: u64,
    /// Bytes that were there.
    pub bytes: u64,
    /// Of these bytes, those that a cache of each size has, which keeps the last bytes that were sent.
    pub by_cache_size: [u64; CACHE_SIZES.len()],
    /// Bytes by the time since they were there last.
    pub by_age: ByAge,
}

/// A part of the trace.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Interval {
    /// Bytes of all requests.
    pub bytes: u64,
    /// Those that the same client had.
    pub same_client_bytes: u64,
    /// Those that any client had.
    pub any_client_bytes: u64,
}

impl Findings {
    /// Bytes of all requests.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.other_bytes)
    }

    /// The bits per second of the interval with most bytes.
    #[must_use]
    pub fn highest_rate(&self) -> f64 {
        let most = self.intervals.iter().map(|interval| interval.bytes).max();
        most.unwrap_or_default() as f64 * 8.0 / self.interval_seconds as f64
    }
}

impl Interval {
    fn add(&mut self, other: &Self) {
        add(&mut self.bytes, other.bytes);
        add(&mut self.same_client_bytes, other.same_client_bytes);
        add(&mut self.any_client_bytes, other.any_client_bytes);
    }
}

impl<K: Eq + Hash> Store<K> {
    fn new() -> Self {
        Self {
            known: HashMap::new(),
            repeats: Repeats::default(),
        }
    }

    /// Bytes of a request that were there. An object counts for `weight` of them.
    fn request(&mut self, name: K, now: Known, weight: u64) -> u64 {
        let Some(known) = self.known.get_mut(&name) else {
            self.known.insert(name, now);
            return 0;
        };
        let bytes = weight.saturating_mul(now.bytes.min(known.bytes));
        let distance = now.position.saturating_sub(known.position);
        let age = now.nanos.saturating_sub(known.nanos);
        *known = Known {
            bytes: now.bytes.max(known.bytes),
            ..now
        };
        add(&mut self.repeats.requests, weight);
        add(&mut self.repeats.bytes, bytes);
        add(&mut self.repeats.by_age[age_index(age)], bytes);
        // Summed up at the end.
        let size = CACHE_SIZES.partition_point(|size| *size < distance);
        if let Some(size) = self.repeats.by_cache_size.get_mut(size) {
            add(size, bytes);
        }
        bytes
    }

    fn finish(mut self) -> Repeats {
        let mut sum = 0;
        for size in &mut self.repeats.by_cache_size {
            add(&mut sum, *size);
            *size = sum;
        }
        self.repeats
    }
}

impl Requests {
    /// None so far. The known objects and clients take `memory_bytes` at most.
    #[must_use]
    pub fn new(memory_bytes: u64) -> Self {
        let entries = (memory_bytes / ENTRY_BYTES).max(4) as usize;
        Self {
            findings: Findings {
                interval_seconds: INTERVALS[0],
                ..Findings::default()
            },
            any_client: Store::new(),
            same_client: Store::new(),
            clients: HashMap::new(),
            zeros: 0,
            known_max: entries / 2,
            clients_max: entries / 2,
            first_nanos: None,
        }
    }

    /// Takes the next request.
    pub fn request(&mut self, request: &Request<'_>) {
        let Request { nanos, bytes, .. } = *request;
        let client = name(request.client);
        let position = self.findings.total_bytes();
        let position_of_client = self.position_of_client(client, bytes);
        let mut interval = Interval {
            bytes,
            ..Interval::default()
        };
        match request.object {
            None => {
                self.findings.other_requests += 1;
                add(&mut self.findings.other_bytes, bytes);
            }
            Some(object) => {
                self.findings.requests += 1;
                add(&mut self.findings.bytes, bytes);
                let object = name(object);
                if object.trailing_zeros() >= self.zeros {
                    let weight = 1 << self.zeros;
                    let now = |position| Known {
                        bytes,
                        position,
                        nanos,
                    };
                    let any = self.any_client.request(object, now(position), weight);
                    let same = now(position_of_client);
                    let same = self.same_client.request((object, client), same, weight);
                    (interval.any_client_bytes, interval.same_client_bytes) = (any, same);
                }
            }
        }
        self.interval_at(nanos).add(&interval);
        self.forget();
    }

    /// Bytes of a client before these.
    fn position_of_client(&mut self, client: Name, bytes: u64) -> u64 {
        let is_room = self.clients.len() < self.clients_max;
        let sum = match self.clients.get_mut(&client) {
            Some(sum) => sum,
            None if is_room => self.clients.entry(client).or_default(),
            // The client's repeats seem to be near.
            None => return 0,
        };
        let before = *sum;
        add(sum, bytes);
        before
    }

    /// The interval of this time. Earlier ones than the first are counted in the first.
    fn interval_at(&mut self, nanos: u64) -> &mut Interval {
        let first = *self.first_nanos.get_or_insert(nanos);
        let seconds = nanos.saturating_sub(first) / 1_000_000_000;
        let findings = &mut self.findings;
        loop {
            let index = (seconds / findings.interval_seconds) as usize;
            let longer = INTERVALS
                .into_iter()
                .find(|step| *step > findings.interval_seconds);
            if let (true, Some(step)) = (index >= INTERVALS_MAX, longer) {
                let joined = (step / findings.interval_seconds) as usize;
                let parts = findings.intervals.chunks(joined).map(|parts| {
                    let mut whole = Interval::default();
                    parts.iter().for_each(|part| whole.add(part));
                    whole
                });
                findings.intervals = parts.collect();
                findings.interval_seconds = step;
                continue;
            }
            let index = index.min(INTERVALS_MAX - 1);
            if findings.intervals.len() <= index {
                findings.intervals.resize(index + 1, Interval::default());
            }
            return &mut findings.intervals[index];
        }
    }

    /// Half of the objects is forgotten if there are too many.
    fn forget(&mut self) {
        let (any, same) = (&mut self.any_client.known, &mut self.same_client.known);
        while any.len() + same.len() > self.known_max && self.zeros < ZEROS_MAX {
            self.zeros += 1;
            any.retain(|object, _| object.trailing_zeros() >= self.zeros);
            same.retain(|(object, _), _| object.trailing_zeros() >= self.zeros);
        }
    }

    /// All was given.
    #[must_use]
    pub fn finish(self) -> Findings {
        Findings {
            clients: self.clients.len() as u64,
            objects: (self.any_client.known.len() as u64).saturating_mul(1 << self.zeros),
            sampled_one_in: 1 << self.zeros,
            any_client: self.any_client.finish(),
            same_client: self.same_client.finish(),
            ..self.findings
        }
    }
}

/// Numbers of a trace can be any, so sums stay at their limit.
fn add(sum: &mut u64, further: u64) {
    *sum = sum.saturating_add(further);
}

fn name(text: &[u8]) -> Name {
    let digest = ChunkHasher::default().hash(text);
    Name::from_le_bytes(*digest.0.first_chunk().expect("it is longer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn request<'a>(seconds: u64, client: &'a str, object: &'a str, bytes: u64) -> Request<'a> {
        Request {
            nanos: seconds * SECOND,
            client: client.as_bytes(),
            object: Some(object.as_bytes()),
            bytes,
            is_size_invented: false,
        }
    }

    #[test]
    fn an_object_repeats_for_its_client_and_for_others() {
        let mut requests = Requests::new(1 << 20);
        for (seconds, client, object, bytes) in [
            (0, "a", "x", 100),
            (1, "b", "x", 100),
            (2, "a", "x", 60),
            // More of it than anybody had.
            (700, "a", "x", 150),
            (701, "b", "x", 150),
            (702, "a", "y", 10),
        ] {
            requests.request(&request(seconds, client, object, bytes));
        }
        requests.request(&Request {
            object: None,
            ..request(702, "c", "", 7)
        });
        let found = requests.finish();
        assert_eq!((found.requests, found.bytes), (6, 570));
        assert_eq!((found.other_requests, found.other_bytes), (1, 7));
        assert_eq!((found.clients, found.objects), (3, 2));
        let (any, same) = (&found.any_client, &found.same_client);
        assert_eq!((any.requests, any.bytes), (4, 100 + 60 + 100 + 150));
        assert_eq!((same.requests, same.bytes), (3, 60 + 100 + 100));
        assert_eq!(any.by_age, [0, 310, 0, 0, 100, 0, 0, 0]);
        assert_eq!(same.by_age, [0, 60, 0, 0, 200, 0, 0, 0]);
        assert_eq!(found.interval_seconds, 10);
        assert_eq!(found.intervals.len(), 71);
        assert_eq!(found.intervals[0].bytes, 260);
        assert_eq!(found.intervals[70].bytes, 317);
        let sum: u64 = found.intervals.iter().map(|it| it.any_client_bytes).sum();
        assert_eq!(sum, any.bytes);
    }

    #[test]
    fn a_cache_has_the_last_bytes() {
        let mut requests = Requests::new(1 << 20);
        let mib = 1 << 20;
        for object in ["x", "y", "x", "z", "x"] {
            requests.request(&request(0, "a", object, 12 * mib));
        }
        // Another client's bytes are in the near end's cache, and not in the client's.
        requests.request(&request(0, "b", "w", 20 * mib));
        requests.request(&request(0, "a", "x", 12 * mib));
        let found = requests.finish();
        let mb = |repeats: &Repeats| repeats.by_cache_size.map(|bytes| bytes / mib);
        assert_eq!(&mb(&found.same_client)[..3], [12, 36, 36]);
        assert_eq!(&mb(&found.any_client)[..3], [0, 36, 36]);
        assert_eq!(found.same_client.bytes, 36 * mib);
    }

    #[test]
    fn a_sample_counts_for_all() {
        let (mut few, mut all) = (Requests::new(1 << 20), Requests::new(1 << 30));
        for requests in [&mut few, &mut all] {
            for nth in 0..200_000_u64 {
                let object = (nth.wrapping_mul(2_862_933_555_777_941_757) >> 20) % 60_000;
                let client = (nth % 7).to_string();
                requests.request(&request(nth, &client, &object.to_string(), 1000));
                assert!(requests.any_client.known.len() <= 1 << 20);
            }
            let known = requests.any_client.known.len() + requests.same_client.known.len();
            assert!(known <= requests.known_max, "{known}");
        }
        let (few, all) = (few.finish(), all.finish());
        assert!(few.sampled_one_in >= 32 && all.sampled_one_in == 1);
        let are_near = |one: u64, other: u64| one.abs_diff(other) * 10 < other;
        assert!(are_near(few.objects, all.objects), "{}", few.objects);
        for (few, all) in [
            (&few.any_client, &all.any_client),
            (&few.same_client, &all.same_client),
        ] {
            assert!(
                are_near(few.bytes, all.bytes),
                "{} {}",
                few.bytes,
                all.bytes
            );
            assert!(are_near(few.requests, all.requests));
        }
        assert_eq!(few.intervals.len(), all.intervals.len());
    }

    #[test]
    fn any_numbers_and_times_are_bounded() {
        let mut requests = Requests::new(0);
        for nanos in [5, u64::MAX, 0, 1 << 60, u64::MAX] {
            for client in ["a", "b", "c", "d"] {
                requests.request(&Request {
                    nanos,
                    ..request(0, client, client, u64::MAX)
                });
            }
        }
        let found = requests.finish();
        assert!(found.intervals.len() <= INTERVALS_MAX);
        assert_eq!(found.total_bytes(), u64::MAX);
        assert!(found.highest_rate() > 0.0);
    }
}
