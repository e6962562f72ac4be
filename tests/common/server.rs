//! A server of the test's own: a thread a connection.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

/// Starts a server on any port of loopback, for as long as the test's process runs.
pub(crate) fn serve<T>(
    answer: impl Fn(TcpStream) -> io::Result<T> + Clone + Send + 'static,
) -> SocketAddr {
    serve_on("127.0.0.1:0".parse().expect("an address"), answer)
}

/// Starts a server there.
pub(crate) fn serve_on<T>(
    address: SocketAddr,
    answer: impl Fn(TcpStream) -> io::Result<T> + Clone + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(address).expect("an address to listen on");
    let address = listener.local_addr().expect("a bound listener's address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let answer = answer.clone();
            // Clients that leave early are part of the tests.
            thread::spawn(move || answer(client).map(drop));
        }
    });
    address
}
