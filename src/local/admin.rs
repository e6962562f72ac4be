//! The options by which a command chooses the gateway that it asks.

use std::path::PathBuf;

use super::{Found, Place, ask, find, only, page, read_token};

/// The gateway that a command asks.
#[derive(clap::Args, Clone)]
pub(crate) struct AdminArguments {
    /// Ask the gateway at this admin listener or local socket [default: the gateway on this machine]
    #[arg(long, env = "REFRAIN_ADMIN", value_name = "[HOST:]PORT|SOCKET")]
    admin: Option<Place>,
    /// Read from this file the admin token of the gateway in --admin
    #[arg(long, env = "REFRAIN_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

impl AdminArguments {
    /// Its status.
    pub(crate) fn status(&self) -> anyhow::Result<Found> {
        let Some(admin) = &self.admin else {
            return only(find("--admin HOST:PORT")?);
        };
        Ok(ask(admin, self.token()?.as_deref())?)
    }

    /// A page of it.
    pub(crate) fn page(&self, name: &str) -> anyhow::Result<(Place, String)> {
        let place = match &self.admin {
            Some(admin) => admin.clone(),
            None => only(find("--admin HOST:PORT")?)?.place,
        };
        let page = page(&place, self.token()?.as_deref(), name);
        Ok((place, page?))
    }

    fn token(&self) -> anyhow::Result<Option<String>> {
        self.admin_token_file.as_deref().map(read_token).transpose()
    }
}
