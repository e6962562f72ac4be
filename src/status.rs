//! `refrain status`: what a running gateway does.

mod tables;
mod watch;

use std::{io::Write, path::PathBuf, time::Duration};

use console::Term;

use crate::{
    bounded::time_from,
    local::{self, Found, Place},
};
use tables::View;

#[derive(clap::Args, Clone)]
pub(crate) struct StatusArguments {
    /// Ask the gateway at this admin listener or local socket [default: the gateway on this machine]
    #[arg(long, env = "REFRAIN_ADMIN", value_name = "[HOST:]PORT|SOCKET")]
    admin: Option<Place>,
    /// Read from this file the admin token of the gateway in --admin
    #[arg(long, env = "REFRAIN_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Print the status as JSON
    #[arg(long, conflicts_with = "verbose")]
    json: bool,
    /// Show caches, effort, and how much each layer saves
    #[arg(short, long)]
    verbose: bool,
    /// Show the status every TIME until Ctrl-C [default: 2s]
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = time_from(Duration::from_millis(100)),
        conflicts_with = "json"
    )]
    watch: Option<Duration>,
}

pub(crate) fn run(arguments: &StatusArguments) -> anyhow::Result<()> {
    if let Some(interval) = arguments.watch {
        return watch::watch(arguments, interval);
    }
    let mut out = std::io::stdout().lock();
    match arguments.json {
        true => writeln!(out, "{}", fetch(arguments)?.json)?,
        false => write!(out, "{}", show(arguments)?)?,
    }
    Ok(())
}

/// The status as tables.
fn show(arguments: &StatusArguments) -> anyhow::Result<String> {
    let mut tables = Vec::new();
    let view = View {
        is_verbose: arguments.verbose,
        columns_max: columns(),
    };
    tables::print(&fetch(arguments)?.status, view, &mut tables)?;
    Ok(String::from_utf8(tables)?)
}

/// Of the terminal. A file takes lines of any length.
fn columns() -> usize {
    let terminal = Some(Term::stdout()).filter(Term::is_term);
    terminal.map_or(usize::MAX, |terminal| terminal.size().1.into())
}

fn fetch(arguments: &StatusArguments) -> anyhow::Result<Found> {
    let Some(admin) = &arguments.admin else {
        return local::only(local::find("--admin HOST:PORT")?);
    };
    let token = arguments.admin_token_file.as_deref();
    let token = token.map(local::read_token).transpose()?;
    Ok(local::ask(admin, token.as_deref())?)
}
