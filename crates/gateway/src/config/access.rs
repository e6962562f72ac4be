//! Who may use the listeners for applications, and that none is open to all by accident.

use std::sync::Arc;

use super::Config;
use crate::access::{Access, Users, parse_client};
use crate::options::{CLIENTS, OPEN_TO_ALL, PROXY_AUTH, TRANSPARENT};
use crate::settings::{BoxedError, ConfigError, Settings};
use crate::way_in::WayIn;

impl Access {
    pub(super) fn resolve(settings: &Settings) -> Result<Access, ConfigError> {
        let given = |spec| settings.is_given(spec).then_some(spec);
        let clients = given(&CLIENTS).map(|spec| settings.many_with(spec, parse_client));
        let clients = clients.transpose()?;
        let users = given(&PROXY_AUTH)
            .map(|_| load_users(settings))
            .transpose()?;
        let open_to_all = settings.is_on(&OPEN_TO_ALL)?;
        if open_to_all && clients.is_some() {
            return Err(settings.wrong(&OPEN_TO_ALL, "cannot be used with --clients"));
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

impl Config {
    /// A listener beyond loopback says who may use it, if only that all may; and a password that
    /// nobody is asked for protects nothing.
    pub(super) fn check_access(&self, settings: &Settings) -> Result<(), ConfigError> {
        if self.access.users.is_some() && !self.ways_in.iter().any(WayIn::is_proxy) {
            return Err(settings.wrong(
                &PROXY_AUTH,
                "needs --socks5 or --http-proxy (--forward, --service and --transparent cannot ask for a password: use --clients)",
            ));
        }
        for (index, way_in) in self.ways_in.iter().enumerate() {
            if self.access.is_open_to_all(way_in) && !self.access.open_to_all {
                let ways = match way_in.is_proxy() {
                    true => "--clients, --proxy-auth or --open-to-all",
                    false => "--clients or --open-to-all",
                };
                let listen = way_in.listen;
                let exposed =
                    format!("other machines can reach {listen}: give {ways}, or use loopback");
                let same_option = |other: &&WayIn| other.option == way_in.option;
                let nth = self.ways_in[..index].iter().filter(same_option).count();
                return Err(settings.wrong_nth(way_in.option, nth, exposed));
            }
        }
        Ok(())
    }

    /// What is allowed, and to be known: who can use these listeners, and who cannot.
    pub(super) fn access_warnings(&self) -> Vec<String> {
        let warning = |way_in: &WayIn| {
            let (flag, address, access) = (way_in.option.flag(), way_in.listen, &self.access);
            if access.is_open_to_all(way_in) {
                let restrict = match way_in.is_proxy() {
                    true => "--clients or --proxy-auth",
                    false => "--clients",
                };
                return Some(format!(
                    "{flag} {address} is open to all that can reach it (to restrict it: {restrict})"
                ));
            }
            let has_own_clients = *way_in.option != TRANSPARENT;
            (has_own_clients && access.shuts_out_all(address)).then(|| {
                format!(
                    "{flag} {address} refuses all clients: only this machine can reach it, and \
                     --clients does not list {}",
                    address.ip()
                )
            })
        };
        self.ways_in.iter().filter_map(warning).collect()
    }
}
