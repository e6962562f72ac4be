//! Keeps the gate of the firewall's table open while this gateway works.
//!
//! Work is shown, not assumed: a connection to the own listener went through the loop that accepts connections, while
//! a link was up. A timer of its own would keep the gate open for a gateway that hangs.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
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
    time::{Instant, MissedTickBehavior, interval, timeout},
};

use super::table::GATE_MS;

/// How often the gate is renewed.
const RENEW_INTERVAL: Duration = Duration::from_millis(100);

/// How long a probe may take. A slower gateway gets no new connections.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// The gate, as its gateway keeps it.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The number of probes that came through.
    probes: watch::Sender<u64>,
    /// Where the probe that is under way comes from.
    probe: Mutex<Option<SocketAddr>>,
    /// Whether it is to be closed, whatever works.
    is_bypassed: AtomicBool,
    renewed: Mutex<Option<Instant>>,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            probes: watch::Sender::new(0),
            probe: Mutex::default(),
            is_bypassed: AtomicBool::default(),
            renewed: Mutex::default(),
        }
    }
}

impl Gate {
    /// Changes with each probe that came through.
    pub(crate) fn probes(&self) -> watch::Receiver<u64> {
        self.probes.subscribe()
    }

    /// Lets no further connections be intercepted, or does so again. The gate closes within half a second.
    pub(crate) fn bypass(&self, on: bool) {
        self.is_bypassed.store(on, Ordering::Relaxed);
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

    /// Waits until it is closed for sure: then no connection is on its way to the listener.
    pub(crate) async fn close(&self) {
        /// Connections that were just being redirected may still be in their handshake.
        const SPARE: Duration = Duration::from_millis(100);
        self.bypass(true);
        let renewed = *self.renewed.lock().expect("held for a moment");
        if let Some(renewed) = renewed {
            tokio::time::sleep_until(renewed + Duration::from_millis(GATE_MS) + SPARE).await;
        }
    }

    /// Whether a connection from there is a probe.
    pub(crate) fn is_probe(&self, client: SocketAddr) -> bool {
        *self.probe.lock().expect("held for a moment") == Some(client)
    }
}

/// Renews the gate of the table that redirects to `port` while a link is up, until the task is aborted.
pub(crate) async fn keep(gate: &Gate, is_link_up: impl Fn() -> bool, port: u16) {
    let listener = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await else {
        return tracing::error!("cannot open a UDP socket: nothing is intercepted");
    };
    let mut ticks = interval(RENEW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let began = Instant::now();
        let probed = timeout(PROBE_TIMEOUT, probe(gate, listener)).await;
        if !matches!(probed, Ok(Ok(()))) {
            continue;
        }
        gate.probes.send_modify(|probes| *probes += 1);
        if is_link_up() && !gate.is_bypassed() {
            *gate.renewed.lock().expect("held for a moment") = Some(began);
            // The table drops the packet, which is an error of its sender.
            let _ = socket.send_to(&[], listener).await;
        }
    }
}

/// Connects to the own listener, which ends the connection.
async fn probe(gate: &Gate, listener: SocketAddr) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into())?;
    *gate.probe.lock().expect("held for a moment") = Some(socket.local_addr()?);
    let mut stream = socket.connect(listener).await?;
    match stream.read(&mut [0]).await {
        Ok(0) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        Err(error) => Err(error),
    }
}
