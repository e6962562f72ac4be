//! A sender that only copies a socket into TLS: what sending plainly costs.
//!
//! A process of its own, this same program, with the gateways' TLS and so their cipher. It has one
//! thread and does nothing else: no gateway could do with less.

use std::{
    io::{self, Read},
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use refrain_gateway::{
    keys::{PeerKeys, PrivateKey, PublicKey, SharedPeerKeys},
    tls::{ClientTls, ServerTls},
    wire::LaneStream,
};
use refrain_relay::addresses::free_address;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};

use crate::processes::{Running, wait};

/// The name under which this program serves as such a sender.
pub(crate) const SUBCOMMAND: &str = "bare-tls";

/// What the gateways read at once.
const READ_BYTES: usize = 256 << 10;

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Such a sender, until dropped.
pub(super) struct BareTls {
    pub process: Running,
    /// Where it listens.
    pub address: SocketAddr,
    client: ClientTls,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

impl BareTls {
    /// Starts one that answers with what `origin` sends.
    pub(super) fn start(origin: SocketAddr) -> anyhow::Result<BareTls> {
        let folder = tempfile::tempdir()?;
        let key_file = folder.path().join("sender.key");
        let (key, own) = (PrivateKey::generate()?, PrivateKey::generate()?);
        key.write_new(&key_file)?;
        let address = free_address();
        let mut command = Command::new(std::env::current_exe()?);
        command.args([SUBCOMMAND, &address.to_string(), &origin.to_string()]);
        command.arg(&key_file).arg(own.public().to_string());
        let process = Running::start(&mut command)?;
        let listens = || Ok(std::net::TcpStream::connect(address).is_ok());
        wait(listens, "the bare sender")?;
        Ok(BareTls {
            process,
            address,
            client: ClientTls::new(&own, key.public()),
            runtime: current_thread()?,
            _folder: folder,
        })
    }

    /// Sends `request` by way of `address`; what comes back can be read.
    pub(super) fn ask(&self, address: SocketAddr, request: &[u8]) -> anyhow::Result<impl Read> {
        let asking = async {
            let tcp = TcpStream::connect(address).await?;
            let (mut stream, _) = self
                .client
                .connect(tcp, &address.to_string(), PATIENCE)
                .await?;
            stream.write_all(request).await?;
            stream.flush().await?;
            anyhow::Ok(stream)
        };
        Ok(Answer {
            stream: self.runtime.block_on(asking)?,
            runtime: &self.runtime,
        })
    }
}

struct Answer<'a> {
    stream: LaneStream,
    runtime: &'a Runtime,
}

impl Read for Answer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.runtime.block_on(self.stream.read(buffer))
    }
}

/// The process: takes connections on `listen` from the holder of `peer`, and answers each with
/// what `origin` does, until it is killed.
pub(crate) fn serve(
    listen: SocketAddr,
    origin: SocketAddr,
    key: &Path,
    peer: &str,
) -> anyhow::Result<String> {
    let peers: PeerKeys = [peer.parse::<PublicKey>()?].into_iter().collect();
    let key = PrivateKey::load(key)?;
    let tls = ServerTls::new(&key, Arc::new(SharedPeerKeys::new(peers)));
    current_thread()?.block_on(async {
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| listen.to_string())?;
        loop {
            let (tcp, client) = listener.accept().await?;
            tcp.set_nodelay(true)?;
            // Who only looks whether it listens makes no handshake.
            if let Ok((stream, _)) = tls.accept(tcp, client, PATIENCE).await {
                // A client that leaves early fails by itself.
                let _ = pass(stream, origin).await;
            }
        }
    })
}

async fn pass(stream: LaneStream, origin: SocketAddr) -> io::Result<()> {
    let mut origin = TcpStream::connect(origin).await?;
    let (mut requests, mut answers) = tokio::io::split(stream);
    let (mut from, mut to) = origin.split();
    let asking = async {
        tokio::io::copy(&mut requests, &mut to).await?;
        to.shutdown().await
    };
    let answering = async {
        let mut piece = vec![0; READ_BYTES];
        loop {
            match from.read(&mut piece).await? {
                0 => return answers.shutdown().await,
                read => answers.write_all(&piece[..read]).await?,
            }
        }
    };
    tokio::try_join!(asking, answering)?;
    Ok(())
}

fn current_thread() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}
