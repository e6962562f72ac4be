//! What the link is like ([`LinkConfig`]) and between whom it stands ([`RelayConfig`]).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::units::Rate;

/// One relay: where it listens, where it leads, and the link that it stands in for.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where clients connect; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Where the relay connects for each client.
    pub target: SocketAddr,
    /// The link between the two.
    pub link: LinkConfig,
}

impl RelayConfig {
    /// A relay from any free port of loopback to `target` over an ideal link.
    pub fn to(target: SocketAddr) -> RelayConfig {
        RelayConfig {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            target,
            link: LinkConfig::default(),
        }
    }

    /// `SO_RCVBUF` and `SO_SNDBUF` of the relay's sockets: small on a link with a rate, so that the
    /// kernel does not hide the link's queue behind its own. `None` is the kernel's choice.
    pub(crate) fn socket_buffer_bytes(&self) -> Option<u32> {
        self.link.rate.map(|_| 64 << 10)
    }
}

/// A link, the same in both directions. The default is ideal: no rate, no delay.
#[derive(Clone, Debug, Default)]
pub struct LinkConfig {
    /// Payload that crosses in each direction, over all connections; `None` is as fast as it
    /// goes. Headers are not counted.
    pub rate: Option<Rate>,
    /// One way. A new connection waits one round trip for the handshake that loopback spares it.
    pub delay: Duration,
}

impl LinkConfig {
    /// What may wait in front of each direction. With less than what the link carries in 5 ms the
    /// relay could not keep it busy: its timers are that coarse.
    pub(crate) fn queue_bytes(&self) -> usize {
        match self.rate {
            Some(rate) => usize_of(rate.bytes_in(Duration::from_millis(20))).max(64 << 10),
            None => 256 << 10,
        }
    }

    /// What one connection may have under way in a direction, past the queue and not yet taken by
    /// the other side: TCP's receive window. With a rate it is twice what the link holds, so that
    /// one connection can fill it.
    pub(crate) fn window_bytes(&self) -> usize {
        match self.rate {
            Some(rate) => usize_of(rate.bytes_in(self.delay.saturating_mul(2))).max(256 << 10),
            None if self.delay > Duration::ZERO => 4 << 20,
            None => 256 << 10,
        }
    }
}

fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_and_window_follow_the_rate() {
        let delay = Duration::from_millis(50);
        let bytes = |rate| {
            let link = LinkConfig { rate, delay };
            (link.queue_bytes(), link.window_bytes())
        };
        assert_eq!(bytes(Some(Rate::mbit(100))), (250_000, 1_250_000));
        assert_eq!(bytes(Some(Rate::mbit(1))), (64 << 10, 256 << 10));
        assert_eq!(bytes(None), (256 << 10, 4 << 20));
        let ideal = LinkConfig::default();
        assert_eq!(
            (ideal.queue_bytes(), ideal.window_bytes()),
            (256 << 10, 256 << 10)
        );
    }
}
