//! A way in: a listener by which applications reach the link, as options ask for it.

use std::{net::SocketAddr, sync::Arc};

use crate::{
    http_proxy::Service,
    intercept::handling::Handling,
    keys::PublicKey,
    options::{Entrance, OptionSpec},
    own_certificate::OwnCertificate,
    target::Target,
};

/// A web site that is known by its own name, with its certificate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Named {
    pub(crate) service: Arc<Service>,
    pub(crate) certificate: OwnCertificate,
}

/// A listener for applications.
#[derive(Debug, Clone, PartialEq)]
pub struct WayIn {
    /// The option that names it.
    pub option: &'static OptionSpec,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where all its connections go; `None` where its clients say it.
    pub target: Option<Target>,
    /// The web site that it serves.
    pub service: Option<Arc<Service>>,
    /// The web sites whose clients speak TLS, each known by its own name.
    pub(crate) named: Vec<Named>,
    /// The peer behind which that is, if the option names one.
    pub peer: Option<PublicKey>,
    /// How redirected connections are handled that come here.
    pub(crate) handling: Handling,
}

impl WayIn {
    /// A listener whose clients each have a target of their own.
    pub(crate) fn any_target(option: &'static OptionSpec, listen: SocketAddr) -> WayIn {
        WayIn {
            option,
            listen,
            target: None,
            service: None,
            named: Vec::new(),
            peer: None,
            handling: Handling::PLAIN,
        }
    }

    /// The web sites that it serves.
    pub fn sites(&self) -> impl Iterator<Item = &Service> {
        let named = self.named.iter().map(|named| &*named.service);
        self.service.as_deref().into_iter().chain(named)
    }

    /// Its name in the log.
    pub(crate) fn kind(&self) -> String {
        self.option.key.replace('_', " ")
    }

    /// Whether its clients can be asked for a password.
    pub(crate) fn is_proxy(&self) -> bool {
        self.option.entrance == Some(Entrance::Proxy)
    }
}
