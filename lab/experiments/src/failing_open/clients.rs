//! Connections to the origin, from a network namespace, and their ends.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Socket, Type};

/// Asks the origin for the address that it sees, each time.
pub(super) const ASK: [u8; 4] = *b"ask ";

/// Bytes of an answer: an address, padded.
pub(super) const ANSWER_BYTES: usize = 40;

/// An answer that takes longer hangs.
pub(super) const HANGS_AFTER: Duration = Duration::from_secs(5);

/// The ports of a world's clients. Each is used again only after minutes: until then the kernel may redirect a connection
/// from a port as it redirected the last one from there. They are those of Linux: a far end that connects from clients'
/// addresses uses lower ones, and one that is stopped keeps them.
const PORTS: std::ops::Range<u16> = 32_768..60_000;

/// The ports that the kernel gives other connections of the same machine.
pub(super) const OTHER_PORTS: &str = "60000 65000";

/// A connection's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// The origin saw the client, or the near end that connected for it.
    Direct,
    /// The origin saw the far end.
    Carried,
    /// It continued, without a pause.
    Continued,
    /// It continued after a pause.
    Resumed,
    Refused,
    Reset,
    /// It ended as if it was complete.
    Truncated,
    WrongBytes,
    Hung,
}

impl Outcome {
    /// Whether no program may ever see it.
    pub(super) fn is_wrong(self) -> bool {
        matches!(
            self,
            Outcome::Truncated | Outcome::WrongBytes | Outcome::Hung
        )
    }

    pub(super) fn is_lost(self) -> bool {
        self.is_wrong() || matches!(self, Outcome::Refused | Outcome::Reset)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Outcome::Direct => "direct",
            Outcome::Carried => "carried",
            Outcome::Continued => "continued",
            Outcome::Resumed => "resumed",
            Outcome::Refused => "refused",
            Outcome::Reset => "reset",
            Outcome::Truncated => "**truncated**",
            Outcome::WrongBytes => "**wrong bytes**",
            Outcome::Hung => "**hung**",
        }
    }
}

impl From<io::Error> for Outcome {
    fn from(error: io::Error) -> Outcome {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Outcome::Refused,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Outcome::Hung,
            io::ErrorKind::UnexpectedEof => Outcome::Truncated,
            _ => Outcome::Reset,
        }
    }
}

/// Where clients are, and where they connect to.
#[derive(Clone)]
pub(super) struct Place {
    /// The file of their network namespace.
    pub namespace: PathBuf,
    /// Their own address.
    pub own: Ipv4Addr,
    pub origin: SocketAddr,
    /// How many ports were used.
    pub ports: Arc<AtomicU16>,
}

impl Place {
    /// Does something on a thread of its own there. Its threads are there too.
    pub(super) fn within<R: Send>(
        &self,
        action: impl FnOnce() -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        within(&self.namespace, action)
    }

    /// A connection, by a thread that is there.
    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        let next = |used| Some((used + 1) % (PORTS.end - PORTS.start));
        let used = self
            .ports
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let port = PORTS.start + used.unwrap_or_default();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((self.own, port)).into())?;
        socket.connect_timeout(&self.origin.into(), HANGS_AFTER)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANGS_AFTER))?;
        Ok(stream)
    }

    /// Opens a connection, and asks the origin for the address that it sees.
    pub(super) fn try_once(&self) -> Outcome {
        let asked = self.connect().and_then(|mut stream| {
            begin(&mut stream, ASK)?;
            self.answer(&mut stream)
        });
        asked.unwrap_or_else(Outcome::from)
    }

    /// Reads an answer.
    pub(super) fn answer(&self, stream: &mut TcpStream) -> io::Result<Outcome> {
        let mut seen = [0; ANSWER_BYTES];
        stream.read_exact(&mut seen)?;
        // The far end is on the origin's machine. Elsewhere, the origin knows its connections.
        let is_carried = String::from_utf8_lossy(&seen).trim() == self.origin.ip().to_string();
        Ok(if is_carried {
            Outcome::Carried
        } else {
            Outcome::Direct
        })
    }
}

/// Does something on a thread of its own in a network namespace. Its threads are there too.
pub(super) fn within<R: Send>(
    namespace: &Path,
    action: impl FnOnce() -> anyhow::Result<R> + Send,
) -> anyhow::Result<R> {
    let enter = || {
        enter(namespace)?;
        action()
    };
    thread::scope(|scope| scope.spawn(enter).join().expect("no panic"))
}

/// Moves this thread into a network namespace.
pub(super) fn enter(namespace: &Path) -> anyhow::Result<()> {
    let file = File::open(namespace).with_context(|| namespace.display().to_string())?;
    setns(file, CloneFlags::CLONE_NEWNET).with_context(|| namespace.display().to_string())
}

/// The outcome of a stream that ended. After a reset, only the first system call of all threads sees an error, and
/// reads an end after that. But the kernel knows no peer then.
pub(super) fn end_of(stream: &TcpStream) -> Outcome {
    match stream.peer_addr() {
        Ok(_) => Outcome::Truncated,
        Err(_) => Outcome::Reset,
    }
}

/// Sends a command and a number of its own, which it returns.
pub(super) fn begin(stream: &mut TcpStream, command: [u8; 4]) -> io::Result<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut bytes = command.to_vec();
    bytes.extend_from_slice(&number.to_le_bytes());
    stream.write_all(&bytes)?;
    Ok(number)
}

/// A short connection of a crowd.
#[derive(Clone, Copy)]
pub(super) struct Tried {
    pub began: Instant,
    pub ended: Instant,
    pub outcome: Outcome,
}

impl Tried {
    pub(super) fn once(place: &Place) -> Tried {
        let began = Instant::now();
        let outcome = place.try_once();
        let ended = Instant::now();
        // Connecting and the answer may each have taken less.
        let outcome = match ended - began < HANGS_AFTER {
            true => outcome,
            false => Outcome::Hung,
        };
        Tried {
            began,
            ended,
            outcome,
        }
    }
}
