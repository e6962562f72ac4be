//! Numbers that nobody can guess.

use std::ops::RangeInclusive;

use refrain_proto::planted::Bug;
use ring::rand::{SecureRandom, SystemRandom};

/// A link's instance: never 0, never the same twice, and known to nobody before the hello, since the
/// keys of hashes are made of both ends' instances.
pub(crate) fn random_instance() -> u64 {
    if Bug::KnownInstance.is_planted() {
        return 1;
    }
    loop {
        match random_number() {
            0 => {}
            instance => return instance,
        }
    }
}

/// Any of these, each as likely as the others.
pub(crate) fn random_in(numbers: RangeInclusive<u16>) -> u16 {
    let count = u64::from(numbers.end() - numbers.start()) + 1;
    numbers.start() + (random_number() % count) as u16
}

/// Any number, each as likely as the others.
pub(crate) fn random_number() -> u64 {
    let mut bytes = [0; 8];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has random numbers");
    u64::from_le_bytes(bytes)
}
