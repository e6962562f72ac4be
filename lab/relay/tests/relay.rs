//! The relay on real sockets: what arrives, what is counted, and what each switch does.
//!
//! A slow machine makes no test fail. Where a test waits for something that must come, it polls;
//! where it shows that something does not come, it does so while that could only come too late.

use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refrain_relay::{DirectionCounts, LinkConfig, Rate, Relay, RelayConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// A relay, and the server behind it.
struct Setup {
    relay: Relay,
    server: TcpListener,
}

impl Setup {
    async fn new(configure: impl FnOnce(&mut RelayConfig)) -> Setup {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut config = RelayConfig::to(server.local_addr().unwrap());
        configure(&mut config);
        Setup {
            relay: Relay::start(config).unwrap(),
            server,
        }
    }

    /// A connection through the relay: the client's and the server's end.
    async fn connect(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.relay.address()).await.unwrap();
        let (server, _) = soon(self.server.accept()).await.unwrap();
        (client, server)
    }
}

/// Waits, but not for ever.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), future)
        .await
        .expect("it never came")
}

async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

fn content(bytes: usize, seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// Sends `up` and `down` at once, each followed by a close, and returns what arrived.
async fn exchange(
    (client, server): (TcpStream, TcpStream),
    up: &[u8],
    down: &[u8],
) -> Result<(Vec<u8>, Vec<u8>)> {
    let one_side = async |stream: TcpStream, content: &[u8]| {
        let (mut read, mut write) = stream.into_split();
        let send = async {
            write.write_all(content).await?;
            write.shutdown().await
        };
        let receive = async {
            let mut received = Vec::new();
            read.read_to_end(&mut received).await?;
            Ok(received)
        };
        tokio::try_join!(send, receive).map(|((), received)| received)
    };
    let (at_client, at_server) =
        soon(async { tokio::try_join!(one_side(client, up), one_side(server, down)) }).await?;
    Ok((at_server, at_client))
}

async fn expect_reset(stream: &mut TcpStream) {
    let error = soon(stream.read_to_end(&mut Vec::new())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn delivered(bytes: usize) -> DirectionCounts {
    DirectionCounts {
        entered_bytes: bytes as u64,
        delivered_bytes: bytes as u64,
    }
}

#[tokio::test]
async fn bytes_arrive_equal_and_counted_both_ways() {
    let setup = Setup::new(|_| {}).await;
    let (up, down) = (content(3_000_000, 1), content(2_000_000, 2));
    let (at_server, at_client) = exchange(setup.connect().await, &up, &down).await.unwrap();
    assert!(at_server == up && at_client == down);

    until(|| setup.relay.counts().open == 0).await;
    let counts = setup.relay.counts();
    assert_eq!((counts.accepted, counts.unreachable), (1, 0));
    assert_eq!(
        (counts.up, counts.down),
        (delivered(up.len()), delivered(down.len()))
    );
}

#[tokio::test]
async fn many_connections_share_a_link() {
    let setup = Setup::new(|config| {
        config.link = LinkConfig {
            rate: Some(Rate::mbit(400)),
            delay: Duration::from_millis(2),
        };
    })
    .await;
    let mut exchanges = tokio::task::JoinSet::new();
    let mut total_bytes = [0, 0];
    for number in 0..20_u8 {
        let up = content(usize::from(number) * 10_000, number);
        let down = content(usize::from(19 - number) * 20_000, number + 100);
        total_bytes = [total_bytes[0] + up.len(), total_bytes[1] + down.len()];
        let pair = setup.connect().await;
        exchanges.spawn(async move {
            let arrived = exchange(pair, &up, &down).await.unwrap();
            assert!(arrived == (up, down), "connection {number}");
        });
    }
    while let Some(exchange) = soon(exchanges.join_next()).await {
        exchange.unwrap();
    }
    let counts = setup.relay.counts();
    assert_eq!(counts.up, delivered(total_bytes[0]));
    assert_eq!(counts.down, delivered(total_bytes[1]));
    assert_eq!(counts.accepted, 20);
}

#[tokio::test]
async fn nothing_is_faster_than_rate_and_delay() {
    let (rate, delay) = (Rate::mbit(80), Duration::from_millis(20));
    let setup = Setup::new(|config| {
        config.link = LinkConfig {
            rate: Some(rate),
            delay,
        };
    })
    .await;
    let content = content(2_000_000, 4);
    // A round trip for the connection, the time of the bytes at the rate, and one delay.
    let expected = 3 * delay + rate.time_for(content.len() as u64);
    for (up, down) in [(&content[..], &b""[..]), (&b""[..], &content[..])] {
        let began = Instant::now();
        exchange(setup.connect().await, up, down).await.unwrap();
        let took = began.elapsed();
        assert!(took >= expected, "{took:?}, expected {expected:?}");
    }
}

#[tokio::test]
async fn a_half_close_leaves_the_other_half_open() {
    let setup = Setup::new(|config| config.link.delay = Duration::from_millis(1)).await;
    let (mut client, mut server) = setup.connect().await;
    client.write_all(b"all I have to say").await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = String::new();
    soon(server.read_to_string(&mut heard)).await.unwrap();
    assert_eq!(heard, "all I have to say");

    server.write_all(b"and the answer").await.unwrap();
    let mut answer = [0; 14];
    soon(client.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"and the answer");
    assert_eq!(setup.relay.counts().open, 1);
    drop(server);
    assert_eq!(soon(client.read(&mut answer)).await.unwrap(), 0);
    until(|| setup.relay.counts().open == 0).await;
}

#[tokio::test]
async fn a_reset_arrives_as_a_reset_from_either_side() {
    let setup = Setup::new(|config| config.link.delay = Duration::from_millis(1)).await;
    for client_resets in [true, false] {
        let (client, server) = setup.connect().await;
        let (resetting, mut other) = if client_resets {
            (client, server)
        } else {
            (server, client)
        };
        resetting.set_zero_linger().unwrap();
        drop(resetting);
        expect_reset(&mut other).await;
    }
    until(|| setup.relay.counts().open == 0).await;
}

#[tokio::test]
async fn a_reset_arrives_though_nothing_is_read_or_written() {
    let setup = Setup::new(|_| {}).await;
    // After a half-close the relay no longer reads from the client.
    let (mut client, mut server) = setup.connect().await;
    client.shutdown().await.unwrap();
    assert_eq!(soon(server.read(&mut [0])).await.unwrap(), 0);
    client.set_zero_linger().unwrap();
    drop(client);
    // The close had been read; what follows it now is the reset.
    let error = soon(async {
        loop {
            match server.write_all(b"?").await {
                Ok(()) => sleep(Duration::from_millis(1)).await,
                Err(error) => break error,
            }
        }
    });
    assert!(matches!(
        error.await.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    ));

    // Behind a server that reads nothing, the relay cannot read either.
    let (client, server) = setup.connect().await;
    let content = content(64 << 20, 0);
    let _ = timeout(Duration::from_millis(50), async {
        client.write_all_ready(&content).await
    })
    .await;
    client.set_zero_linger().unwrap();
    drop(client);
    until(|| setup.relay.counts().open == 0).await;
    drop(server);
}

/// Writing through a shared reference, which can be given up halfway.
trait WriteAllReady {
    async fn write_all_ready(&self, content: &[u8]) -> Result<()>;
}

impl WriteAllReady for TcpStream {
    async fn write_all_ready(&self, mut content: &[u8]) -> Result<()> {
        while !content.is_empty() {
            self.writable().await?;
            match self.try_write(content) {
                Ok(written) => content = &content[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_receiver_that_does_not_read_holds_the_sender() {
    let setup = Setup::new(|_| {}).await;
    let (client, mut server) = setup.connect().await;
    let up = content(16 << 20, 3);
    let sent = up.clone();
    let sender = tokio::spawn(async move {
        let mut client = client;
        client.write_all(&sent).await?;
        client.shutdown().await?;
        Ok::<_, Error>(client)
    });
    // An ideal link's queue and window. The window may end in the middle of a segment.
    let held_max = 2 * (256 << 10) + 1460;
    let mut received = Vec::new();
    let mut buffer = vec![0; 100_000];
    loop {
        let DirectionCounts {
            entered_bytes,
            delivered_bytes,
        } = setup.relay.counts().up;
        // The two were read one after the other, so that the difference may only look greater.
        let now_delivered = setup.relay.counts().up.delivered_bytes;
        if now_delivered == delivered_bytes {
            assert!(
                entered_bytes - delivered_bytes <= held_max,
                "{entered_bytes} {delivered_bytes}"
            );
        }
        let count = soon(server.read(&mut buffer)).await.unwrap();
        if count == 0 {
            break;
        }
        received.extend_from_slice(&buffer[..count]);
    }
    assert!(received == up);
    drop(soon(sender).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_cut_resets_all_and_new_connections_go_on() {
    let setup = Setup::new(|_| {}).await;
    let mut pairs = vec![setup.connect().await, setup.connect().await];
    setup.relay.cut();
    for (client, server) in &mut pairs {
        expect_reset(client).await;
        expect_reset(server).await;
    }
    until(|| setup.relay.counts().open == 0).await;
    let (at_server, _) = exchange(setup.connect().await, b"again", b"")
        .await
        .unwrap();
    assert_eq!(at_server, b"again");
}

#[tokio::test]
async fn a_frozen_link_is_silent_and_a_thawed_one_complete() {
    let setup = Setup::new(|_| {}).await;
    let (mut client, mut server) = setup.connect().await;
    setup.relay.freeze();
    client.write_all(b"are you there?").await.unwrap();
    client.shutdown().await.unwrap();
    until(|| setup.relay.counts().up.entered_bytes == 14).await;
    let newcomer = TcpStream::connect(setup.relay.address()).await.unwrap();
    timeout(Duration::from_millis(100), server.read(&mut [0; 14]))
        .await
        .unwrap_err();
    let counts = setup.relay.counts();
    assert_eq!(
        (counts.up.delivered_bytes, counts.accepted, counts.open),
        (0, 1, 1)
    );

    setup.relay.thaw();
    let mut heard = String::new();
    soon(server.read_to_string(&mut heard)).await.unwrap();
    assert_eq!(heard, "are you there?");
    let (late, _) = soon(setup.server.accept()).await.unwrap();
    let (at_server, at_client) = exchange((newcomer, late), b"hello", b"welcome")
        .await
        .unwrap();
    assert_eq!(
        (&at_server[..], &at_client[..]),
        (&b"hello"[..], &b"welcome"[..])
    );
}

#[tokio::test]
async fn a_frozen_link_can_be_cut() {
    let setup = Setup::new(|_| {}).await;
    let (mut client, mut server) = setup.connect().await;
    setup.relay.freeze();
    setup.relay.cut();
    expect_reset(&mut client).await;
    expect_reset(&mut server).await;
}

#[tokio::test]
async fn refusing_keeps_the_address_and_the_connections() {
    let setup = Setup::new(|_| {}).await;
    let pair = setup.connect().await;
    for _ in 0..3 {
        setup.relay.refuse().unwrap();
        setup.relay.refuse().unwrap();
        let error = TcpStream::connect(setup.relay.address()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        setup.relay.restore().unwrap();
        drop(setup.connect().await);
    }
    setup.relay.refuse().unwrap();
    let (at_server, at_client) = exchange(pair, b"still", b"here").await.unwrap();
    assert_eq!(
        (&at_server[..], &at_client[..]),
        (&b"still"[..], &b"here"[..])
    );
}

/// A process that another thread starts has a copy of every socket until it becomes itself.
#[tokio::test]
async fn refusing_works_while_processes_are_started() {
    let setup = Setup::new(|_| {}).await;
    let address = setup.relay.address();
    let stop = Arc::new(AtomicBool::new(false));
    let starter = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::Relaxed) {
                let mut program = Command::new(env!("CARGO_BIN_EXE_refrain-relay"));
                program.arg("--version").stdout(Stdio::null());
                assert!(program.status().expect("the relay starts").success());
            }
        }
    });
    let switched = (0..2000).try_for_each(|_| {
        setup.relay.refuse()?;
        let error = std::net::TcpStream::connect(address).expect_err("nobody listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        setup.relay.restore()
    });
    stop.store(true, Ordering::Relaxed);
    starter.join().expect("the processes ran");
    switched.expect("the address stays the relay's");
}

#[tokio::test]
async fn an_unreachable_target_resets_the_client() {
    let setup = Setup::new(|_| {}).await;
    let Setup { relay, server } = setup;
    drop(server);
    let mut client = TcpStream::connect(relay.address()).await.unwrap();
    expect_reset(&mut client).await;
    until(|| relay.counts().open == 0).await;
    assert_eq!(relay.counts().unreachable, 1);
}

#[tokio::test]
async fn a_dropped_relay_resets_its_connections_and_frees_its_address() {
    let setup = Setup::new(|_| {}).await;
    let (mut client, mut server) = setup.connect().await;
    let address = setup.relay.address();
    drop(setup.relay);
    expect_reset(&mut client).await;
    expect_reset(&mut server).await;
    until(|| {
        let config = RelayConfig {
            listen: address,
            ..RelayConfig::to(address)
        };
        Relay::start(config).is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_taken_address_is_refused_at_the_start() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = taken.local_addr().unwrap();
    let config = RelayConfig {
        listen: address,
        ..RelayConfig::to(address)
    };
    assert_eq!(
        Relay::start(config).map(|_| ()).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
}
