//! The HTTP library, set up as the options say.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use ureq::{
    Agent, Proxy,
    config::ConfigBuilder,
    tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem},
    typestate::AgentScope,
};

use super::{
    error::RemoteError,
    options::{ProxyChoice, RemoteOptions},
    server::lock,
};

/// Connections that can be broken together.
#[derive(Default)]
pub(super) struct Agents(Mutex<State>);

#[derive(Default)]
struct State {
    /// For http alone: it needs no certificates.
    plain: Option<Agent>,
    secure: Option<Agent>,
    is_closed: bool,
}

impl Agents {
    /// The agent for a scheme.
    pub(super) fn get(&self, scheme: &str, options: &RemoteOptions) -> Result<Agent, RemoteError> {
        let mut state = lock(&self.0);
        let (agent, made): (_, fn(&_) -> _) = match scheme {
            "https" => (&mut state.secure, secure),
            _ => (&mut state.plain, plain),
        };
        let agent = match agent {
            Some(agent) => agent.clone(),
            None => agent.insert(made(options)?).clone(),
        };
        if state.is_closed {
            agent.clone().shutdown();
        }
        Ok(agent)
    }

    /// Whether its connections were broken.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.0).is_closed
    }

    /// Breaks all connections, those too that are only about to be made.
    pub(super) fn close(&self) {
        let mut state = lock(&self.0);
        state.is_closed = true;
        for agent in [state.plain.take(), state.secure.take()]
            .into_iter()
            .flatten()
        {
            agent.shutdown();
        }
    }
}

fn plain(options: &RemoteOptions) -> Result<Agent, RemoteError> {
    Ok(configured(options)?.build().new_agent())
}

fn secure(options: &RemoteOptions) -> Result<Agent, RemoteError> {
    let provider = rustls::crypto::ring::default_provider();
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(provider))
        .root_certs(roots(options)?)
        .build();
    Ok(configured(options)?.tls_config(tls).build().new_agent())
}

fn configured(options: &RemoteOptions) -> Result<ConfigBuilder<AgentScope>, RemoteError> {
    let proxy = match &options.proxy {
        ProxyChoice::Environment => Proxy::try_from_env(),
        ProxyChoice::Direct => None,
        ProxyChoice::Url(url) => Some(Proxy::new(url).map_err(|error| RemoteError::Proxy {
            source: Box::new(error),
        })?),
    };
    let progress = Some(options.progress_timeout);
    Ok(Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(proxy)
        .user_agent(options.user_agent.as_str())
        .max_idle_connections(options.connections)
        .max_idle_connections_per_host(options.connections)
        .timeout_resolve(Some(options.connect_timeout))
        .timeout_connect(Some(options.connect_timeout))
        .timeout_recv_response(progress)
        .timeout_per_read(progress)
        .timeout_per_write(progress))
}

fn roots(options: &RemoteOptions) -> Result<RootCerts, RemoteError> {
    let certificates = match &options.roots {
        Some(path) => {
            let refused = |source| RemoteError::Roots {
                path: path.clone(),
                source,
            };
            let mut certificates = Vec::new();
            for item in parse_pem(&fs::read(path).map_err(refused)?) {
                if let PemItem::Certificate(found) = item.map_err(|e| refused(e.into_io()))? {
                    certificates.push(found);
                }
            }
            certificates
        }
        // What cannot be read among the system's is not trusted. If that leaves none, it is said.
        None => rustls_native_certs::load_native_certs()
            .certs
            .iter()
            .map(|found| Certificate::from_der(found).to_owned())
            .collect(),
    };
    if certificates.is_empty() {
        let path = options.roots.clone();
        return Err(RemoteError::NoRoots { path });
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}
