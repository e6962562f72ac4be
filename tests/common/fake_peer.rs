//! A peer that makes a good TLS handshake and then says what no gateway would.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use refrain_gateway::{
    gateway::connect,
    keys::{PeerKeys, PrivateKey, PublicKey, SharedPeerKeys},
    tls::{ClientTls, ServerTls},
    wire::LaneStream,
};
use refrain_proto::hello::Hello;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use super::PATIENCE;

const WITHIN: Duration = Duration::from_secs(10);

/// What a far end's hello has at least; a lane that is refused hears less.
const ANSWER_BYTES_MIN: usize = 13;

/// A lane under the test's control.
pub(crate) struct FakeLane {
    stream: LaneStream,
}

impl FakeLane {
    /// Connects as the near end that has the private key in `key`.
    pub(crate) async fn connect(far: SocketAddr, key: &Path, far_key: &str) -> FakeLane {
        let connected = FakeLane::try_connect(far, key, far_key).await;
        connected.expect("the far end listens, and shakes hands")
    }

    /// Connects to a far end that may have had enough.
    pub(crate) async fn try_connect(
        far: SocketAddr,
        key: &Path,
        far_key: &str,
    ) -> Result<FakeLane, String> {
        let key = PrivateKey::load(key).expect("a key");
        let tls = ClientTls::new(&key, public(far_key));
        let connected = connect(&far.into(), None, &tls, WITHIN, || {}).await;
        let (stream, _) = connected.map_err(|error| error.to_string())?;
        Ok(FakeLane { stream })
    }

    /// Accepts one lane as the far end that has the private key in `key`.
    pub(crate) async fn accept(listener: &TcpListener, key: &Path, near_key: &str) -> FakeLane {
        let (tcp, address) = listener.accept().await.expect("a connection");
        let key = PrivateKey::load(key).expect("a key");
        let peers: PeerKeys = [public(near_key)].into_iter().collect();
        let tls = ServerTls::new(&key, Arc::new(SharedPeerKeys::new(peers)));
        let accepted = tls.accept(tcp, address, WITHIN).await;
        FakeLane {
            stream: accepted.expect("a good handshake").0,
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).await.expect("a connection");
    }

    /// Sends to a peer that may have had enough.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// The next bytes of the peer, at least `bytes_min`.
    pub(crate) async fn receive(&mut self, bytes_min: usize) -> Vec<u8> {
        let mut received = Vec::new();
        while received.len() < bytes_min {
            let read = timeout(PATIENCE, self.stream.read_buf(&mut received)).await;
            let read = read.expect("the peer says something").expect("no failure");
            assert!(read > 0, "the peer closed after {received:?}");
        }
        received
    }

    /// What comes next; an error once nothing can come any more.
    pub(crate) async fn try_receive(&mut self) -> io::Result<Vec<u8>> {
        let mut received = Vec::new();
        match self.stream.read_buf(&mut received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(received),
        }
    }

    /// Exchanges hellos as a near end does, so that frames may follow.
    pub(crate) async fn greet(&mut self) {
        let greeted = self.greet_with(Hello {
            send_cache_bytes: 1 << 20,
            receive_cache_bytes: 1 << 20,
            ..Hello::of_lane(77, None, 0)
        });
        greeted.await.expect("an answer");
    }

    /// The same with another hello, which the far end may refuse.
    pub(crate) async fn greet_with(&mut self, hello: Hello) -> io::Result<()> {
        let mut bytes = Vec::new();
        hello.write(&mut bytes);
        self.try_send(&bytes).await?;
        self.stream.read_exact(&mut [0; ANSWER_BYTES_MIN]).await?;
        Ok(())
    }

    /// All that the peer still says until it closes, by an end or by a failure.
    pub(crate) async fn until_closed(mut self) -> Vec<u8> {
        let mut received = Vec::new();
        let reading = self.stream.read_to_end(&mut received);
        // A reset is a close, too.
        let _ = timeout(PATIENCE, reading).await.expect("the peer closes");
        received
    }

    /// Closes as a peer does whose process was killed.
    pub(crate) fn drop_at_once(self) {}
}

/// A hello of wire versions `oldest` to `newest`: only its first 12 bytes mean anything here.
pub(crate) fn hello_of_versions(oldest: u8, newest: u8) -> Vec<u8> {
    let mut bytes = b"refrain\n".to_vec();
    bytes.extend([oldest, newest, 0, 4]);
    bytes.extend(b"what");
    bytes
}

fn public(key: &str) -> PublicKey {
    key.parse().expect("a public key")
}
