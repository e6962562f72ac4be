//! Connections of SOCKS clients: of version 5, and of 4 and 4a, whose first byte is another.

use std::io;

use tokio::time::timeout;

use super::{Client, REQUEST_TIMEOUT, opened::Unopened};
use crate::{
    refusal::Refusal,
    socks4::{self, Socks4Error},
    socks5::{self, Method, Socks5Error},
    target::Target,
};

/// Why a client has no target.
enum Stop<E> {
    /// Its connection ended or failed.
    Io(io::Error),
    /// By the protocol.
    Refused(E),
}

impl<E> From<io::Error> for Stop<E> {
    fn from(error: io::Error) -> Self {
        Stop::Io(error)
    }
}

impl Client {
    pub(super) async fn socks(mut self) -> io::Result<()> {
        let mut received = Vec::new();
        match self.socks5_target(&mut received).await {
            Ok(target) => {
                let granted = socks5::reply_granted(self.connection.tcp()?.local_addr()?);
                self.connect_to("SOCKS5", &target, received, &granted, socks5::reply_refused)
                    .await
            }
            Err(Stop::Refused(Socks5Error::Version(socks4::VERSION))) => {
                self.socks4(received).await
            }
            Err(Stop::Refused(error)) => {
                // A wrong login is logged already, as often as is good for the log.
                if error != Socks5Error::Login {
                    let reason = format!("refused a SOCKS5 client: {error}");
                    self.listener.refuse(&error, reason);
                }
                let reply = error.reply().unwrap_or_default();
                match error {
                    // What it sent has no reader: a reset would overtake the answer.
                    Socks5Error::Version(_) => self.answer(&reply).await,
                    _ => self.connection.write_all(&reply).await,
                }
            }
            Err(Stop::Io(error)) => Err(error),
        }
    }

    /// Where the client wants to go, once it has signed in.
    async fn socks5_target(&mut self, received: &mut Vec<u8>) -> Result<Target, Stop<Socks5Error>> {
        let method = match self.is_asked() {
            true => Method::Password,
            false => Method::NoAuthentication,
        };
        let parse_greeting = |received: &[u8]| socks5::parse_greeting(received, method);
        self.message(received, socks5::MESSAGE_BYTES_MAX, parse_greeting)
            .await?;
        self.connection.write_all(&method.accepted()).await?;
        if method == Method::Password {
            let login = self.message(received, socks5::LOGIN_BYTES_MAX, socks5::parse_login);
            let login = login.await?;
            if self.sign_in(login).await.is_err() {
                return Err(Stop::Refused(Socks5Error::Login));
            }
            self.connection.write_all(&socks5::LOGIN_ACCEPTED).await?;
        }
        self.message(received, socks5::MESSAGE_BYTES_MAX, socks5::parse_request)
            .await
    }

    async fn socks4(mut self, mut received: Vec<u8>) -> io::Result<()> {
        let [granted, refused] = [true, false].map(socks4::reply);
        let request = match self.is_asked() {
            true => Err(Stop::Refused(Socks4Error::NoPassword)),
            false => {
                let bytes_max = socks4::REQUEST_BYTES_MAX;
                self.message(&mut received, bytes_max, socks4::parse_request)
                    .await
            }
        };
        match request {
            Ok(target) => {
                self.connect_to("SOCKS4", &target, received, &granted, |_| refused.to_vec())
                    .await
            }
            Err(Stop::Refused(error)) => {
                let reason = format!("refused a SOCKS4 client: {error}");
                self.listener.refuse(&error, reason);
                self.connection.write_all(&refused).await
            }
            Err(Stop::Io(error)) => Err(error),
        }
    }

    /// Reads until `parse` has a whole message; `received` keeps what follows it.
    async fn message<T, E>(
        &mut self,
        received: &mut Vec<u8>,
        bytes_max: usize,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<T, Stop<E>> {
        let reading = async {
            loop {
                if let Some((message, bytes)) = parse(received).map_err(Stop::Refused)? {
                    received.drain(..bytes);
                    return Ok(message);
                }
                if received.len() > bytes_max {
                    return Err(Stop::Io(io::ErrorKind::InvalidData.into()));
                }
                if self.connection.read_buf(received).await? == 0 {
                    return Err(Stop::Io(io::ErrorKind::UnexpectedEof.into()));
                }
            }
        };
        let read = timeout(REQUEST_TIMEOUT, reading).await;
        read.unwrap_or_else(|_| Err(Stop::Io(io::ErrorKind::TimedOut.into())))
    }

    /// Opens a flow, grants it and passes bytes, or answers with why not.
    async fn connect_to(
        self,
        protocol: &str,
        target: &Target,
        received: Vec<u8>,
        granted: &[u8],
        refused: impl FnOnce(Refusal) -> Vec<u8>,
    ) -> io::Result<()> {
        let Err(unopened) = self.open_listed(target, granted, received).await? else {
            return Ok(());
        };
        let Unopened {
            client,
            early,
            is_granted,
        } = unopened;
        match client.open_and_wait(target.clone().into(), |_| 0).await {
            Ok((flow, _)) => {
                if !is_granted {
                    client.connection.write_all(granted).await?;
                }
                client.run(flow, early).await;
                Ok(())
            }
            Err(refusal) => {
                let reason = format!("refused a {protocol} connection to {target}: {refusal}");
                client.listener.refuse(&refusal, reason);
                match is_granted {
                    true => client.reset(),
                    false => client.connection.write_all(&refused(refusal)).await,
                }
            }
        }
    }
}
