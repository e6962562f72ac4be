//! `--rate`: what all links of a gateway may send together.

use std::{sync::Mutex, time::Duration};

use refrain_proto::limits::BLOCK_BYTES_MAX;
use tokio::time::{Instant, sleep_until};

use crate::units::BitRate;

/// A sender may be this far ahead of its rate, so that small writes do not wait.
const BURST: Duration = Duration::from_millis(5);

/// Bytes that TLS, TCP and IP add, for each so many bytes of a lane: a record of 22 bytes
/// each 16 KiB, headers of 52 each 1448.
const OVERHEAD: (u64, u64) = (1039, 1000);

/// No block shall take longer than this, since others wait for it; none is shorter than
/// what its own header is small beside.
const BLOCK_TAKES: Duration = Duration::from_millis(40);
const BLOCK_BYTES_MIN: u64 = 2 << 10;

/// Most plain bytes in a block where a link has this rate.
pub(crate) fn block_bytes(rate: BitRate) -> usize {
    let bytes = (rate.0 / 8).saturating_mul(BLOCK_TAKES.as_millis() as u64) / 1000;
    bytes.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX as u64) as usize
}

/// Lets bytes through at a rate, in the order in which they ask.
#[derive(Debug)]
pub(crate) struct Pace {
    bits_per_second: u64,
    next: Mutex<Instant>,
}

impl Pace {
    /// A pace of `rate`, overhead of TLS, TCP and IP included.
    pub(crate) fn new(rate: BitRate) -> Pace {
        Pace {
            bits_per_second: rate.0,
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits until `bytes` may go.
    pub(crate) async fn wait(&self, bytes: usize) {
        sleep_until(self.take(Instant::now(), bytes)).await;
    }

    fn take(&self, now: Instant, bytes: usize) -> Instant {
        let bits = bytes as u64 * 8 * OVERHEAD.0 / OVERHEAD.1;
        let cost = Duration::from_nanos(bits.saturating_mul(1_000_000_000) / self.bits_per_second);
        let mut next = self
            .next
            .lock()
            .expect("no panics while the pace is locked");
        let start = (*next).max(now.checked_sub(BURST).unwrap_or(now));
        *next = start + cost;
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_short_on_slow_links() {
        for (rate, bytes) in [
            (64_000, 2048),
            (1_000_000, 5000),
            (u64::MAX, BLOCK_BYTES_MAX),
        ] {
            assert_eq!(block_bytes(BitRate(rate)), bytes);
        }
    }

    #[test]
    fn bytes_leave_at_the_rate_and_idle_time_is_not_saved_up() {
        let pace = Pace::new(BitRate(8_000_000));
        let start = Instant::now() + Duration::from_secs(1);
        let mut last = start;
        for _ in 0..100 {
            last = pace.take(start, 10_000);
        }
        let took = last.duration_since(start).as_secs_f64();
        assert!(
            (1.0..1.04).contains(&took),
            "99 x 10 KB at 1 MB/s and 3.9 % took {took} s"
        );
        let later = last + Duration::from_secs(100);
        assert!(pace.take(later, 10_000) >= later - BURST);
    }
}
