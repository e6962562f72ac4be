//! Who may use the listeners for applications, and that none is open to all by accident.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{BoxedError, CommonConfig, Mismatch, NearConfig};
use crate::access::{Access, Users, parse_client};
use crate::options::{CLIENTS, FORWARD, HTTP_PROXY, OPEN_TO_ALL, OptionSpec, PROXY_AUTH, SOCKS5};
use crate::service::Service;
use crate::settings::{ConfigError, Settings};

/// A listener for applications, with the option that names it.
pub(super) type WayIn = (&'static OptionSpec, Service, SocketAddr);

impl Access {
    pub(super) fn resolve(settings: &Settings) -> Result<Access, ConfigError> {
        let clients = match settings.is_given(&CLIENTS) {
            true => Some(settings.many_with(&CLIENTS, parse_client)?),
            false => None,
        };
        let users = match settings.is_given(&PROXY_AUTH) {
            true => Some(load_users(settings)?),
            false => None,
        };
        let open_to_all = settings.optional_with(&OPEN_TO_ALL, |text| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Mismatch::Switch),
        })?;
        let open_to_all = open_to_all.unwrap_or(false);
        if open_to_all && clients.is_some() {
            return Err(settings.wrong(&OPEN_TO_ALL, Mismatch::OpenToClients));
        }
        Ok(Access {
            clients,
            users,
            open_to_all,
        })
    }
}

fn load_users(settings: &Settings) -> Result<Arc<Users>, ConfigError> {
    // Each by itself at first, so that an error is about the value that it names.
    let values = settings.many_with(&PROXY_AUTH, |value| {
        Users::load(&[value])?;
        Ok::<_, BoxedError>(value.to_owned())
    })?;
    let users = Users::load(&values).map_err(|error| settings.wrong(&PROXY_AUTH, error))?;
    Ok(Arc::new(users))
}

impl NearConfig {
    /// The listeners for applications.
    pub(super) fn ways_in(&self) -> Vec<WayIn> {
        let proxies = [
            (&SOCKS5, Service::Socks5, self.socks5),
            (&HTTP_PROXY, Service::HttpProxy, self.http_proxy),
        ];
        let proxies = proxies.into_iter();
        let proxies =
            proxies.filter_map(|(spec, service, address)| Some((spec, service, address?)));
        proxies.chain(self.common.ways_in()).collect()
    }

    /// A password that nobody is asked for protects nothing.
    pub(super) fn check_users_are_asked(&self, settings: &Settings) -> Result<(), ConfigError> {
        let is_used = self.socks5.is_some() || self.http_proxy.is_some();
        match self.common.access.users.is_some() && !is_used {
            true => Err(settings.wrong(&PROXY_AUTH, Mismatch::NoProxy)),
            false => Ok(()),
        }
    }
}

impl CommonConfig {
    pub(super) fn ways_in(&self) -> impl Iterator<Item = WayIn> {
        self.forwards.iter().map(|forward| {
            let service = Service::Forward(forward.target.clone());
            (&FORWARD, service, forward.listen)
        })
    }

    /// A listener beyond loopback says who may use it, if only that all may.
    pub(super) fn check_access(
        &self,
        ways_in: &[WayIn],
        settings: &Settings,
    ) -> Result<(), ConfigError> {
        for (index, (spec, service, address)) in ways_in.iter().enumerate() {
            if self.access.is_open_to_all(service, *address) && !self.access.open_to_all {
                let exposed = match service.is_proxy() {
                    true => Mismatch::ProxyExposed(*address),
                    false => Mismatch::ForwardExposed(*address),
                };
                let before = ways_in[..index].iter();
                let nth = before.filter(|(other, ..)| other.key == spec.key).count();
                return Err(settings.wrong_nth(spec, nth, exposed));
            }
        }
        Ok(())
    }

    /// What is allowed, and to be known: who can use these listeners, and who cannot.
    pub(super) fn access_warnings(&self, ways_in: &[WayIn]) -> Vec<String> {
        let warning = |(spec, service, address): &WayIn| {
            let (flag, access) = (spec.flag(), &self.access);
            if access.is_open_to_all(service, *address) {
                let restrict = match service.is_proxy() {
                    true => "--clients or --proxy-auth",
                    false => "--clients",
                };
                return Some(format!(
                    "{flag} {address} is open to all that can reach it; {restrict} would restrict \
                     it"
                ));
            }
            access.shuts_out_all(*address).then(|| {
                format!(
                    "{flag} {address} takes no client: only this machine can reach it, and \
                     --clients does not list {}",
                    address.ip()
                )
            })
        };
        ways_in.iter().filter_map(warning).collect()
    }
}
