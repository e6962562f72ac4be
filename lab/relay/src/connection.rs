//! One connection through the relay: a client, the target, and a [`Pump`] in each direction.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use crate::counts::DirectionCounters;
use crate::door::socket;
use crate::link::{Arrival, Inlet, lock};
use crate::shared::{CutSignal, Shared};

/// Carries `client` to the target and back until both sides have closed, or either has reset, or
/// the relay cuts.
pub(crate) async fn carry(client: TcpStream, mut cut: CutSignal, relay: &Shared, connection: u64) {
    // From here on, whatever ends this function but the clean end resets both sides. Errors of
    // these calls would show again, and matter, at the first read.
    let _ = (client.set_zero_linger(), client.set_nodelay(true));
    let target = tokio::select! {
        target = dial(relay) => target,
        () = cut.fired() => return,
    };
    let Ok(target) = target else {
        return relay.ledger.target_was_unreachable();
    };
    let _ = target.set_nodelay(true);

    let reset_crossed = Arc::new(Notify::new());
    let (up, up_arrivals) = relay.up.open(connection, Arc::clone(&reset_crossed));
    let (down, down_arrivals) = relay.down.open(connection, Arc::clone(&reset_crossed));
    let pump = |counters, from, to, inlet, back| Pump {
        counters,
        from,
        to,
        inlet,
        back,
        payload: Mutex::new(BytesMut::new()),
    };
    let to_target = pump(&relay.ledger.up, &client, &target, &up, &down);
    let to_client = pump(&relay.ledger.down, &target, &client, &down, &up);

    let transfer = async {
        tokio::join!(
            to_target.take_in(),
            to_target.hand_on(up_arrivals),
            to_client.take_in(),
            to_client.hand_on(down_arrivals),
        )
    };
    tokio::select! {
        _ = transfer => {
            for stream in [&client, &target] {
                let _ = SockRef::from(stream).set_linger(None);
            }
        }
        never = to_target.watch_for_reset() => match never {},
        never = to_client.watch_for_reset() => match never {},
        () = reset_crossed.notified() => {}
        () = cut.fired() => {}
    }
}

/// One direction of one connection.
struct Pump<'a> {
    counters: &'a DirectionCounters,
    from: &'a TcpStream,
    to: &'a TcpStream,
    inlet: &'a Inlet<'a>,
    /// The other direction, by which the sender hears of a receiver that went away.
    back: &'a Inlet<'a>,
    /// What entered the link and was not handed on yet. The link itself knows only how much.
    payload: Mutex<BytesMut>,
}

impl Pump<'_> {
    /// Reads as much as the link has room for, until the sender closes or resets.
    async fn take_in(&self) {
        loop {
            let room = self.inlet.room().await;
            match self.read(room).await {
                Ok(0) => return self.inlet.close(),
                Ok(bytes) => {
                    self.counters.entered(bytes);
                    self.inlet.enter(bytes);
                }
                Err(_) => return self.inlet.reset(),
            }
        }
    }

    /// Hands on what arrives, until the sender's close has arrived.
    async fn hand_on(&self, mut arrivals: mpsc::UnboundedReceiver<Arrival>) {
        while let Some(Arrival::Bytes(bytes)) = arrivals.recv().await {
            if self.write(bytes).await.is_err() {
                self.back.reset();
                return pending().await;
            }
            self.inlet.taken(bytes);
        }
        // Fails only if the receiver has reset, which is noticed elsewhere.
        let _ = SockRef::from(self.to).shutdown(Shutdown::Write);
    }

    /// Notices a reset even while nothing is read: the link is full, or the sender half-closed.
    async fn watch_for_reset(&self) -> Infallible {
        while let Ok(ready) = self.from.ready(Interest::ERROR).await {
            if ready.is_error() {
                self.inlet.reset();
                break;
            }
        }
        pending().await
    }

    async fn read(&self, room: usize) -> io::Result<usize> {
        loop {
            self.from.readable().await?;
            let mut payload = lock(&self.payload);
            let bytes_max = room.min(READ_BYTES_MAX);
            payload.reserve(bytes_max);
            match self
                .from
                .try_read_buf(&mut (&mut *payload).limit(bytes_max))
            {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    async fn write(&self, bytes: usize) -> io::Result<()> {
        let mut payload = lock(&self.payload).split_to(bytes);
        while !payload.is_empty() {
            self.to.writable().await?;
            match self.to.try_write(&payload) {
                Ok(written) => {
                    self.counters.delivered(written);
                    payload.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Connects to the target, one round trip later: the handshake that the client's connect to the
/// relay has not waited for.
async fn dial(relay: &Shared) -> io::Result<TcpStream> {
    let round_trip: Duration = relay.config.link.delay.saturating_mul(2);
    if !round_trip.is_zero() {
        sleep(round_trip).await;
    }
    let target = relay.config.target;
    let socket = socket(target, relay.config.socket_buffer_bytes())?;
    socket.set_zero_linger()?;
    socket.connect(target).await
}

const READ_BYTES_MAX: usize = 64 << 10;
