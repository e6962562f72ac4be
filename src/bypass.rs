//! `refrain bypass`: has a running near end intercept nothing, or intercept again.

use clap::ValueEnum;

use crate::local::{self, Place};

#[derive(clap::Args)]
pub(crate) struct BypassArguments {
    /// `on`: new connections go direct. `off`: they are intercepted again
    state: Switch,
    /// Ask the near end with this local socket [default: the near end on this machine]
    #[arg(long, value_name = "SOCKET")]
    admin: Option<Place>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

pub(crate) fn run(arguments: &BypassArguments) -> anyhow::Result<()> {
    let place = match &arguments.admin {
        Some(place) => place.clone(),
        None => {
            let mut found = local::find("--admin SOCKET")?;
            found.retain(|found| found.status.interception.is_some());
            if found.is_empty() && rustix::process::geteuid().is_root() {
                anyhow::bail!(
                    "there is nothing to bypass: no near end on this machine intercepts connections (none has --transparent)"
                );
            }
            if found.is_empty() {
                anyhow::bail!(
                    "found no near end with --transparent: if it runs as another user, run this as that user, or give \
                     --admin SOCKET"
                );
            }
            local::only(found)?.place
        }
    };
    local::post(
        &place,
        match arguments.state {
            Switch::On => "/bypass/on",
            Switch::Off => "/bypass/off",
        },
    )
}
