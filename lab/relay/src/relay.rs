//! The relay itself: accepts, carries, counts, and has the switches by which a link goes bad.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::connection::carry;
use crate::counts::{Account, Counts, Ledger};
use crate::door::Door;
use crate::link::Link;
use crate::shared::{Allowance, CutSignal, Shared};
use crate::{CutAfter, Direction, Rate, RelayConfig};

/// A running relay. Dropping it resets its connections and frees its address.
///
/// The switches return at once; what they do to connections follows within moments, but a
/// connect after [`Relay::refuse`] is sure to be refused.
pub struct Relay {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

impl Relay {
    /// Starts a relay.
    ///
    /// # Errors
    ///
    /// When the address cannot be listened on, or the configuration describes no link
    /// ([`io::ErrorKind::InvalidInput`]).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O and time.
    pub fn start(config: RelayConfig) -> io::Result<Relay> {
        config
            .link
            .validate()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let allowance = match config.cut_after {
            Some(CutAfter::Bytes(bytes)) => Some(bytes),
            Some(CutAfter::Time(_)) | None => None,
        };
        let shared = Arc::new(Shared {
            door: Door::open(config.listen, config.socket_buffer_bytes())?,
            up: Link::new(&config.link, Direction::Up),
            down: Link::new(&config.link, Direction::Down),
            ledger: Ledger::default(),
            allowance: Allowance(Mutex::new(allowance)),
            first_accepted: Notify::new(),
            cuts: watch::Sender::new(()),
            config,
        });
        // From here on, whatever fails drops the relay, which stops what already runs.
        let mut relay = Relay {
            shared,
            tasks: Vec::new(),
        };
        for direction in [Direction::Up, Direction::Down] {
            let shared = Arc::clone(&relay.shared);
            thread::Builder::new()
                .name(format!("relay {direction:?}"))
                .spawn(move || shared.link(direction).drive())?;
        }
        relay.spawn(Arc::clone(&relay.shared).accept());
        if let Some(CutAfter::Time(time)) = relay.shared.config.cut_after {
            let shared = Arc::clone(&relay.shared);
            relay.spawn(async move {
                shared.first_accepted.notified().await;
                sleep(time).await;
                shared.cut();
            });
        }
        Ok(relay)
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(task).abort_handle());
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.shared.door.address()
    }

    /// What has crossed the link so far.
    pub fn counts(&self) -> Counts {
        Counts {
            up_stalls: self.shared.up.stalls(),
            down_stalls: self.shared.down.stalls(),
            ..self.shared.ledger.counts()
        }
    }

    /// Changes the rate of both directions; `None` is as fast as it goes.
    pub fn set_rate(&self, rate: Option<Rate>) {
        self.shared.up.set_rate(rate);
        self.shared.down.set_rate(rate);
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
        for task in &self.tasks {
            task.abort();
        }
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
            let account = self.ledger.open();
            if account.connection == 0 {
                self.first_accepted.notify_one();
            }
            tokio::spawn(Arc::clone(&self).serve(client, cut, account));
        }
    }

    async fn serve(self: Arc<Self>, client: TcpStream, cut: CutSignal, account: Arc<Account>) {
        carry(client, cut, &self, &account).await;
        self.ledger.close(&account);
    }
}

const ACCEPT_RETRY: Duration = Duration::from_millis(10);
