//! Connections that the kernel redirected here: each is a flow to its original destination, unless a rule says otherwise.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::time::timeout;

use super::{Client, opened::Unopened};
use crate::{
    intercept::{
        handling::{Carriage, ClientAddress, Handling},
        proxy_protocol,
        rule::{Action, InterceptRule},
        server_name::{self, NAME_TIMEOUT, Search},
    },
    redirected::original_target,
    target::Target,
};

impl Client {
    pub(super) async fn transparent(mut self) -> io::Result<()> {
        // First: whatever happens from here on, the client sees a reset and not an end.
        self.reset()?;
        let listener = Arc::clone(&self.listener);
        let client = self.connection.tcp()?.peer_addr()?;
        if listener.gateway.gate.is_probe(client) {
            return Ok(());
        }
        let redirected = listener.redirected.as_ref();
        let names = redirected.map(|redirected| &*redirected.names);
        let target = match original_target(self.connection.tcp()?, names) {
            Ok(target) => target,
            Err(error) => {
                let reason = format!("reset a connection from {}: {error}", self.address);
                listener.refuse(&error, reason);
                return Ok(());
            }
        };
        let is_forwarded = match listener.way_in.handling {
            Handling::Carry(how) => return self.carry_redirected(&target, how, Vec::new()).await,
            Handling::ByName { is_forwarded } => is_forwarded,
        };
        let Some(server) = target.socket_address() else {
            // A name, of `refrain run`, which has no rules.
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // It is waited for so shortly that a crowd does no harm.
        if let Err(refusal) = self.request_came() {
            listener.refuse(
                &refusal,
                format!("reset a connection from {}: {refusal}", self.address),
            );
            return Ok(());
        }
        let mut early = Vec::new();
        let name = timeout(NAME_TIMEOUT, self.read_server_name(&mut early)).await;
        let name = name.unwrap_or(Ok(None))?;
        let rules = &listener.policy().intercept;
        let names = match name {
            Some(name) => vec![name],
            None => {
                let is_wanted = |name: &str| InterceptRule::any_has_name(rules, name);
                let dns_names = &listener.gateway.dns_names;
                dns_names.of(is_forwarded, client.ip(), server.ip(), is_wanted)
            }
        };
        let (action, how) = InterceptRule::decide(rules, is_forwarded, client, server, &names);
        match action {
            Action::Optimize | Action::Pass => self.carry_redirected(&target, how, early).await,
            Action::Direct => self.relay(server, how.client_address, &early).await,
            Action::Reject => {
                let event = format!("reset a connection to {server}, which a rule rejects by name");
                listener.log("rejected", event);
                Ok(())
            }
        }
    }

    /// Reads until the name of the server is known, or that there is none. All bytes go to `early`.
    async fn read_server_name(&mut self, early: &mut Vec<u8>) -> io::Result<Option<String>> {
        loop {
            match server_name::search(early) {
                Search::Found(name) => return Ok(Some(name)),
                Search::Nameless => return Ok(None),
                // An end is passed on later.
                Search::More if self.connection.read_buf(early).await? == 0 => return Ok(None),
                Search::More => {}
            }
        }
    }

    /// Carries a connection, or passes it to the server directly if the far end refuses it and its rule lets it.
    async fn carry_redirected(
        self,
        target: &Target,
        how: Carriage,
        early: Vec<u8>,
    ) -> io::Result<()> {
        let is_excluded = how.is_excluded || self.listener.policy().excludes(target);
        let how = Carriage { is_excluded, ..how };
        let is_plain = !is_excluded && how.client_address == ClientAddress::Hidden;
        let unopened = match is_plain {
            true => self.open_listed(target, &[], early).await?,
            false => Err(Unopened {
                client: self,
                early,
                is_granted: false,
            }),
        };
        let Err(Unopened { client, early, .. }) = unopened else {
            return Ok(());
        };
        client.carry_unopened(target, how, early).await
    }

    async fn carry_unopened(
        self,
        target: &Target,
        how: Carriage,
        early: Vec<u8>,
    ) -> io::Result<()> {
        let client = self.connection.tcp()?.peer_addr()?;
        let header = match (how.client_address, target.socket_address()) {
            (ClientAddress::ProxyV2, Some(server)) => proxy_protocol::header(client, server),
            _ => Vec::new(),
        };
        let server = target.socket_address();
        match server.filter(|_| how.is_relayed_if_refused) {
            Some(server) => {
                self.carry_or_relay(target, server, how, header, early)
                    .await
            }
            None => {
                let opened = self.open(target, how).await;
                if let (Err(refusal), Some(server)) = (&opened, server)
                    && !refusal.is_of_target()
                    && self.may_pass_by(client, server)
                {
                    self.listener.pass_by(refusal, server);
                    return self.relay(server, ClientAddress::Hidden, &early).await;
                }
                let early = [header, early].concat();
                self.carry_opened("redirected", target, opened, early).await
            }
        }
    }
    /// Whether a connection that no link takes may go direct. The gate is still open then, or open because of another far
    /// end.
    fn may_pass_by(&self, client: SocketAddr, server: SocketAddr) -> bool {
        // A program in `refrain run` has no rules, and no other way.
        let has_rules = self.listener.redirected.is_none();
        has_rules && !InterceptRule::any_resets(&self.listener.policy().intercept, client, server)
    }
}
