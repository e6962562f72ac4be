//! One direction of a link: which packets arrive, and when. No I/O and no clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use refrain_relay::Rate;

use crate::{LinkConfig, REORDERED_BY};

/// What one direction carried.
#[derive(Debug, Default)]
pub struct WireCounts {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Wire {
    rate: Option<Rate>,
    delay: Duration,
    queue: Duration,
    loss: f64,
    reorder: f64,
    rng: Rng,
    /// When all that was taken will have left.
    busy_until: Duration,
    counts: Arc<WireCounts>,
}

impl WireCounts {
    /// Packets that were carried.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Their bytes, with headers.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Packets that were lost by chance.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Packets that came while the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Wire {
    pub(crate) fn new(config: &LinkConfig, seed: u64, counts: Arc<WireCounts>) -> Self {
        Self {
            rate: config.rate,
            delay: config.delay,
            queue: config.queue,
            loss: config.loss,
            reorder: config.reorder,
            rng: Rng::with_seed(seed),
            busy_until: Duration::ZERO,
            counts,
        }
    }

    /// A packet of `bytes` comes at `now`. Says when it arrives, unless it never does.
    pub(crate) fn take(&mut self, now: Duration, bytes: usize) -> Option<Duration> {
        let begins = self.busy_until.max(now);
        if self.rate.is_some() && begins - now > self.queue {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let took = self
            .rate
            .map_or(Duration::ZERO, |rate| rate.time_for(bytes as u64));
        self.busy_until = begins + took;
        // It takes its time on the link before it is lost behind it.
        if self.loss > 0.0 && self.rng.f64() < self.loss {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.counts.packets.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let late = self.reorder > 0.0 && self.rng.f64() < self.reorder;
        let held_back = if late { REORDERED_BY } else { Duration::ZERO };
        Some(self.busy_until + self.delay + held_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: usize = 1500;

    fn wire(config: LinkConfig) -> (Wire, Arc<WireCounts>) {
        let counts = Arc::<WireCounts>::default();
        (Wire::new(&config, 7, Arc::clone(&counts)), counts)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn packets_leave_one_after_the_other_and_arrive_after_the_delay() {
        let (mut wire, _) = wire(LinkConfig {
            rate: Some(Rate::mbit(12)),
            delay: ms(25),
            ..LinkConfig::default()
        });
        assert_eq!(wire.take(ms(10), PACKET), Some(ms(36)));
        assert_eq!(wire.take(ms(10), PACKET), Some(ms(37)));
        assert_eq!(wire.take(ms(20), PACKET), Some(ms(46)));
    }

    #[test]
    fn a_full_queue_drops_what_comes() {
        let (mut wire, counts) = wire(LinkConfig {
            rate: Some(Rate::mbit(12)),
            queue: ms(20),
            ..LinkConfig::default()
        });
        let arrived = (0..50).filter(|_| wire.take(ms(0), PACKET).is_some());
        assert_eq!(arrived.count(), 21, "one that leaves and 20 that wait");
        assert_eq!((counts.packets(), counts.dropped()), (21, 29));
        assert!(wire.take(ms(2), PACKET).is_some(), "there is room again");
    }

    #[test]
    fn loss_is_as_often_as_it_is_asked_for_and_the_same_for_a_seed() {
        let config = LinkConfig {
            loss: 0.02,
            ..LinkConfig::default()
        };
        let run = || {
            let (mut wire, counts) = wire(config.clone());
            let fates: Vec<bool> = (0..100_000)
                .map(|_| wire.take(ms(0), PACKET).is_some())
                .collect();
            (fates, counts.lost())
        };
        let (fates, lost) = run();
        assert!((1_850..2_150).contains(&lost), "{lost} of 100,000");
        assert_eq!(run().0, fates);
    }

    #[test]
    fn late_packets_come_behind_others() {
        let (mut wire, _) = wire(LinkConfig {
            reorder: 0.1,
            delay: ms(10),
            ..LinkConfig::default()
        });
        let arrivals: Vec<Duration> = (0..1000).filter_map(|_| wire.take(ms(0), PACKET)).collect();
        let late = arrivals
            .iter()
            .filter(|&&at| at == ms(10) + REORDERED_BY)
            .count();
        assert!((70..130).contains(&late), "{late}");
        assert!(
            arrivals
                .iter()
                .all(|&at| at == ms(10) || at == ms(10) + REORDERED_BY)
        );
    }
}
