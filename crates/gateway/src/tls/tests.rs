use super::*;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsStream;

const WITHIN: Duration = Duration::from_secs(20);

const RECORD_HEADER_BYTES: usize = 5;

fn key() -> PrivateKey {
    PrivateKey::generate().unwrap()
}

fn server(key: &PrivateKey, peers: &[&PrivateKey]) -> ServerTls {
    let peers = peers.iter().map(|peer| peer.public()).collect();
    ServerTls::new(key, Arc::new(SharedPeerKeys::new(peers)))
}

/// The two ends of a connection, the accepting one first, each with the other's address.
async fn tcp_pair() -> ((TcpStream, SocketAddr), (TcpStream, SocketAddr)) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = listener.local_addr().unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(far), listener.accept());
    (accepted.unwrap(), (client.unwrap(), far))
}

type Outcome = Result<(LaneStream, PublicKey), TlsError>;

async fn handshake(server: &ServerTls, client: &ClientTls) -> (Outcome, Outcome) {
    let ((far_tcp, near), (near_tcp, far)) = tcp_pair().await;
    let accept = server.accept(far_tcp, near, WITHIN);
    // What a near end does: connect, then read.
    let connect = async {
        let (mut stream, key) = client.connect(near_tcp, &far.to_string(), WITHIN).await?;
        let mut byte = [0; 1];
        match timeout(Duration::from_millis(50), stream.read_exact(&mut byte)).await {
            Ok(Err(error)) => Err(client.explain(error, &far.to_string())),
            Ok(Ok(_)) | Err(_) => Ok((stream, key)),
        }
    };
    tokio::join!(accept, connect)
}

/// What a server makes of these first bytes, and what it answers.
async fn answer_to(bytes: &[u8]) -> (TlsError, Vec<u8>) {
    let ((far_tcp, near), (mut tcp, _)) = tcp_pair().await;
    let server = server(&key(), &[]);
    let talk = async {
        tcp.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).await.unwrap();
        answer
    };
    let (accepted, answer) = tokio::join!(server.accept(far_tcp, near, WITHIN), talk);
    (accepted.unwrap_err(), answer)
}

#[tokio::test]
async fn the_right_keys_meet_and_each_learns_the_others() {
    let (far_key, near_key, other_key) = (key(), key(), key());
    let server = server(&far_key, &[&other_key, &near_key]);
    let client = ClientTls::new(&near_key, far_key.public());
    let (far, near) = handshake(&server, &client).await;
    let ((mut far, far_peer), (mut near, near_peer)) = (far.unwrap(), near.unwrap());
    assert_eq!(far_peer, near_key.public());
    assert_eq!(near_peer, far_key.public());
    near.write_all(b"ping").await.unwrap();
    near.flush().await.unwrap();
    let mut bytes = [0; 4];
    far.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"ping");
}

#[tokio::test]
async fn a_near_end_that_is_not_a_peer_is_refused_and_both_say_so() {
    let (far_key, near_key, other_key) = (key(), key(), key());
    let server = server(&far_key, &[&other_key]);
    let client = ClientTls::new(&near_key, far_key.public());
    let (far, near) = handshake(&server, &client).await;
    let far = far.unwrap_err();
    assert!(far.to_string().contains(&near_key.public().to_string()));
    assert!(matches!(far, TlsError::WrongKey { .. }), "{far:?}");
    let near = near_refusal(near, &client).await;
    assert!(matches!(near, TlsError::KeyRefused { own, .. } if own == near_key.public()));
}

/// The refusal, which may arrive after the short wait of [`handshake`].
async fn near_refusal(near: Outcome, client: &ClientTls) -> TlsError {
    match near {
        Err(error) => error,
        Ok((mut stream, _)) => {
            let peer = stream.get_ref().0.inner().peer_addr().unwrap();
            client.explain(stream.read_u8().await.unwrap_err(), &peer.to_string())
        }
    }
}

#[tokio::test]
async fn a_far_end_that_is_not_the_peer_is_refused_and_both_say_so() {
    let (far_key, near_key, other_key) = (key(), key(), key());
    let server = server(&far_key, &[&near_key]);
    let client = ClientTls::new(&near_key, other_key.public());
    let (far, near) = handshake(&server, &client).await;
    let (far, near) = (far.unwrap_err(), near.unwrap_err());
    assert!(matches!(near, TlsError::WrongKey { presented, .. } if presented == far_key.public()));
    assert!(matches!(far, TlsError::KeyRefused { own, .. } if own == far_key.public()));
}

#[tokio::test]
async fn an_end_with_the_others_key_is_told_so() {
    let (key, other_key) = (key(), key());
    let server = server(&key, &[&other_key]);
    let client = ClientTls::new(&key, other_key.public());
    let near = handshake(&server, &client).await.1.unwrap_err();
    assert!(matches!(near, TlsError::OwnKey { .. }), "{near:?}");
    let client = ClientTls::new(&key, key.public());
    let far = handshake(&server, &client).await.0.unwrap_err();
    assert!(matches!(far, TlsError::OwnKey { .. }), "{far:?}");
}

#[tokio::test]
async fn replaced_keys_count_from_the_next_handshake_on() {
    let (far_key, near_key) = (key(), key());
    let peers = Arc::new(SharedPeerKeys::default());
    let server = ServerTls::new(&far_key, Arc::clone(&peers));
    let client = ClientTls::new(&near_key, far_key.public());
    assert!(handshake(&server, &client).await.0.is_err());
    peers.replace([near_key.public()].into_iter().collect());
    assert!(handshake(&server, &client).await.0.is_ok());
    peers.replace(PeerKeys::default());
    assert!(handshake(&server, &client).await.0.is_err());
}

#[tokio::test]
async fn garbage_is_not_tls() {
    let (error, _) = answer_to(b"GET / HTTP/1.1\r\nHost: far\r\n\r\n").await;
    assert!(matches!(error, TlsError::NotTls { .. }), "{error:?}");
    assert!(error.to_string().contains("an HTTP client?"), "{error}");
    let (error, _) = answer_to(&[0xff; 64]).await;
    assert!(matches!(error, TlsError::NotTls { .. }), "{error:?}");
    let ((mut far_tcp, _), (near_tcp, far)) = tcp_pair().await;
    let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    far_tcp.write_all(answer).await.unwrap();
    let client = ClientTls::new(&key(), key().public());
    let error = client
        .connect(near_tcp, &far.to_string(), WITHIN)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("an HTTP server?"), "{error}");
}

#[tokio::test]
async fn a_client_of_tls_1_2_is_refused() {
    const PROTOCOL_VERSION_ALERT: [u8; 2] = [2, 70];
    let (error, answer) = answer_to(&client_hello_of_tls_1_2()).await;
    assert!(matches!(error, TlsError::Incompatible { .. }), "{error:?}");
    assert!(answer.ends_with(&PROTOCOL_VERSION_ALERT), "{answer:?}");
}

/// A hello without `supported_versions`, by hand: the TLS library here has no TLS 1.2.
fn client_hello_of_tls_1_2() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]); // random
    body.push(0); // session id
    body.extend([0, 2, 0xc0, 0x2b]); // ECDHE-ECDSA with AES-128-GCM
    body.extend([1, 0]); // compression: none
    let extensions = [
        0, 10, 0, 4, 0, 2, 0, 29, // groups: X25519
        0, 13, 0, 4, 0, 2, 8, 7, // signatures: Ed25519
    ];
    body.extend([0, extensions.len() as u8]);
    body.extend(extensions);
    let mut record = vec![22, 3, 1, 0, body.len() as u8 + 4];
    record.extend([1, 0, 0, body.len() as u8]);
    record.extend(body);
    record
}

#[tokio::test]
async fn a_client_that_names_no_protocol_is_refused() {
    let (far_key, near_key) = (key(), key());
    let server = server(&far_key, &[&near_key]);
    let mut client = ClientTls::new(&near_key, far_key.public());
    let mut config = ClientConfig::clone(client.connector.config());
    config.alpn_protocols.clear();
    client.connector = TlsConnector::from(Arc::new(config));
    let (far, _) = handshake(&server, &client).await;
    assert!(matches!(far, Err(TlsError::Incompatible { .. })), "{far:?}");
}

#[tokio::test]
async fn a_silent_peer_times_out() {
    let ((far_tcp, near), (_open, _)) = tcp_pair().await;
    let server = server(&key(), &[]);
    let accepted = server.accept(far_tcp, near, Duration::from_millis(1)).await;
    assert!(matches!(accepted, Err(TlsError::TimedOut { .. })));
}

#[tokio::test]
async fn a_peer_that_hangs_up_is_said_to_have_closed() {
    let ((far_tcp, near), (tcp, _)) = tcp_pair().await;
    drop(tcp);
    let accepted = server(&key(), &[]).accept(far_tcp, near, WITHIN).await;
    assert!(
        matches!(accepted, Err(TlsError::Closed { .. })),
        "{accepted:?}"
    );
}

#[tokio::test]
async fn neither_early_data_nor_a_ticket_is_ever_offered() {
    let (far_key, near_key) = (key(), key());
    let server = server(&far_key, &[&near_key]);
    assert_eq!(server.acceptor.config().max_early_data_size, 0);
    let client = ClientTls::new(&near_key, far_key.public());
    for _ in 0..2 {
        let (far, near) = handshake(&server, &client).await;
        let (mut far, mut near) = (far.unwrap().0, near.unwrap().0);
        // Tickets come before what the far end says next.
        far.write_all(b"x").await.unwrap();
        far.flush().await.unwrap();
        near.read_exact(&mut [0]).await.unwrap();
        let TlsStream::Client(near) = near else {
            panic!("the near end is the client");
        };
        assert_eq!(near.get_ref().1.tls13_tickets_received(), 0);
    }

    // A client that could have resumed by now offers neither.
    let ((mut far_tcp, _), (near_tcp, far)) = tcp_pair().await;
    let hello = async {
        let mut hello = vec![0; RECORD_HEADER_BYTES];
        far_tcp.read_exact(&mut hello).await.unwrap();
        let body_bytes = u16::from_be_bytes([hello[3], hello[4]]);
        hello.resize(RECORD_HEADER_BYTES + usize::from(body_bytes), 0);
        far_tcp
            .read_exact(&mut hello[RECORD_HEADER_BYTES..])
            .await
            .unwrap();
        drop(far_tcp);
        hello
    };
    let far = far.to_string();
    let (_, hello) = tokio::join!(client.connect(near_tcp, &far, WITHIN), hello);
    let extensions = extension_types(&hello);
    const SUPPORTED_VERSIONS: u16 = 43;
    const PRE_SHARED_KEY: u16 = 41;
    const EARLY_DATA: u16 = 42;
    assert!(extensions.contains(&SUPPORTED_VERSIONS));
    assert!(!extensions.contains(&PRE_SHARED_KEY));
    assert!(!extensions.contains(&EARLY_DATA));
}

/// The extension types of a ClientHello in one record.
fn extension_types(record: &[u8]) -> Vec<u16> {
    const HANDSHAKE_HEADER_BYTES: usize = 4;
    let be16 = |at: usize| u16::from_be_bytes([record[at], record[at + 1]]);
    let mut at = RECORD_HEADER_BYTES + HANDSHAKE_HEADER_BYTES + 2 + 32;
    at += 1 + usize::from(record[at]); // session id
    at += 2 + usize::from(be16(at)); // cipher suites
    at += 1 + usize::from(record[at]); // compression methods
    at += 2;
    let mut types = Vec::new();
    while at < record.len() {
        types.push(be16(at));
        at += 4 + usize::from(be16(at + 2));
    }
    types
}
