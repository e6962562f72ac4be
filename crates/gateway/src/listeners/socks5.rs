//! Connections of SOCKS5 clients.

use std::io;

use tokio::io::AsyncWriteExt;

use super::Client;
use crate::socks5;

impl Client {
    pub(super) async fn socks5(mut self) -> io::Result<()> {
        let mut received = Vec::new();
        let greeting = self.request(
            &mut received,
            socks5::MESSAGE_BYTES_MAX,
            socks5::parse_greeting,
        );
        let request = match greeting.await? {
            Ok(()) => {
                self.tcp.write_all(&socks5::METHOD_ACCEPTED).await?;
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
                tracing::info!(%error, "a SOCKS5 client was refused");
                return match error.reply() {
                    Some(reply) => self.tcp.write_all(&reply).await,
                    None => Ok(()),
                };
            }
        };
        match self.open_and_wait(&target, &[]).await {
            Ok(opened) => {
                let bound = self.tcp.local_addr()?;
                self.tcp.write_all(&socks5::reply_granted(bound)).await?;
                self.run(opened.flow, received).await;
                Ok(())
            }
            Err(refusal) => {
                tracing::info!(listener = %self.listener, %target, %refusal, "refused a SOCKS5 connection");
                self.tcp.write_all(&socks5::reply_refused(refusal)).await
            }
        }
    }
}
