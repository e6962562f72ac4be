//! The protocols by which applications reach a listener.

use crate::target::Target;

/// What a listener speaks with its clients.
#[derive(Debug, Clone)]
pub enum Service {
    /// Every connection goes to one target.
    Forward(Target),
    /// SOCKS5.
    Socks5,
    /// An HTTP proxy.
    HttpProxy,
}

impl Service {
    /// Its name in the log.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Service::Forward(_) => "forward",
            Service::Socks5 => "socks5",
            Service::HttpProxy => "http proxy",
        }
    }

    /// Whether its clients name the target, and can be asked for a password.
    pub(crate) fn is_proxy(&self) -> bool {
        matches!(self, Service::Socks5 | Service::HttpProxy)
    }
}
