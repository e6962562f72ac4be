//! `refrain status`: what a running gateway does.

pub(crate) mod sums;
mod tables;
mod watch;

use std::{io::Write, time::Duration};

use console::Term;

use crate::{bounded::time_from, local::AdminArguments};
use tables::View;

#[derive(clap::Args, Clone)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    admin: AdminArguments,
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
        true => writeln!(out, "{}", arguments.admin.status()?.json)?,
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
    tables::print(&arguments.admin.status()?.status, view, &mut tables)?;
    Ok(String::from_utf8(tables)?)
}

/// Of the terminal. A file takes lines of any length.
pub(crate) fn columns() -> usize {
    let terminal = Some(Term::stdout()).filter(Term::is_term);
    terminal.map_or(usize::MAX, |terminal| terminal.size().1.into())
}
