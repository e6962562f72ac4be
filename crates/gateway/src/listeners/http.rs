//! Connections of the HTTP proxy's clients.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::Client;
use crate::access;
use crate::http_proxy::{self, Exchange, ProxyRequest};

impl Client {
    pub(super) async fn http_proxy(mut self) -> io::Result<()> {
        let mut received = Vec::new();
        let request = self.request(&mut received, http_proxy::HEAD_BYTES_MAX, |received| {
            let Some((request, bytes)) = http_proxy::parse_head(received)? else {
                return Ok(None);
            };
            let login = access::proxy_authorization(&received[..bytes]);
            Ok(Some(((request, login), bytes)))
        });
        let request = match request.await? {
            Ok((_, login)) if !self.visitor.signs_in_basic(login.as_deref()).await => {
                return self.answer(access::HTTP_SIGN_IN).await;
            }
            Ok((mut request, _)) => request.claim(&mut received).map(|()| request),
            Err(error) => Err(error),
        };
        let (target, head, exchange) = match request {
            Ok(ProxyRequest::Connect { target }) => (target, None, Exchange::TUNNEL),
            Ok(ProxyRequest::Forward {
                target,
                head,
                exchange,
            }) => (target, Some(head), exchange),
            Err(error) => {
                self.refuse(format!("refused an HTTP client: {error}"));
                return self.answer(&error.response()).await;
            }
        };
        let early = head.as_deref().unwrap_or_default();
        match self.open_and_wait(&target, early).await {
            Ok(opened) => {
                match head {
                    None => self.tcp.write_all(http_proxy::TUNNEL_OPEN).await?,
                    Some(head) => {
                        let sent = opened.early_bytes;
                        received.splice(..0, head[sent..].iter().copied());
                    }
                }
                self.run(opened, received, exchange).await;
                Ok(())
            }
            Err(refusal) => {
                self.refuse(format!(
                    "refused a connection through the HTTP proxy to {target}: {refusal}"
                ));
                self.answer(&http_proxy::refused_response(refusal, &target))
                    .await
            }
        }
    }

    /// Answers and closes such that the client sees the answer: unread bytes would turn the
    /// close into a reset.
    async fn answer(mut self, response: &[u8]) -> io::Result<()> {
        self.tcp.write_all(response).await?;
        self.tcp.shutdown().await?;
        let mut discarded = [0; 4096];
        let draining = async {
            while self.tcp.read(&mut discarded).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = timeout(Duration::from_secs(1), draining).await;
        Ok(())
    }
}
