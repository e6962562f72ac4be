//! Connections whose TLS this end opens, because their server's name is listed: requests inside are exchanges.
//!
//! The server is reached first, by TLS at the far end. What cannot be opened passes as it is, with all of its bytes, and
//! the client judges the server itself.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::timeout;

use super::{
    Client, REQUEST_TIMEOUT,
    http::{ExchangeFlow, Kept},
    http2,
};
use crate::{
    client_hello::{HTTP2, offers, speaks_http},
    http_proxy::{self, Origin, Service},
    opening::{Refused, authority::Authority},
    policy::Policy,
    refusal::Refusal,
    target::{Host, Target},
};

/// How long a client has for its hello. Of other protocols, the server may speak first.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that is not opened.
pub(super) struct Unopened {
    pub(super) client: Client,
    /// Its bytes so far.
    pub(super) early: Vec<u8>,
    /// Whether the client has the answer that its target is reached.
    pub(super) is_granted: bool,
}

impl Client {
    /// Serves the client's requests to `target`, if its TLS is to be opened. `granted` is the answer that its target is
    /// reached, and `early` are its bytes so far.
    pub(super) async fn open_listed(
        self,
        target: &Target,
        granted: &[u8],
        early: Vec<u8>,
    ) -> io::Result<Result<(), Unopened>> {
        // It is known before the hello that most connections are not opened.
        let is_named = matches!(target.host, Host::Domain(_));
        // A client that names an address to a proxy waits for the proxy's answer, and says nothing before.
        let may_be_listed = self
            .listener
            .policy()
            .opening
            .of_port(target.port)
            .is_some();
        if !may_be_listed || !is_named && !granted.is_empty() {
            return Ok(Err(Unopened {
                client: self,
                early,
                is_granted: false,
            }));
        }
        // Boxed, so that connections that are not opened have no memory for it.
        Box::pin(self.open_or_pass(target, granted, early)).await
    }

    async fn open_or_pass(
        mut self,
        target: &Target,
        granted: &[u8],
        mut early: Vec<u8>,
    ) -> io::Result<Result<(), Unopened>> {
        let policy = self.listener.policy();
        let authority = policy.opening.of_port(target.port);
        let is_named = matches!(target.host, Host::Domain(_));
        let mut flow = None;
        if is_named && authority.is_some() && self.may_open(&policy, target) {
            // It is not known yet which version of HTTP the client speaks.
            self.exchanges = Some(http2::number());
            flow = self.open_origin(target).await;
        }
        let Some(authority) = authority.filter(|_| !is_named || flow.is_some()) else {
            return Ok(Err(Unopened {
                client: self,
                early,
                is_granted: false,
            }));
        };
        if is_named {
            self.connection.write_all(granted).await?;
        }
        let hello = timeout(HELLO_TIMEOUT, self.hello(&mut early)).await;
        let hello = hello.unwrap_or(Ok(None))?;
        let site = hello.as_ref().and_then(|hello| {
            let hello_of_client = hello.client_hello();
            let name = Host::from_name(hello_of_client.server_name()?).ok()?;
            let site = Target::new(name, target.port).ok()?;
            speaks_http(hello).then_some(site)
        });
        let site = site.filter(|site| match is_named {
            true => site == target,
            false => self.may_open(&policy, site),
        });
        if let Some(site) = &site
            && flow.is_none()
        {
            let offers_http2 = hello.as_deref().is_some_and(|hello| offers(hello, HTTP2));
            self.exchanges = offers_http2.then(http2::number);
            flow = self.open_origin(site).await;
        }
        let (Some(hello), Some(site), Some(flow)) = (hello, site, flow) else {
            return Ok(Err(Unopened {
                client: self,
                early,
                is_granted: is_named,
            }));
        };
        self.serve_opened(*hello, site, flow, authority).await?;
        Ok(Ok(()))
    }

    fn may_open(&self, policy: &Policy, site: &Target) -> bool {
        let name = site.host.to_string();
        let memory = &self.listener.gateway.opening;
        policy.opening.covers(site)
            && !policy.excludes(site)
            && !memory.passes(self.address, &name, Instant::now())
    }

    /// Reaches the server. Nothing if connections to it pass.
    async fn open_origin(&self, site: &Target) -> Option<ExchangeFlow> {
        let target = origin_of(site).flow_target(self.exchanges);
        let opened = self.open_and_wait(target, |_| 0).await;
        if let Err(refusal @ (Refusal::Tls(_) | Refusal::TlsUnknown)) = &opened {
            let memory = &self.listener.gateway.opening;
            if memory.cannot_open(&site.host.to_string(), Instant::now()) {
                let event = format!("TLS to {site} is not opened for 10 minutes: {refusal}");
                self.listener.log("unopened", event);
            }
        }
        let (handle, _) = opened.ok()?;
        Some(ExchangeFlow {
            handle,
            may_be_http2: self.exchanges.is_some(),
        })
    }

    /// Makes the handshake as the server, and serves the requests. If the client does not accept the certificate, its
    /// connection is lost, and its next ones pass.
    async fn serve_opened(
        self,
        hello: rustls::server::Accepted,
        site: Target,
        flow: ExchangeFlow,
        authority: &Authority,
    ) -> io::Result<()> {
        let (listener, address) = (Arc::clone(&self.listener), self.address);
        let name = site.host.to_string();
        let config = authority.config(&name).map_err(io::Error::other)?;
        let client = match self.accept(hello, config).await? {
            Ok(client) => client.first_bytes().await,
            Err(error) => Err(Refused::by(&error)),
        };
        let memory = &listener.gateway.opening;
        match client {
            Ok(client) => {
                memory.succeeded(address, &name, Instant::now());
                let origin = origin_of(&site);
                let service = Arc::new(Service::of_origin(origin.clone()));
                let kept = Kept { origin, flow };
                client.site(service, Some(kept)).await?;
            }
            Err(refused) => {
                if let Some(passes) = memory.refused(address, &name, refused, Instant::now()) {
                    let hours = passes.as_secs() / 3600;
                    let plural = if hours == 1 { "" } else { "s" };
                    let event = format!(
                        "{address} {refused}: its connections to {site} pass unopened for {hours} hour{plural}"
                    );
                    listener.log("refused", event);
                }
            }
        }
        Ok(())
    }

    /// Waits for a client that uses its connection.
    async fn first_bytes(self) -> Result<Self, Refused> {
        match timeout(REQUEST_TIMEOUT, self.connection.has_more()).await {
            Ok(Ok(true)) => Ok(self),
            Ok(Ok(false)) | Err(_) => Err(Refused::Silently),
            Ok(Err(error)) => Err(Refused::by(&error)),
        }
    }
}

impl Unopened {
    /// Serves it as a tunnel.
    pub(super) async fn tunnel(self, origin: &Origin) -> io::Result<()> {
        let Unopened {
            client,
            early,
            is_granted,
        } = self;
        match client.open_and_wait(origin.flow_target(None), |_| 0).await {
            Ok((flow, _)) => {
                if !is_granted {
                    client.connection.write_all(http_proxy::TUNNEL_OPEN).await?;
                }
                client.run(flow, early).await;
                Ok(())
            }
            Err(refusal) => {
                let response = client.refused(origin, refusal);
                match is_granted {
                    true => client.reset(),
                    false => client.answer(&response).await,
                }
            }
        }
    }
}

fn origin_of(site: &Target) -> Origin {
    Origin::opened(site.clone())
}
