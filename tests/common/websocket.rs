//! A WebSocket server that sends back what it hears, and a client that checks it.

use std::net::{SocketAddr, TcpStream};

use tungstenite::{
    Message, WebSocket,
    handshake::{client::generate_key, derive_accept_key},
    protocol::Role,
};

use super::{
    content::{letters, noise},
    http::HandMadeClient,
    server::serve_on,
};

/// Starts the server on any port of loopback, for as long as the test's process runs.
pub(crate) fn start_echo() -> SocketAddr {
    start_echo_on("127.0.0.1:0".parse().expect("an address"))
}

/// Starts the server there.
pub(crate) fn start_echo_on(address: SocketAddr) -> SocketAddr {
    serve_on(address, |client| {
        // A client that leaves without a close is none of its business.
        let _ = tungstenite::accept(client).map(echo);
        Ok(())
    })
}

/// Shakes hands over `stream` with the server that it leads to, and talks.
pub(crate) fn talk(stream: TcpStream, server: SocketAddr) {
    let greeted = tungstenite::client(format!("ws://{server}/echo"), stream);
    converse(greeted.expect("a handshake").0);
}

/// The same through an HTTP proxy that is asked for the server's URL, without a tunnel.
pub(crate) fn talk_through(proxy: SocketAddr, server: SocketAddr) {
    let key = generate_key();
    let mut client = HandMadeClient::say(
        proxy,
        &format!(
            "GET http://{server}/echo HTTP/1.1\r\nHost: {server}\r\n\
             Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
             Proxy-Connection: keep-alive\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        ),
    );
    let head = client.head();
    let accept = derive_accept_key(key.as_bytes());
    for part in [
        "HTTP/1.1 101 ",
        "\r\nConnection: Upgrade\r\n",
        "\r\nUpgrade: websocket\r\n",
        &accept,
    ] {
        assert!(head.contains(part), "{part:?} is not in {head}");
    }
    let stream = client.into_stream();
    converse(WebSocket::from_raw_socket(stream, Role::Client, None));
}

/// Has texts and bytes of several sizes sent back; both close as the protocol says.
fn converse(mut socket: WebSocket<TcpStream>) {
    for bytes in [0, 1, 125, 126, 70_000, 1 << 20] {
        let text = String::from_utf8(letters(bytes as u64, bytes)).expect("letters");
        for message in [
            Message::text(text),
            Message::binary(noise(bytes as u64, bytes)),
        ] {
            socket.send(message.clone()).expect("a connection");
            let echoed = socket.read().expect("an echo");
            assert!(echoed == message, "{bytes} bytes came back changed");
        }
    }
    socket.close(None).expect("a connection");
    let closed = loop {
        if let Err(error) = socket.read() {
            break error;
        }
    };
    assert!(
        matches!(closed, tungstenite::Error::ConnectionClosed),
        "{closed}"
    );
}

fn echo(mut socket: WebSocket<TcpStream>) -> Result<(), tungstenite::Error> {
    loop {
        let message = socket.read()?;
        if message.is_text() || message.is_binary() {
            socket.send(message)?;
        }
    }
}
