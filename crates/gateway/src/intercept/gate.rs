//! Keeps the gate of the firewall's table open while this gateway works.
//!
//! Work is shown, not assumed: a connection to the own listener went through the loop that accepts connections, while
//! a link was up. A timer of its own would keep the gate open for a gateway that hangs.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    net::{TcpSocket, UdpSocket},
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

use super::table::{GATE_MS, RENEWAL, RENEWAL_OF_OTHERS};

/// How often the gate is renewed.
const RENEW_INTERVAL: Duration = Duration::from_millis(100);

/// How long a probe may take. A slower gateway gets no new connections.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// How long the kernel may take to connect it. It does so without the gateway, unless a firewall drops its packets.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// How long it is not renewed after a connection found a gateway without resources: others would be lost too. Each time
/// that this soon happens again, it is twice as long, up to the second.
const SUSPENDED: Duration = Duration::from_secs(1);
const SUSPENDED_MAX: Duration = Duration::from_secs(32);

/// The gate, as its gateway keeps it.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Changes as long as connections to the own listener are accepted, or turned away.
    progress: watch::Sender<u64>,
    /// Where the probes that are under way come from, by the ports that they go to.
    probes: Mutex<BTreeMap<u16, SocketAddr>>,
    /// Whether users closed it.
    is_bypassed: AtomicBool,
    /// Whether it is closed for good.
    is_closing: AtomicBool,
    renewed: Mutex<Option<Instant>>,
    suspension: Mutex<Option<Suspension>>,
}

/// A time in which the gate is not renewed.
#[derive(Debug, Clone, Copy)]
struct Suspension {
    until: Instant,
    length: Duration,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            progress: watch::Sender::new(0),
            probes: Mutex::default(),
            is_bypassed: AtomicBool::default(),
            is_closing: AtomicBool::default(),
            renewed: Mutex::default(),
            suspension: Mutex::default(),
        }
    }
}

impl Gate {
    /// Changes as long as the listener makes progress.
    pub(crate) fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// The listener made progress.
    pub(crate) fn count_progress(&self) {
        self.progress.send_modify(|count| *count += 1);
    }

    /// Lets no further connections be intercepted, or does so again. The gate closes within half a second.
    pub(crate) fn bypass(&self, on: bool) {
        self.is_bypassed.store(on, Ordering::Relaxed);
    }

    /// A gateway had no resources for a connection: lets no further ones be intercepted for a while.
    pub(crate) fn suspend(&self) {
        let now = Instant::now();
        let mut suspension = self.suspension.lock().expect("held for a moment");
        let length = match *suspension {
            // It was redirected while the gate was still open.
            Some(Suspension { until, .. }) if now < until => return,
            Some(Suspension { until, length }) if now < until + length => {
                (2 * length).min(SUSPENDED_MAX)
            }
            _ => SUSPENDED,
        };
        let until = now + length;
        *suspension = Some(Suspension { until, length });
    }

    fn is_suspended(&self) -> bool {
        let suspension = *self.suspension.lock().expect("held for a moment");
        suspension.is_some_and(|suspension| Instant::now() < suspension.until)
    }

    /// Whether users closed it.
    pub(crate) fn is_bypassed(&self) -> bool {
        self.is_bypassed.load(Ordering::Relaxed)
    }

    /// Whether it is open, if there is a table.
    pub(crate) fn is_open(&self) -> bool {
        let renewed = *self.renewed.lock().expect("held for a moment");
        renewed.is_some_and(|at| at.elapsed() < Duration::from_millis(GATE_MS))
    }

    /// Closes it for good, and waits until no connection is on its way to the listener, and `spare` longer.
    pub(crate) async fn close(&self, spare: Duration) {
        /// Connections that were just being redirected may still be in their handshake.
        const SPARE: Duration = Duration::from_millis(100);
        self.is_closing.store(true, Ordering::Relaxed);
        let renewed = *self.renewed.lock().expect("held for a moment");
        if let Some(renewed) = renewed {
            sleep_until(renewed + Duration::from_millis(GATE_MS) + SPARE + spare).await;
        }
    }

    /// Whether a connection from there is a probe.
    pub(crate) fn is_probe(&self, client: SocketAddr) -> bool {
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        let probes = self.probes.lock().expect("held for a moment");
        probes.values().any(|probe| *probe == client)
    }

    /// Renews the element of each family in the gate of a port, unless the gates are to be closed.
    fn renew(&self, sockets: &[(UdpSocket, SocketAddr)], renewal: &[u8]) {
        // Held while packets go out, so that `close` knows the time of the last one.
        let mut renewed = self.renewed.lock().expect("held for a moment");
        if self.is_bypassed() || self.is_suspended() || self.is_closing.load(Ordering::Relaxed) {
            return;
        }
        for (socket, listener) in sockets {
            // The table drops the packet, which is an error of its sender.
            let _ = socket.try_send_to(renewal, *listener);
        }
        *renewed = Some(Instant::now());
    }
}

/// Renews the gate of the connections that come to `port`, while `takes_flows`, until the task is aborted. If the
/// listener takes no connections of other machines, theirs stays closed.
pub(crate) async fn keep(
    gate: &Gate,
    takes_flows: impl Fn() -> bool,
    takes_forwarded: bool,
    port: u16,
) {
    let renewal = match takes_forwarded {
        true => RENEWAL_OF_OTHERS,
        false => RENEWAL,
    };
    let mut sockets = Vec::new();
    for loopback in [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ] {
        // Without IPv6, nothing of it is redirected.
        if let Ok(socket) = UdpSocket::bind((loopback, 0)).await {
            sockets.push((socket, SocketAddr::new(loopback, port)));
        }
    }
    let listener = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut ticks = interval(RENEW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_reported = false;
    loop {
        ticks.tick().await;
        match timeout(PROBE_TIMEOUT, probe(gate, listener)).await {
            Ok(Ok(())) => {
                if takes_flows() {
                    gate.renew(&sockets, renewal);
                }
            }
            // A lack of descriptors, or a firewall, for example: the process works.
            Ok(Err(error)) => {
                gate.count_progress();
                let is_closing = gate.is_closing.load(Ordering::Relaxed);
                if !core::mem::replace(&mut is_reported, true) && !is_closing {
                    tracing::warn!(
                        "connections are not intercepted: cannot connect to {listener}: {error}"
                    );
                }
            }
            // The listener has more to do than it can: new connections go direct meanwhile.
            Err(_) => {}
        }
    }
}

/// Connects to the own listener, which ends the connection.
async fn probe(gate: &Gate, listener: SocketAddr) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into())?;
    let (port, own) = (listener.port(), socket.local_addr()?);
    gate.probes
        .lock()
        .expect("held for a moment")
        .insert(port, own);
    let connected = timeout(CONNECT_TIMEOUT, socket.connect(listener)).await;
    let connected = connected.unwrap_or_else(|_| {
        let reason = "no answer (does a firewall drop packets of loopback?)";
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    });
    let ended = match connected {
        Ok(mut stream) => stream.read(&mut [0]).await,
        // Its end may come before its beginning is noticed.
        Err(error) => Err(error),
    };
    match ended {
        Ok(0) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn suspensions_grow_as_long_as_the_lack_lasts() {
        let gate = Gate::default();
        for seconds in [1, 2, 4, 8, 16, 32, 32, 1] {
            if seconds == 1 {
                advance(2 * SUSPENDED_MAX).await;
            }
            assert!(!gate.is_suspended());
            gate.suspend();
            advance(Duration::from_millis(500)).await;
            // Of a connection that the table still redirected.
            gate.suspend();
            advance(Duration::from_secs(seconds) - Duration::from_millis(501)).await;
            assert!(gate.is_suspended(), "{seconds}");
            advance(Duration::from_millis(1)).await;
        }
    }
}
