//! A way in: a listener by which applications reach the link, as options ask for it.

use std::{fmt, net::SocketAddr, sync::Arc};

use crate::{
    http_proxy::Service,
    intercept::handling::Handling,
    keys::PublicKey,
    options::{Entrance, OptionSpec},
    own_certificate::OwnCertificate,
    start_tls::StartTls,
    target::Target,
};

/// A web site that is known by its own name, with its certificate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Named {
    pub(crate) service: Arc<Service>,
    pub(crate) certificate: OwnCertificate,
}

/// A site in whose protocol TLS begins after some plain messages.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StartTlsSite {
    pub(crate) protocol: &'static StartTls,
    pub(crate) target: Target,
    /// The certificate for clients. It is not there before all options were read.
    pub(crate) certificate: Option<OwnCertificate>,
}

impl fmt::Display for StartTlsSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.protocol.scheme, self.target)
    }
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
    /// The site of another protocol that it serves.
    pub(crate) start_tls: Option<StartTlsSite>,
    /// The peer behind which that is, if the option names one.
    pub peer: Option<PublicKey>,
    /// How redirected connections are handled that come here.
    pub(crate) handling: Handling,
}

impl WayIn {
    /// What to say of its certificates.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let of_mail = self
            .start_tls
            .iter()
            .filter_map(|site| site.certificate.as_ref());
        let of_sites = self.named.iter().map(|named| &named.certificate);
        let certificates = of_sites.chain(of_mail);
        certificates.filter_map(OwnCertificate::warning).collect()
    }

    /// A listener whose clients each have a target of their own.
    pub(crate) fn any_target(option: &'static OptionSpec, listen: SocketAddr) -> WayIn {
        WayIn {
            option,
            listen,
            target: None,
            service: None,
            named: Vec::new(),
            start_tls: None,
            peer: None,
            handling: Handling::PLAIN,
        }
    }

    /// The sites that it serves.
    pub fn sites(&self) -> Vec<String> {
        let named = self.named.iter().map(|named| &*named.service);
        let services = self.service.as_deref().into_iter().chain(named);
        let other = self.start_tls.iter().map(ToString::to_string);
        services.map(ToString::to_string).chain(other).collect()
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
