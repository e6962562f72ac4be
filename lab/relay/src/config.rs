//! What the link is like ([`LinkConfig`]) and between whom it stands ([`RelayConfig`]).

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use crate::units::{Rate, UnitError, parse_duration, parse_size};

/// One relay: where it listens, where it leads, and the link that it stands in for.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where clients connect; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Where the relay connects for each client.
    pub target: SocketAddr,
    /// The link between the two.
    pub link: LinkConfig,
    /// `SO_RCVBUF` and `SO_SNDBUF` of the relay's sockets, in bytes. `None` takes 64 KiB on a
    /// link with a rate, so that the kernel does not hide the link's queue behind its own, and
    /// the kernel's choice on others.
    pub socket_buffer_bytes: Option<u32>,
    /// Cuts every connection, once, as [`crate::Relay::cut`] does.
    pub cut_after: Option<CutAfter>,
}

impl RelayConfig {
    /// A relay from any free port of loopback to `target` over an ideal link.
    pub fn to(target: SocketAddr) -> RelayConfig {
        RelayConfig {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            target,
            link: LinkConfig::default(),
            socket_buffer_bytes: None,
            cut_after: None,
        }
    }

    pub(crate) fn socket_buffer_bytes(&self) -> Option<u32> {
        self.socket_buffer_bytes
            .or(self.link.rate.map(|_| 64 << 10))
    }
}

/// A link, the same in both directions. The default is ideal: no rate, no delay, no stalls.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Payload that crosses in each direction, over all connections; `None` is as fast as it
    /// goes. Headers are not counted.
    pub rate: Option<Rate>,
    /// One way. A new connection waits one round trip for the handshake that loopback spares it.
    pub delay: Duration,
    /// What may wait in front of each direction; see [`crate::shaper`] for how connections share
    /// it. `None` takes what the rate carries in 20 ms, and at least 64 KiB. Below what it
    /// carries in 5 ms the relay cannot keep the link busy: its timers are that coarse.
    pub queue_bytes: Option<usize>,
    /// What one connection may have under way in a direction, past the queue and not yet taken
    /// by the other side: TCP's receive window. `None` takes twice what the rate carries in
    /// `delay`, and at least 256 KiB; without a rate, 4 MiB if there is a delay.
    pub window_bytes: Option<usize>,
    /// The unit in which connections take turns and in which stalls are drawn. Never zero.
    pub segment_bytes: usize,
    /// Probability for each segment, 0 to 1, that its connection's direction stalls before it.
    pub stall_probability: f64,
    /// How long a stall lasts: about 200 ms for a retransmission time-out, a round trip for a
    /// fast retransmission.
    pub stall: Duration,
    /// Decides which segments stall.
    pub seed: u64,
}

impl LinkConfig {
    /// The queue at `rate`, which a running relay may change.
    pub(crate) fn queue_bytes(&self, rate: Option<Rate>) -> usize {
        self.queue_bytes.unwrap_or_else(|| match rate {
            Some(rate) => usize_of(rate.bytes_in(Duration::from_millis(20))).max(64 << 10),
            None => 256 << 10,
        })
    }

    /// The window at `rate`, which a running relay may change.
    pub(crate) fn window_bytes(&self, rate: Option<Rate>) -> usize {
        self.window_bytes.unwrap_or_else(|| match rate {
            Some(rate) => usize_of(rate.bytes_in(self.delay.saturating_mul(2))).max(256 << 10),
            None if self.delay > Duration::ZERO => 4 << 20,
            None => 256 << 10,
        })
    }

    /// # Errors
    ///
    /// When a number is outside of what its field allows.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let faults = [
            (
                !(0.0..=1.0).contains(&self.stall_probability),
                ConfigError::StallProbability,
            ),
            (self.segment_bytes == 0, ConfigError::SegmentBytes),
            (self.queue_bytes == Some(0), ConfigError::QueueBytes),
            (self.window_bytes == Some(0), ConfigError::WindowBytes),
        ];
        faults
            .into_iter()
            .find(|(is_so, _)| *is_so)
            .map_or(Ok(()), |(_, fault)| Err(fault))
    }
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        LinkConfig {
            rate: None,
            delay: Duration::ZERO,
            queue_bytes: None,
            window_bytes: None,
            segment_bytes: 1460,
            stall_probability: 0.0,
            stall: Duration::from_millis(200),
            seed: 0,
        }
    }
}

/// When a relay cuts its connections by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutAfter {
    /// As soon as this many bytes were handed on, both directions and all connections together.
    /// Exact for one connection; others may each hand on what they were just writing.
    Bytes(u64),
    /// This long after the relay accepted its first connection.
    Time(Duration),
}

impl FromStr for CutAfter {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<CutAfter, UnitError> {
        // No unit is both a time and a size.
        parse_duration(text)
            .map(CutAfter::Time)
            .or_else(|_| parse_size(text).map(CutAfter::Bytes))
            .map_err(|error| UnitError {
                expected: "a size, such as 10MiB, or a duration, such as 5s",
                ..error
            })
    }
}

/// A [`LinkConfig`] that describes no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The probability of a stall is not between 0 and 1.
    StallProbability,
    /// Segments of no bytes.
    SegmentBytes,
    /// A queue of no bytes.
    QueueBytes,
    /// A window of no bytes.
    WindowBytes,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigError::StallProbability => "the stall probability must be between 0 and 1",
            ConfigError::SegmentBytes => "a segment must have at least one byte",
            ConfigError::QueueBytes => "the queue must hold at least one byte",
            ConfigError::WindowBytes => "the window must hold at least one byte",
        })
    }
}

impl std::error::Error for ConfigError {}

fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_after_is_a_size_or_a_duration() {
        assert_eq!("10KiB".parse(), Ok(CutAfter::Bytes(10 << 10)));
        assert_eq!("5s".parse(), Ok(CutAfter::Time(Duration::from_secs(5))));
        let error = "soon".parse::<CutAfter>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"soon\" is not a size, such as 10MiB, or a duration, such as 5s"
        );
    }

    #[test]
    fn queue_and_window_follow_the_rate() {
        let link = LinkConfig {
            delay: Duration::from_millis(50),
            ..LinkConfig::default()
        };
        let rate = Some(Rate::mbit(100));
        assert_eq!(link.queue_bytes(rate), 250_000);
        assert_eq!(link.window_bytes(rate), 1_250_000);
        assert_eq!(link.window_bytes(None), 4 << 20);
        let set = LinkConfig {
            queue_bytes: Some(5000),
            window_bytes: Some(6000),
            ..link
        };
        assert_eq!(
            (set.queue_bytes(rate), set.window_bytes(rate)),
            (5000, 6000)
        );
    }

    #[test]
    fn impossible_links_are_refused() {
        let link = LinkConfig::default;
        assert_eq!(link().validate(), Ok(()));
        for probability in [-0.1, 1.1, f64::NAN] {
            let link = LinkConfig {
                stall_probability: probability,
                ..link()
            };
            assert_eq!(link.validate(), Err(ConfigError::StallProbability));
        }
        let no_segment = LinkConfig {
            segment_bytes: 0,
            ..link()
        };
        assert_eq!(no_segment.validate(), Err(ConfigError::SegmentBytes));
        let no_queue = LinkConfig {
            queue_bytes: Some(0),
            ..link()
        };
        assert_eq!(no_queue.validate(), Err(ConfigError::QueueBytes));
        let no_window = LinkConfig {
            window_bytes: Some(0),
            ..link()
        };
        assert_eq!(no_window.validate(), Err(ConfigError::WindowBytes));
    }
}
