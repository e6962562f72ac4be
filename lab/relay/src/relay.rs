//! The relay itself: accepts, carries, counts, and has the switches by which a link goes bad.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::RelayConfig;
use crate::connection::carry;
use crate::counts::{Counts, Ledger};
use crate::door::Door;
use crate::link::Link;
use crate::shared::{CutSignal, Shared};

/// A running relay. Dropping it resets its connections and frees its address.
///
/// The switches return at once; what they do to connections follows within moments, but a
/// connect after [`Relay::refuse`] is sure to be refused.
pub struct Relay {
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

impl Relay {
    /// Starts a relay.
    ///
    /// # Errors
    ///
    /// When the address cannot be listened on, or a thread cannot be started.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O and time.
    pub fn start(config: RelayConfig) -> io::Result<Relay> {
        let shared = Arc::new(Shared {
            door: Door::open(config.listen, config.socket_buffer_bytes())?,
            up: Arc::new(Link::new(&config.link)),
            down: Arc::new(Link::new(&config.link)),
            ledger: Ledger::default(),
            cuts: watch::Sender::new(()),
            config,
        });
        let accepting = tokio::spawn(Arc::clone(&shared).accept()).abort_handle();
        // From here on, whatever fails drops the relay, which stops what already runs.
        let relay = Relay { shared, accepting };
        for (name, link) in [
            ("relay up", &relay.shared.up),
            ("relay down", &relay.shared.down),
        ] {
            let link = Arc::clone(link);
            thread::Builder::new()
                .name(name.into())
                .spawn(move || link.drive())?;
        }
        Ok(relay)
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.shared.door.address()
    }

    /// What has crossed the link so far.
    pub fn counts(&self) -> Counts {
        self.shared.ledger.counts()
    }

    /// Resets, at both of its sides, every connection that was accepted; new ones go on.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Forwards nothing more, neither bytes nor closes nor resets, and closes nothing, as an
    /// unplugged cable would. Clients that connect now stay in the kernel's backlog, where to them
    /// they look connected.
    pub fn freeze(&self) {
        self.shared.door.set_frozen(true);
        self.shared.up.freeze();
        self.shared.down.freeze();
    }

    /// Goes on after [`Relay::freeze`]; nothing was lost.
    pub fn thaw(&self) {
        self.shared.up.thaw();
        self.shared.down.thaw();
        self.shared.door.set_frozen(false);
    }

    /// Refuses new clients, as a machine without the service would; open connections go on.
    ///
    /// # Errors
    ///
    /// When another program took the address at that very moment. New clients are then not
    /// accepted either.
    pub fn refuse(&self) -> io::Result<()> {
        self.shared.door.refuse()
    }

    /// Undoes [`Relay::refuse`] and [`Relay::freeze`].
    ///
    /// # Errors
    ///
    /// When another program took the address at that very moment.
    pub fn restore(&self) -> io::Result<()> {
        self.thaw();
        self.shared.door.listen()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.up.stop();
        self.shared.down.stop();
        self.shared.cut();
    }
}

impl Shared {
    async fn accept(self: Arc<Self>) {
        loop {
            let Ok(client) = self.door.accept().await else {
                // Out of file descriptors, most likely: others must close first.
                sleep(ACCEPT_RETRY).await;
                continue;
            };
            // Before the connection is counted, so that a cut reaches all that are.
            let cut = CutSignal(self.cuts.subscribe());
            let connection = self.ledger.open();
            tokio::spawn(Arc::clone(&self).serve(client, cut, connection));
        }
    }

    async fn serve(self: Arc<Self>, client: TcpStream, cut: CutSignal, connection: u64) {
        carry(client, cut, &self, connection).await;
        self.ledger.close();
    }
}

const ACCEPT_RETRY: Duration = Duration::from_millis(10);
