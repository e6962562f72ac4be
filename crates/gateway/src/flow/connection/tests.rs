use std::sync::Arc;

use proptest::prelude::*;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    runtime::Runtime,
};

use super::*;

/// Both ends of a connection inside TLS, of which one is ours, and the other tokio's.
async fn pair() -> (Connection, tokio_rustls::server::TlsStream<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (client, server) = (client.unwrap(), server.unwrap().0);
    // Little room: writes take a part of what they are given.
    SockRef::from(&client).set_send_buffer_size(4096).unwrap();

    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(certificate(include_str!("../../config/tests/ca.pem")))
        .unwrap();
    let key = include_str!("../../config/tests/server.key");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let chain = vec![certificate(include_str!("../../config/tests/server.pem"))];
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let server_config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let client_config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client_config));
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server_config));
    let name = ServerName::try_from("localhost").unwrap();
    let (client, server) = tokio::join!(connector.connect(name, client), acceptor.accept(server));
    let (tcp, session): (TcpStream, ClientConnection) = client.unwrap().into_inner();
    let server = server.unwrap();
    let _: &ServerConnection = server.get_ref().1;
    (InsideTls::new(tcp, session).into(), server)
}

fn bytes(seed: u8, count: usize) -> Vec<u8> {
    (0..count)
        .map(|at| (at as u8).wrapping_mul(31) ^ seed ^ (at >> 8) as u8)
        .collect()
}

async fn read_all(connection: &Connection) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut piece = Vec::with_capacity(1000);
    loop {
        piece.clear();
        if connection.read_buf(&mut piece).await? == 0 {
            return Ok(all);
        }
        all.extend(&piece);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn both_directions_carry_their_bytes_at_the_same_time(
        up in prop::collection::vec(0usize..200_000, 0..6),
        down in prop::collection::vec(0usize..200_000, 0..6),
    ) {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let (inside, server) = pair().await;
            let (mut server_reads, mut server_writes) = tokio::io::split(server);
            let pieces = |seed: u8, counts: &[usize]| -> Vec<Vec<u8>> {
                counts.iter().map(|&count| bytes(seed, count)).collect()
            };
            let (up, down) = (pieces(1, &up), pieces(2, &down));
            let writing = async {
                for piece in &up {
                    inside.write_all(piece).await?;
                }
                inside.finish().await
            };
            let serving = async {
                for piece in &down {
                    server_writes.write_all(piece).await?;
                }
                server_writes.shutdown().await
            };
            let mut received = Vec::new();
            let reading = server_reads.read_to_end(&mut received);
            let (written, served, read, came) = tokio::join!(writing, serving, reading, read_all(&inside));
            written.unwrap();
            served.unwrap();
            read.unwrap();
            assert!(received == up.concat());
            assert!(came.unwrap() == down.concat());
        });
    }
}

#[tokio::test]
async fn more_is_noticed_and_left() {
    let (inside, mut server) = pair().await;
    server.write_all(b"hello").await.unwrap();
    assert!(inside.has_more().await.unwrap());
    assert!(inside.has_more().await.unwrap());
    let mut read = Vec::with_capacity(3);
    inside.read_buf(&mut read).await.unwrap();
    assert_eq!(read, b"hel");
    assert!(inside.has_more().await.unwrap());
    inside.readable().await.unwrap();
    let mut buffer = [0; 10];
    assert_eq!(inside.try_read(&mut buffer).unwrap(), 2);
    let nothing = inside.try_read(&mut buffer).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    server.shutdown().await.unwrap();
    assert!(!inside.has_more().await.unwrap());
    assert_eq!(inside.try_read(&mut buffer).unwrap(), 0);
}

#[tokio::test]
async fn an_end_that_was_not_said_is_an_error() {
    let (inside, mut server) = pair().await;
    server.write_all(b"hello").await.unwrap();
    server.flush().await.unwrap();
    let (mut tcp, _) = server.into_inner();
    tcp.shutdown().await.unwrap();
    let mut read = Vec::with_capacity(10);
    inside.read_buf(&mut read).await.unwrap();
    assert_eq!(read, b"hello");
    let end = inside.read_buf(&mut read).await.unwrap_err();
    assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    let end = inside.has_more().await.unwrap_err();
    assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn damaged_bytes_are_an_error() {
    let (inside, server) = pair().await;
    let (mut tcp, _) = server.into_inner();
    tcp.write_all(&[23, 3, 3, 0, 20]).await.unwrap();
    tcp.write_all(&[7; 20]).await.unwrap();
    let mut read = Vec::with_capacity(10);
    assert!(inside.read_buf(&mut read).await.is_err());
    assert!(read.is_empty());
}
