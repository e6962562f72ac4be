//! Connections of SOCKS clients: of version 5, and of 4 and 4a, whose first byte is another.

use std::io;

use tokio::io::AsyncWriteExt;

use super::{BoxFuture, Client, Serve};
use crate::{
    options::{OptionSpec, SOCKS5},
    refusal::Refusal,
    socks4::{self, Socks4Error},
    socks5::{self, Method, Socks5Error},
    target::Target,
};

pub(super) struct Socks;

impl Serve for Socks {
    fn option(&self) -> &'static OptionSpec {
        &SOCKS5
    }

    fn serve(&self, client: Client) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(client.socks())
    }
}

impl Client {
    /// The part between the greeting and the request, if the method has one.
    async fn logs_in(
        &mut self,
        method: Method,
        received: &mut Vec<u8>,
    ) -> io::Result<Result<(), Socks5Error>> {
        if method == Method::NoAuthentication {
            return Ok(Ok(()));
        }
        let login = self.request(received, socks5::LOGIN_BYTES_MAX, socks5::parse_login);
        let login = match login.await? {
            Ok(login) => login,
            Err(error) => return Ok(Err(error)),
        };
        if !self.signs_in(login).await {
            return Ok(Err(Socks5Error::Login));
        }
        self.tcp.write_all(&socks5::LOGIN_ACCEPTED).await?;
        Ok(Ok(()))
    }

    async fn socks(mut self) -> io::Result<()> {
        let mut received = Vec::new();
        let method = match self.is_asked() {
            true => Method::Password,
            false => Method::NoAuthentication,
        };
        let greeting = self.request(&mut received, socks5::MESSAGE_BYTES_MAX, |received| {
            socks5::parse_greeting(received, method)
        });
        let signed_in = match greeting.await? {
            Ok(()) => {
                self.tcp.write_all(&method.accepted()).await?;
                self.logs_in(method, &mut received).await?
            }
            Err(Socks5Error::Version(socks4::VERSION)) => return self.socks4(received).await,
            Err(error) => Err(error),
        };
        let request = match signed_in {
            Ok(()) => {
                self.request(
                    &mut received,
                    socks5::MESSAGE_BYTES_MAX,
                    socks5::parse_request,
                )
                .await?
            }
            Err(error) => Err(error),
        };
        let target = match request {
            Ok(target) => target,
            Err(error) => {
                // A wrong login is logged already, as often as is good for the log.
                if error != Socks5Error::Login {
                    self.listener
                        .refuse(format!("refused a SOCKS5 client: {error}"));
                }
                return match error.reply() {
                    Some(reply) => self.tcp.write_all(&reply).await,
                    None => Ok(()),
                };
            }
        };
        let granted = socks5::reply_granted(self.tcp.local_addr()?);
        self.connect_to("SOCKS5", &target, received, &granted, socks5::reply_refused)
            .await
    }

    /// Opens a flow, grants it and passes bytes, or answers with why not.
    async fn connect_to(
        mut self,
        protocol: &str,
        target: &Target,
        received: Vec<u8>,
        granted: &[u8],
        refused: impl FnOnce(Refusal) -> Vec<u8>,
    ) -> io::Result<()> {
        match self.open_and_wait(target, &[]).await {
            Ok((flow, _)) => {
                self.tcp.write_all(granted).await?;
                self.run(flow, received).await;
                Ok(())
            }
            Err(refusal) => {
                self.listener.refuse(format!(
                    "refused a {protocol} connection to {target}: {refusal}"
                ));
                self.tcp.write_all(&refused(refusal)).await
            }
        }
    }

    async fn socks4(mut self, mut received: Vec<u8>) -> io::Result<()> {
        let request = match self.is_asked() {
            true => Err(Socks4Error::NoPassword),
            false => {
                let bytes_max = socks4::REQUEST_BYTES_MAX;
                self.request(&mut received, bytes_max, socks4::parse_request)
                    .await?
            }
        };
        let [granted, refused] = [true, false].map(socks4::reply);
        match request {
            Ok(target) => {
                self.connect_to("SOCKS4", &target, received, &granted, |_| refused.to_vec())
                    .await
            }
            Err(error) => {
                let reason = format!("refused a SOCKS4 client: {error}");
                self.listener.refuse(reason);
                self.tcp.write_all(&refused).await
            }
        }
    }
}
