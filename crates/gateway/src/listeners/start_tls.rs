//! Clients of databases and mail, which begin TLS after some plain messages.

use std::{borrow::Cow, io, sync::Arc};

use tokio::time::timeout;

use super::{Client, REQUEST_TIMEOUT};
use crate::{
    own_certificate::HandshakeError,
    start_tls::{MESSAGE_BYTES_MAX, MESSAGES_MAX, Step},
    target::{FlowTarget, Protocols},
    way_in::StartTlsSite,
};

/// What a client's messages lead to.
enum Begun {
    /// TLS, which has begun with these bytes.
    Tls(Vec<u8>),
    /// The protocol itself, of which these are the first bytes.
    Plain(Vec<u8>),
    /// An end, after this answer.
    Refused(Vec<u8>),
}

impl Client {
    /// Serves a client of a site in whose protocol TLS begins.
    pub(super) async fn start_tls(mut self, site: &StartTlsSite) -> io::Result<()> {
        self.connection.prepare();
        let begun = timeout(REQUEST_TIMEOUT, self.plain_messages(site)).await;
        let (client, rest) = match begun.map_err(|_| io::ErrorKind::TimedOut)?? {
            Begun::Refused(answer) => return self.answer(&answer).await,
            Begun::Plain(rest) => (self, rest),
            Begun::Tls(early) => match self.begin_tls(site, early).await? {
                Some(client) => (client, Vec::new()),
                None => return Ok(()),
            },
        };
        let target = FlowTarget {
            tls: Some(Protocols::none()),
            start: Some(site.protocol),
            ..site.target.clone().into()
        };
        match client.open_and_wait(target, |_| 0).await {
            Ok((flow, _)) => {
                client.run(flow, rest).await;
                Ok(())
            }
            Err(refusal) => {
                let reason = format!("refused a connection to {site}: {refusal}");
                client.listener.refuse(&refusal, reason);
                let refused = format!("refrain: {site}: {refusal}");
                client.answer(&site.protocol.refusal(&refused)).await
            }
        }
    }

    /// Answers the messages before TLS.
    async fn plain_messages(&mut self, site: &StartTlsSite) -> io::Result<Begun> {
        let mut dialogue = site.protocol.as_server();
        self.connection.write_all(&dialogue.greeting()).await?;
        let mut received = Vec::with_capacity(512);
        let mut messages = 0;
        let (answer, refused): (_, Cow<str>) = loop {
            match dialogue.next(&mut received) {
                Step::More if received.len() >= MESSAGE_BYTES_MAX => {
                    break (Vec::new(), "its first message is too long".into());
                }
                Step::More => {
                    if self.connection.read_buf(&mut received).await? == 0 {
                        return Ok(Begun::Refused(Vec::new()));
                    }
                    continue;
                }
                Step::Say(answer) => self.connection.write_all(&answer).await?,
                Step::Begin(_) if !received.is_empty() => {
                    let reason = "it sent bytes between its request for TLS and TLS";
                    break (Vec::new(), reason.into());
                }
                Step::Begin(answer) => {
                    self.connection.write_all(&answer).await?;
                    return Ok(Begun::Tls(received));
                }
                Step::Direct => return Ok(Begun::Tls(received)),
                Step::Plain => return Ok(Begun::Plain(received)),
                Step::Refuse(answer, reason) => break (answer, reason),
            }
            messages += 1;
            if messages > MESSAGES_MAX {
                break (Vec::new(), "it sent too many messages before TLS".into());
            }
        };
        let event = format!(
            "refused a {} client at {}: {refused}",
            site.protocol.scheme, self.address
        );
        self.listener.log(("start", site.protocol.scheme), event);
        Ok(Begun::Refused(answer))
    }

    async fn begin_tls(
        mut self,
        site: &StartTlsSite,
        mut early: Vec<u8>,
    ) -> io::Result<Option<Client>> {
        let Some(certificate) = &site.certificate else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let hello = timeout(REQUEST_TIMEOUT, self.hello(&mut early)).await;
        let Some(accepted) = hello.map_err(|_| io::ErrorKind::TimedOut)?? else {
            self.log_handshake(&HandshakeError::NotTls);
            return Ok(None);
        };
        self.accept_or_log(*accepted, Arc::clone(&certificate.config))
            .await
    }
}
