//! Whether a link is as its settings say, by datagrams over it.

use std::{
    fmt,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use refrain_relay::Rate;
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};

use crate::{End, Link, LinkConfig};

const PROBES: u32 = 40;
const PROBE_BYTES: usize = 64;

/// A probe is lost if it takes longer than this and four round trips.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// What a datagram of the rate's measurement carries, and its headers.
const LOAD_BYTES: usize = 1400;
const HEADER_BYTES: usize = 28;
const LOAD_LASTS: Duration = Duration::from_millis(500);

/// A faster link is measured by a stream: datagrams take the kernel too long.
const DATAGRAMS_MBIT_MAX: u32 = 200;

/// A stream has found its rate after this time and so many round trips.
const STREAM_STARTS: Duration = Duration::from_millis(500);
const SLOW_START_ROUND_TRIPS: u32 = 25;

/// A stream's buffers at both ends: twice the bytes on their way at 1 Gbit/s and 200 ms.
const BUFFER_BYTES: usize = 50 << 20;

/// Datagrams from which the loss is counted.
const LOSS_SAMPLE: usize = 4_000;

/// What a datagram may be late, beside a twentieth of the round trip.
const LATENESS: Duration = Duration::from_millis(1);

/// A link as it was measured.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    /// There and back, the median of forty.
    pub round_trip: Duration,
    /// The longest but two of them.
    pub longest: Duration,
    /// From the far to the near end, as downloads go, if the link has a rate.
    pub rate: Option<Rate>,
    /// The share that was lost, if the link loses any.
    pub loss: Option<f64>,
}

/// A socket at each end that knows the other.
fn sockets(link: &Link) -> anyhow::Result<[UdpSocket; 2]> {
    let open = |end: End| link.at(end, || Ok(UdpSocket::bind((end.address(), 0))?));
    let (near, far) = (open(End::Near)?, open(End::Far)?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    }
    Ok([near, far])
}

pub(crate) fn check(link: &Link, config: &LinkConfig) -> anyhow::Result<Checked> {
    let asked = 2 * config.delay;
    let (round_trip, longest) = round_trips(link, asked)?;
    let most = asked + asked / 20 + LATENESS;
    // A link that reorders holds some back.
    let is_late = longest > most && config.reorder == 0.0;
    ensure!(
        round_trip >= asked && round_trip <= most && !is_late,
        "a round trip takes {round_trip:?} (at most {longest:?}) instead of {asked:?}: this machine is too busy"
    );
    // A stream that loses segments is slower than its link.
    let is_stream = config.rate > Some(Rate::mbit(DATAGRAMS_MBIT_MAX));
    let measurable = config.rate.filter(|_| !is_stream || config.loss == 0.0);
    let rate = measurable
        .map(|rate| measured_rate(link, rate, asked))
        .transpose()?;
    if let (Some(measured), Some(asked)) = (rate, config.rate) {
        // What is lost does not come.
        let asked = asked.bits() as f64 * (1.0 - config.loss);
        let ratio = measured.bits() as f64 / asked;
        ensure!(
            (0.95..=1.03).contains(&ratio),
            "the link carries {measured}, {ratio:.3} of the requested rate: this machine is too busy"
        );
    }
    let loss = match config.loss > 0.0 {
        true => Some(measured_loss(link, config.rate)?),
        false => None,
    };
    if let Some(measured) = loss {
        // Four standard deviations.
        let spread = 4.0 * (config.loss * (1.0 - config.loss) / LOSS_SAMPLE as f64).sqrt();
        ensure!(
            (measured - config.loss).abs() <= spread,
            "{:.2} % of datagrams are lost instead of {:.2} %",
            100.0 * measured,
            100.0 * config.loss
        );
    }
    Ok(Checked {
        round_trip,
        longest,
        rate,
        loss,
    })
}

/// The median and the longest but two.
fn round_trips(link: &Link, asked: Duration) -> anyhow::Result<(Duration, Duration)> {
    let [near, far] = sockets(link)?;
    // Longer than a round trip that is twice as long as asked for: such a link is measured too.
    near.set_read_timeout(Some(4 * asked + LOST_AFTER))?;
    far.set_read_timeout(Some(LOST_AFTER))?;
    let has_ended = AtomicBool::new(false);
    let mut took = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut probe = [0; PROBE_BYTES];
            while !has_ended.load(Relaxed) {
                if let Ok(bytes) = far.recv(&mut probe) {
                    let _ = far.send(&probe[..bytes]);
                }
            }
        });
        for number in 0..2 * PROBES {
            let began = Instant::now();
            // One that cannot be sent is as lost.
            let _ = near.send(&number.to_be_bytes());
            let mut answer = [0; PROBE_BYTES];
            while let Ok(bytes) = near.recv(&mut answer) {
                if answer[..bytes] == number.to_be_bytes() {
                    took.push(began.elapsed());
                    break;
                }
            }
            if took.len() == PROBES as usize {
                break;
            }
        }
        has_ended.store(true, Relaxed);
    });
    ensure!(took.len() >= 3, "no data crosses the link");
    took.sort();
    Ok((took[took.len() / 2], took[took.len() - 3]))
}

/// Sends datagrams from the far end at `rate`; says how many came, and over which time.
fn load(link: &Link, rate: f64, count: usize) -> anyhow::Result<(usize, Duration)> {
    let [near, far] = sockets(link)?;
    near.set_read_timeout(Some(Duration::from_millis(800)))?;
    let pause = Duration::from_secs_f64(8.0 * (LOAD_BYTES + HEADER_BYTES) as f64 / rate);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut datagram = [0; LOAD_BYTES];
            let (mut came, mut first, mut last) = (0, None, Instant::now());
            while near.recv(&mut datagram).is_ok() {
                last = Instant::now();
                first.get_or_insert(last);
                came += 1;
            }
            (came, first.map_or(Duration::ZERO, |first| last - first))
        });
        let began = Instant::now();
        for number in 0..count {
            let due = pause * number as u32;
            thread::sleep(due.saturating_sub(began.elapsed()));
            // A socket that is full for a moment drops it.
            let _ = far.send(&[0; LOAD_BYTES]);
        }
        reader.join().ok().context("a reader thread failed")
    })
}

fn measured_rate(link: &Link, rate: Rate, round_trip: Duration) -> anyhow::Result<Rate> {
    if rate > Rate::mbit(DATAGRAMS_MBIT_MAX) {
        return rate_of_stream(link, round_trip);
    }
    let bits = 8.0 * (LOAD_BYTES + HEADER_BYTES) as f64;
    let offered = 1.1 * rate.bits() as f64;
    let count = (offered / bits * LOAD_LASTS.as_secs_f64()).max(20.0) as usize;
    let (came, over) = load(link, offered, count)?;
    ensure!(came > 2, "no data crosses the link");
    let measured = (came - 1) as f64 * bits / over.as_secs_f64();
    Rate::bits_per_second(measured as u64).context("the measured rate is zero")
}

/// What one TCP connection carries once it has begun, headers included.
fn rate_of_stream(link: &Link, round_trip: Duration) -> anyhow::Result<Rate> {
    let near = link.at(End::Near, || {
        Ok(TcpListener::bind((End::Near.address(), 0))?)
    })?;
    // The limits of this machine for a connection's buffers are not the link's.
    set_socket_recv_buffer_size_force(&near, BUFFER_BYTES)?;
    let address = near.local_addr()?;
    let mut far = link.at(End::Far, || Ok(TcpStream::connect(address)?))?;
    set_socket_send_buffer_size_force(&far, BUFFER_BYTES)?;
    let (mut reader, _) = near.accept()?;
    let starts = STREAM_STARTS + SLOW_START_ROUND_TRIPS * round_trip;
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let piece = vec![0; 1 << 18];
            // Ended by its reader.
            while far.write_all(&piece).is_ok() {}
        });
        let mut piece = vec![0; 1 << 18];
        let (began, mut counted) = (Instant::now(), None);
        loop {
            let bytes = reader.read(&mut piece)?;
            let now = began.elapsed();
            match &mut counted {
                None if now >= starts => counted = Some((now, 0)),
                None => {}
                Some((since, sum)) => {
                    *sum += bytes;
                    let over = now - *since;
                    if over >= LOAD_LASTS {
                        reader.shutdown(Shutdown::Both)?;
                        drop(reader);
                        drop(writer);
                        let headers = 1500.0 / 1448.0;
                        let bits = 8.0 * *sum as f64 * headers / over.as_secs_f64();
                        return Rate::bits_per_second(bits as u64)
                            .context("the measured rate is zero");
                    }
                }
            }
        }
    })
}

fn measured_loss(link: &Link, rate: Option<Rate>) -> anyhow::Result<f64> {
    let rate = rate.map_or(2e8, |rate| 0.5 * rate.bits() as f64).min(2e8);
    let (came, _) = load(link, rate, LOSS_SAMPLE)?;
    Ok(1.0 - came as f64 / LOSS_SAMPLE as f64)
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "round trip {:.2?} (at most {:.2?})",
            self.round_trip, self.longest
        )?;
        if let Some(rate) = self.rate {
            write!(f, ", {rate}")?;
        }
        if let Some(loss) = self.loss {
            write!(f, ", {:.2} % lost", 100.0 * loss)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Others may use the machine.
    const ATTEMPTS: usize = 40;

    #[test]
    fn a_link_is_as_its_settings_say_and_not_as_others() -> anyhow::Result<()> {
        let config = LinkConfig {
            rate: Some(Rate::mbit(50)),
            delay: Duration::from_millis(20),
            loss: 0.02,
            ..LinkConfig::default()
        };
        let Some(link) = Link::for_test(config.clone())? else {
            return Ok(());
        };
        let wrong = [
            (
                LinkConfig {
                    rate: Some(Rate::mbit(25)),
                    ..config.clone()
                },
                "the link carries",
            ),
            (
                LinkConfig {
                    delay: Duration::from_millis(40),
                    ..config.clone()
                },
                "a round trip takes",
            ),
            (
                LinkConfig {
                    delay: Duration::from_millis(10),
                    ..config.clone()
                },
                "a round trip takes",
            ),
            (
                LinkConfig {
                    loss: 0.005,
                    ..config.clone()
                },
                "are lost",
            ),
        ];
        for (other, says) in wrong {
            let mut errors = (0..ATTEMPTS).filter_map(|_| check(&link, &other).err());
            let is_found = errors.any(|error| error.to_string().contains(says));
            assert!(is_found, "{other:?}");
        }
        let is_right = (0..ATTEMPTS).any(|_| check(&link, &config).is_ok());
        assert!(is_right, "{:?}", check(&link, &config));
        Ok(())
    }
}
