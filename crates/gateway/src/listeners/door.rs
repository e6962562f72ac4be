//! The entrance of a listener: turns clients away by the rules of the moment, and logs that in few lines.

use std::{
    mem::discriminant,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use super::{Client, Listener};
use crate::{
    access::{Login, LoginError},
    machine::is_of_this_machine,
    options::TRANSPARENT,
};

impl Listener {
    /// Lets a client in, unless its address is not among those that may connect.
    pub(super) fn admit(&self, client: SocketAddr) -> Option<IpAddr> {
        let is_probe = self.gateway.gate.is_probe(client);
        let client = client.ip().to_canonical();
        let access = &self.policy().access;
        let is_redirected = *self.way_in.option == TRANSPARENT;
        // Programs of this machine, which connect from any of its addresses.
        let is_own = || is_of_this_machine(client) && access.admits(Ipv4Addr::LOCALHOST.into());
        if is_probe || access.admits(client) || is_redirected && is_own() {
            return Some(client);
        }
        // The probe of another near end, which was stopped and still has the port too.
        if is_redirected && client.is_loopback() {
            return None;
        }
        let (kind, listener) = (self.way_in.kind(), self.way_in.listen);
        let refused =
            format!("refused a connection from {client} ({kind} {listener}): not in --clients");
        self.outsiders.add((), refused);
        None
    }
}

impl Client {
    /// Whether this client has to sign in.
    pub(super) fn is_asked(&self) -> bool {
        self.listener.policy().access.users.is_some()
    }

    /// Fails if this login is wrong; any is right where nobody is asked.
    pub(super) async fn sign_in(&self, login: Login) -> Result<(), LoginError> {
        let users = self.listener.policy().access.users.clone();
        let verified = match users {
            None => Ok(()),
            Some(users) => users.verify(self.address, login).await,
        };
        if let Err(error) = verified {
            self.log_refused_login(error);
        }
        verified
    }

    /// The same for the value of an HTTP request's `Proxy-Authorization`; the error of a request
    /// without one is `None`.
    pub(super) async fn sign_in_basic(
        &self,
        value: Option<&[u8]>,
    ) -> Result<(), Option<LoginError>> {
        if !self.is_asked() {
            return Ok(());
        }
        // As a client's first request is, which does not know yet.
        let Some(value) = value else {
            return Err(None);
        };
        match Login::from_basic(value) {
            Some(login) => self.sign_in(login).await.map_err(Some),
            None => {
                self.log_refused_login(LoginError::Wrong);
                Err(Some(LoginError::Wrong))
            }
        }
    }

    fn log_refused_login(&self, error: LoginError) {
        let way_in = &self.listener.way_in;
        let (client, kind, listener) = (self.address, way_in.kind(), way_in.listen);
        // Without the name, where people type their password by mistake.
        let refused = format!("refused a login from {client} ({kind} {listener}): {error}");
        self.listener
            .refused_logins
            .add(discriminant(&error), refused);
    }
}
