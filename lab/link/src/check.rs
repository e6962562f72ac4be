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

use crate::{End, Link, LinkConfig, REORDERED_BY};

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

/// Datagrams from which the loss and those that are overtaken are counted.
const SAMPLE: usize = 4_000;

/// Further datagrams than the queue holds, as a share of it, which fill it.
const OVERFLOW: f64 = 0.2;

/// What a queue may be longer or shorter, as a share of it.
const QUEUE_TOLERANCE: f64 = 0.1;

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
    /// How long the queue in that direction is, if datagrams can fill it.
    pub queue: Option<Duration>,
    /// The share that was lost, if the link loses any.
    pub loss: Option<f64>,
    /// The share that was overtaken, if the link holds any back and is fast enough for that.
    pub late: Option<f64>,
}

/// What came of many datagrams.
struct Load {
    came: usize,
    /// Those of them that came after a later one.
    late: usize,
    /// From the first to the last that came.
    came_over: Duration,
    /// From the first to the last that was sent.
    sent_over: Duration,
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
    let (rate, queue) = match measurable {
        None => (None, None),
        Some(_) if is_stream => (Some(rate_of_stream(link, asked)?), None),
        Some(rate) => {
            let (rate, queue) = measured_queue(link, rate, config.queue)?;
            (Some(rate), Some(queue))
        }
    };
    if let (Some(measured), Some(asked)) = (rate, config.rate) {
        // What is lost does not come.
        let asked = asked.bits() as f64 * (1.0 - config.loss);
        let ratio = measured.bits() as f64 / asked;
        ensure!(
            (0.95..=1.03).contains(&ratio),
            "the link carries {measured}, {ratio:.3} of the requested rate: this machine is too busy"
        );
    }
    if let (Some(measured), Some(rate)) = (queue, config.rate) {
        let datagram = rate.time_for((LOAD_BYTES + HEADER_BYTES) as u64);
        let held_back = match config.reorder > 0.0 {
            true => REORDERED_BY,
            false => Duration::ZERO,
        };
        let tolerance = config.queue.mul_f64(QUEUE_TOLERANCE) + 2 * datagram + LATENESS + held_back;
        ensure!(
            measured.abs_diff(config.queue) <= tolerance,
            "a full queue takes {measured:.1?} instead of {:?}: this machine is too busy",
            config.queue
        );
    }
    let (loss, late) = shares(link, config)?;
    Ok(Checked {
        round_trip,
        longest,
        rate,
        queue,
        loss,
        late,
    })
}

/// The shares of datagrams that are lost and overtaken, where the link is to lose or to hold back some.
fn shares(link: &Link, config: &LinkConfig) -> anyhow::Result<(Option<f64>, Option<f64>)> {
    let rate = (config.rate)
        .map_or(2e8, |rate| 0.5 * rate.bits() as f64)
        .min(2e8);
    // On a slow link the next datagram comes too late to overtake.
    let overtakes = 2 * pause(rate) < REORDERED_BY;
    let (loses, reorders) = (config.loss > 0.0, config.reorder > 0.0 && overtakes);
    if !loses && !reorders {
        return Ok((None, None));
    }
    let load = load(link, rate, 0, SAMPLE)?;
    let loss = 1.0 - load.came as f64 / SAMPLE as f64;
    let late = load.late as f64 / load.came.max(1) as f64;
    if loses {
        ensure_share(loss, config.loss, "lost")?;
    }
    if reorders {
        ensure_share(late, config.reorder, "overtaken")?;
    }
    Ok((loses.then_some(loss), reorders.then_some(late)))
}

fn ensure_share(measured: f64, asked: f64, what: &str) -> anyhow::Result<()> {
    // Four standard deviations.
    let spread = 4.0 * (asked * (1.0 - asked) / SAMPLE as f64).sqrt();
    ensure!(
        (measured - asked).abs() <= spread,
        "{:.2} % of datagrams are {what} instead of {:.2} %",
        100.0 * measured,
        100.0 * asked
    );
    Ok(())
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

/// The time between two datagrams at `rate` bits a second.
fn pause(rate: f64) -> Duration {
    Duration::from_secs_f64(8.0 * (LOAD_BYTES + HEADER_BYTES) as f64 / rate)
}

/// Sends datagrams from the far end: `burst` at once, then `count` at `rate`.
fn load(link: &Link, rate: f64, burst: usize, count: usize) -> anyhow::Result<Load> {
    let [near, far] = sockets(link)?;
    near.set_read_timeout(Some(Duration::from_millis(800)))?;
    set_socket_recv_buffer_size_force(&near, BUFFER_BYTES)?;
    let pause = pause(rate);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut datagram = [0; LOAD_BYTES];
            let (mut came, mut late, mut next) = (0, 0, 0);
            let (mut first, mut last) = (None, Instant::now());
            while near.recv(&mut datagram).is_ok() {
                last = Instant::now();
                first.get_or_insert(last);
                came += 1;
                let [a, b, c, d, ..] = datagram;
                let number = u32::from_be_bytes([a, b, c, d]);
                late += usize::from(number < next);
                next = next.max(number + 1);
            }
            let came_over = first.map_or(Duration::ZERO, |first| last - first);
            (came, late, came_over)
        });
        let began = Instant::now();
        for number in 0..burst + count {
            let due = pause * number.saturating_sub(burst) as u32;
            thread::sleep(due.saturating_sub(began.elapsed()));
            let mut datagram = [0; LOAD_BYTES];
            datagram[..4].copy_from_slice(&(number as u32).to_be_bytes());
            // A socket that is full for a moment drops it.
            let _ = far.send(&datagram);
        }
        let sent_over = began.elapsed();
        let (came, late, came_over) = reader.join().ok().context("a reader thread failed")?;
        Ok(Load {
            came,
            late,
            came_over,
            sent_over,
        })
    })
}

/// The rate of a link whose queue stays full, and how long it is: so much later than it was sent, the last datagram comes.
fn measured_queue(link: &Link, rate: Rate, queue: Duration) -> anyhow::Result<(Rate, Duration)> {
    let bits = 8.0 * (LOAD_BYTES + HEADER_BYTES) as f64;
    let offered = 1.1 * rate.bits() as f64;
    let count = (offered / bits * LOAD_LASTS.as_secs_f64()).max(20.0) as usize;
    let held = rate.bits() as f64 * queue.as_secs_f64() / bits;
    let load = load(link, offered, (held * (1.0 + OVERFLOW)) as usize, count)?;
    ensure!(load.came > 2, "no data crosses the link");
    let measured = (load.came - 1) as f64 * bits / load.came_over.as_secs_f64();
    let measured = Rate::bits_per_second(measured as u64).context("the measured rate is zero")?;
    Ok((measured, load.came_over.saturating_sub(load.sent_over)))
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
        if let Some(queue) = self.queue {
            write!(f, ", a queue of {queue:.1?}")?;
        }
        if let Some(loss) = self.loss {
            write!(f, ", {:.2} % lost", 100.0 * loss)?;
        }
        if let Some(late) = self.late {
            write!(f, ", {:.2} % late", 100.0 * late)?;
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
            reorder: 0.05,
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
            (
                LinkConfig {
                    queue: Duration::from_millis(60),
                    ..config.clone()
                },
                "a full queue takes",
            ),
            (
                LinkConfig {
                    queue: Duration::from_millis(150),
                    ..config.clone()
                },
                "a full queue takes",
            ),
            (
                LinkConfig {
                    reorder: 0.2,
                    ..config.clone()
                },
                "are overtaken",
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
