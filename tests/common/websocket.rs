//! A WebSocket server that sends back what it hears, and a client that checks it.

use std::net::{SocketAddr, TcpStream};

use tungstenite::{Message, WebSocket};

use super::{
    content::{letters, noise},
    server::serve,
};

/// Starts the server on any port of loopback, for as long as the test's process runs.
pub fn start_echo() -> SocketAddr {
    serve(|client| {
        // A client that leaves without a close is none of its business.
        let _ = tungstenite::accept(client).map(echo);
        Ok(())
    })
}

/// Shakes hands over `stream` with the server that it leads to, and has texts and bytes of
/// several sizes sent back; both close as the protocol says.
pub fn talk(stream: TcpStream, server: SocketAddr) {
    let greeted = tungstenite::client(format!("ws://{server}/echo"), stream);
    let (mut socket, _) = greeted.expect("a handshake");
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
