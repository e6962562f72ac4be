//! TLS of clients that the near end opens: for listed names, with certificates of the site's own CA.
//!
//! ```text
//! authority   the CA, and the certificates that it makes
//! memory      clients that refuse these certificates, and names that cannot be opened
//! ```

pub mod authority;
mod memory;

use std::{fmt, io, path::PathBuf, str::FromStr, sync::Arc};

use rustls::AlertDescription;

use crate::{
    options::{CA, OPEN},
    rules::{HostPattern, Rule, RuleError},
    settings::{ConfigError, Settings},
    target::Target,
};
use authority::Authority;
pub(crate) use memory::Memory;

/// The names whose TLS is opened, and the CA that this takes.
#[derive(Clone, Default)]
pub(crate) struct Opening {
    names: Vec<OpenName>,
    authority: Option<Arc<Authority>>,
}

/// Names and a port, as users write them: `NAME[:PORT]` or `*.SUFFIX[:PORT]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenName(Rule);

/// Why a text is not one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenNameError {
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// All names, or an address.
    #[error("TLS is only opened for names: write a name, or *.suffix")]
    NoName,
}

impl FromStr for OpenName {
    type Err = OpenNameError;

    fn from_str(text: &str) -> Result<OpenName, OpenNameError> {
        let rule: Rule = match text.contains(':') {
            true => text.parse()?,
            false => format!("{text}:443").parse()?,
        };
        match rule.host() {
            HostPattern::Name(_) | HostPattern::Below(_) => Ok(OpenName(rule)),
            HostPattern::Any | HostPattern::Net(_) => Err(OpenNameError::NoName),
        }
    }
}

impl OpenName {
    /// A name that it covers.
    fn example(&self) -> String {
        match self.0.host() {
            HostPattern::Below(suffix) => format!("refrain{suffix}"),
            host => host.to_string(),
        }
    }
}

impl Opening {
    /// Reads the options about it.
    pub(crate) fn resolve(settings: &Settings) -> Result<Opening, ConfigError> {
        let names: Vec<OpenName> = settings.many(&OPEN)?;
        let folder: Option<PathBuf> = settings.optional(&CA)?;
        let Some(folder) = folder.filter(|_| !names.is_empty()) else {
            return match names.is_empty() {
                true => Ok(Opening::default()),
                false => Err(settings.wrong(&OPEN, "needs --ca (`refrain ca init` makes a CA)")),
            };
        };
        let authority = Authority::load(&folder).map_err(|error| settings.wrong(&CA, error))?;
        for (nth, name) in names.iter().enumerate() {
            let permitted = authority.permits(&name.example());
            permitted.map_err(|error| settings.wrong_nth(&OPEN, nth, error))?;
        }
        Ok(Opening {
            names,
            authority: Some(Arc::new(authority)),
        })
    }

    /// The CA, if connections to this port may be opened.
    pub(crate) fn of_port(&self, port: u16) -> Option<&Arc<Authority>> {
        let has_port = |name: &OpenName| name.0.has_port(port);
        self.authority
            .as_ref()
            .filter(|_| self.names.iter().any(has_port))
    }

    /// Whether connections to this target are opened, which is a name.
    pub(crate) fn covers(&self, target: &Target) -> bool {
        let host = target.host.to_string();
        self.names
            .iter()
            .any(|name| name.0.covers_name(&host, target.port))
    }

    /// The names, for people; nothing if there are none.
    pub(crate) fn describe(&self) -> Option<String> {
        let names: Vec<String> = self.names.iter().map(|name| name.0.to_string()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.names).finish()
    }
}

/// What the end of a handshake says of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It does not accept the certificate.
    Certificate,
    /// The connection ended without a reason, which clients also do that do not accept it.
    Silently,
    /// It and this end have no version or cipher in common, or something else.
    Incompatible,
}

impl Refused {
    /// By the error of the handshake, or of the first read after it.
    pub(crate) fn by(error: &io::Error) -> Refused {
        use AlertDescription::{BadCertificate, CertificateUnknown, UnknownCA};
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::AlertReceived(BadCertificate | CertificateUnknown | UnknownCA)) => {
                Refused::Certificate
            }
            Some(_) => Refused::Incompatible,
            None => Refused::Silently,
        }
    }
}

/// For the log, behind the client.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Certificate | Refused::Silently => "does not accept this end's certificate",
            Refused::Incompatible => "does not speak TLS as this end does",
        })
    }
}

#[cfg(test)]
mod tests;
