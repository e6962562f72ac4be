//! The entrance of one listener: turns clients away by the rules of the moment, and logs that in few lines.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::access::{Login, LoginError};
use crate::policy::SharedPolicy;
use crate::rate_limited_log::RateLimitedLog;
use crate::way_in::WayIn;

/// The entrance of one listener: turns clients away, and logs that in few lines.
#[derive(Debug)]
pub(crate) struct Door {
    kind: String,
    listener: SocketAddr,
    policy: Arc<SharedPolicy>,
    outsiders: RateLimitedLog,
    refused_logins: RateLimitedLog,
}

/// A client that was let in at a door, and may have to sign in.
#[derive(Debug)]
pub(crate) struct Visitor {
    door: Arc<Door>,
    client: IpAddr,
}

impl Door {
    pub(crate) fn new(way_in: &WayIn, policy: &Arc<SharedPolicy>) -> Arc<Door> {
        Arc::new(Door {
            kind: way_in.kind(),
            listener: way_in.listen,
            policy: Arc::clone(policy),
            outsiders: RateLimitedLog::new(|line| tracing::warn!("{line}")),
            refused_logins: RateLimitedLog::new(|line| tracing::warn!("{line}")),
        })
    }

    /// Lets a client in, unless its address is not among those that may connect.
    pub(crate) fn admit(self: &Arc<Door>, client: SocketAddr) -> Option<Visitor> {
        let client = client.ip().to_canonical();
        if !self.policy.load().access.admits(client) {
            let (kind, listener) = (&self.kind, self.listener);
            self.outsiders.add(format!(
                "refused a connection from {client} ({kind} {listener}): not in --clients"
            ));
            return None;
        }
        Some(Visitor {
            door: Arc::clone(self),
            client,
        })
    }
}

impl Visitor {
    /// Whether this client has to sign in.
    pub(crate) fn is_asked(&self) -> bool {
        self.door.policy.load().access.users.is_some()
    }

    /// Whether this login is right; any is where nobody is asked.
    pub(crate) async fn signs_in(&self, login: Login) -> bool {
        let users = self.door.policy.load().access.users.clone();
        let verified = match users {
            None => Ok(()),
            Some(users) => users.verify(self.client, login).await,
        };
        if let Err(error) = verified {
            self.log_refused_login(error);
        }
        verified.is_ok()
    }

    /// The same for the value of an HTTP request's `Proxy-Authorization`.
    pub(crate) async fn signs_in_basic(&self, value: Option<&[u8]>) -> bool {
        if !self.is_asked() {
            return true;
        }
        // As a client's first request is, which does not know yet.
        let Some(value) = value else {
            return false;
        };
        match Login::from_basic(value) {
            Some(login) => self.signs_in(login).await,
            None => {
                self.log_refused_login(LoginError::Wrong);
                false
            }
        }
    }

    fn log_refused_login(&self, error: LoginError) {
        let (client, Door { kind, listener, .. }) = (self.client, &*self.door);
        // Without the name, where people type their password by mistake.
        self.door.refused_logins.add(format!(
            "refused a login from {client} ({kind} {listener}): {error}"
        ));
    }
}
