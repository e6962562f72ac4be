//! `--link`: the link that the demo simulates. It is the relay of `lab/relay`, in threads of this program.

use std::{fmt, net::SocketAddr, str::FromStr, time::Duration};

use anyhow::Context;
use refrain_gateway::units::{BitRate, TimeSpan, UnitError};
use refrain_relay::{LinkConfig, Rate, Relay, RelayConfig};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use tokio::runtime::{Builder, Runtime};

/// On a slower link, the buffers of the sockets hold seconds of data.
const RATE_MIN: BitRate = BitRate(1_000_000);

/// The relay keeps this rate on two cores.
const RATE_MAX: BitRate = BitRate(1_000_000_000);

/// A pair on one machine must be up within ten seconds. Its handshakes take several round trips.
const DELAY_MAX: TimeSpan = TimeSpan(Duration::from_millis(500));

/// The value of `--link`. Without a link, all connections are on loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkChoice(pub Option<Link>);

/// A link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Of each direction, without the headers of TCP and IP.
    pub rate: BitRate,
    /// One way.
    pub delay: TimeSpan,
}

/// Why a text is not a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LinkError {
    #[error("expected a rate and a delay, such as 20Mbit,25ms, or none")]
    NotTwoParts,
    #[error("rate: {0}")]
    Rate(UnitError),
    #[error("delay: {0}")]
    Delay(UnitError),
    #[error("the rate must be from {min} to {max}", min = RATE_MIN, max = RATE_MAX)]
    RateOutOfRange,
    #[error("the delay must be at most {max}", max = DELAY_MAX)]
    DelayTooLong,
}

impl FromStr for LinkChoice {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        if text == "none" {
            return Ok(Self(None));
        }
        let (rate, delay) = text.split_once(',').ok_or(LinkError::NotTwoParts)?;
        let rate: BitRate = rate.parse().map_err(LinkError::Rate)?;
        let delay: TimeSpan = delay.parse().map_err(LinkError::Delay)?;
        if !(RATE_MIN..=RATE_MAX).contains(&rate) {
            return Err(LinkError::RateOutOfRange);
        }
        if delay > DELAY_MAX {
            return Err(LinkError::DelayTooLong);
        }
        Ok(Self(Some(Link { rate, delay })))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As reports print numbers.
        let spaced = |quantity: String| match quantity.find(char::is_alphabetic) {
            Some(unit) => format!("{} {}", &quantity[..unit], &quantity[unit..]),
            None => quantity,
        };
        let [rate, delay] = [self.rate.to_string(), self.delay.to_string()].map(spaced);
        write!(f, "{rate}, {delay} each way")
    }
}

/// In the units of JSON.
impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut link = serializer.serialize_struct("Link", 2)?;
        link.serialize_field("bits_per_second", &self.rate.0)?;
        link.serialize_field("delay_ms", &(self.delay.0.as_millis() as u64))?;
        link.end()
    }
}

impl Link {
    /// The least seconds for `bytes` in one direction, of which parts wait for each other's `round_trips`.
    pub(super) fn seconds_min(self, bytes: u64, round_trips: usize) -> f64 {
        let busy = 8.0 * bytes as f64 / self.rate.0 as f64;
        let waiting = 2.0 * round_trips as f64 * self.delay.0.as_secs_f64();
        busy.max(waiting)
    }
}

/// A link in front of an address, until dropped.
pub(super) struct SimulatedLink {
    // Ends before its threads.
    relay: Relay,
    _runtime: Runtime,
}

impl SimulatedLink {
    /// Starts a link that leads to `target`.
    pub(super) fn before(target: SocketAddr, link: Link) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("demo-link")
            .enable_all()
            .build()?;
        let config = RelayConfig {
            link: LinkConfig {
                rate: Rate::bits_per_second(link.rate.0),
                delay: link.delay.0,
            },
            ..RelayConfig::to(target)
        };
        let inside = runtime.enter();
        let relay = Relay::start(config).context("cannot start the simulated link")?;
        drop(inside);
        Ok(Self {
            relay,
            _runtime: runtime,
        })
    }

    /// Connections to this address cross the link.
    pub(super) fn address(&self) -> SocketAddr {
        self.relay.address()
    }

    /// Bytes that entered the link so far, both ways. They are counted before their receiver has them.
    pub(super) fn bytes(&self) -> u64 {
        let counts = self.relay.counts();
        counts.up.entered_bytes + counts.down.entered_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        thread,
        time::Instant,
    };

    use super::*;

    fn link(bits_per_second: u64, delay_ms: u64) -> Link {
        Link {
            rate: BitRate(bits_per_second),
            delay: TimeSpan(Duration::from_millis(delay_ms)),
        }
    }

    #[test]
    fn a_link_is_a_rate_and_a_delay_or_none() {
        for (text, expected) in [
            ("20Mbit,25ms", Some(link(20_000_000, 25))),
            ("2.5MB/s, 0.1s", Some(link(20_000_000, 100))),
            ("1Mbit,500ms", Some(link(1_000_000, 500))),
            ("1G,0ms", Some(link(1_000_000_000, 0))),
            ("none", None),
        ] {
            assert_eq!(text.parse(), Ok(LinkChoice(expected)), "{text}");
        }
        assert_eq!(
            link(20_000_000, 25).to_string(),
            "20 Mbit/s, 25 ms each way"
        );
    }

    #[test]
    fn errors_name_the_part_and_its_limits() {
        for (text, part) in [
            ("", "such as 20Mbit,25ms"),
            ("20Mbit", "such as 20Mbit,25ms"),
            ("None", "or none"),
            ("20,25ms", "rate: the unit is missing"),
            ("20Mbit,25ms,1", "delay: unknown unit"),
            ("999kbit,25ms", "from 1Mbit/s to 1Gbit/s"),
            ("0Mbit,25ms", "from 1Mbit/s to 1Gbit/s"),
            ("1001Mbit,25ms", "from 1Mbit/s to 1Gbit/s"),
            ("20Mbit,501ms", "at most 500ms"),
        ] {
            let error = text.parse::<LinkChoice>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn small_objects_take_a_round_trip_each() {
        let link = link(8_000_000, 25);
        assert_eq!(link.seconds_min(1_000_000, 10), 1.0);
        assert_eq!(link.seconds_min(1_000_000, 40), 2.0);
    }

    #[test]
    fn bytes_cross_the_link_no_sooner_than_its_delay_and_rate_allow() {
        const BYTES: usize = 100_000;
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let target = server.local_addr().expect("bound");
        let link = link(8_000_000, 20);
        assert_eq!(link.seconds_min(BYTES as u64, 1), 0.1);
        let simulated = SimulatedLink::before(target, link).expect("it starts");
        let sender = thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a connection");
            stream.write_all(&[7; BYTES]).expect("a receiver");
        });
        let began = Instant::now();
        let mut client = TcpStream::connect(simulated.address()).expect("it listens");
        let mut received = Vec::new();
        client.read_to_end(&mut received).expect("all bytes");
        // A round trip for the connection, 100 ms for the bytes, and one delay.
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(160), "{took:?}");
        assert!(received == [7; BYTES], "{} bytes", received.len());
        assert_eq!(simulated.bytes(), BYTES as u64);
        sender.join().expect("it sent all");
    }
}
