//! `refrain run`: a program whose connections go through the link, though it knows of no proxy.
//!
//! ```text
//! CMD ─▶ connect ─▶ nft redirect ─▶ listener ─▶ this process: near end, or client of a SOCKS5 proxy ─▶ far end
//!    └── name ────▶ nft redirect ─▶ UDP socket ─▶ virtual names
//!  [ user, network and mount namespace ]   [ outside: sockets handed out by SCM_RIGHTS ]
//! ```
//!
//! The process that becomes CMD makes its namespaces itself ([`inside`]), and hands out the sockets that all of its
//! connections and queries are redirected to. This process serves them, and stays until CMD and all its children have
//! ended ([`children`]). All bytes go through the kernel's TCP, on both sides.

mod children;
mod control;
mod inside;
mod relay;

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::Parser;
use refrain_gateway::{
    arguments::NearOptions,
    config::Config,
    start::{Tasks, start, take_redirected},
    status::{Listening, Status},
    target::Target,
    virtual_names::VirtualNames,
};
use tokio::task::JoinSet;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use crate::{
    gateways::{self, LEAVE},
    local,
    log::{LogForm, levels},
    usage::UsageError,
};
use children::Children;
use control::{Control, Sockets};
use relay::Proxy;

/// The exit code of an error of `refrain run` itself: others are those of CMD. So do env, timeout and docker.
pub(crate) const FAILED: u8 = 125;

/// This program, even if its file was replaced meanwhile.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The log where no level is given: also the reasons of resets, which the program cannot know.
const LOGGED: &str = "warn,refrain_gateway::listeners=info,refrain::run=info";

/// How long connections through a proxy may take to send their last bytes, once the program has ended.
const LAST_BYTES: Duration = Duration::from_secs(30);

/// What `refrain run` takes.
#[derive(clap::Args)]
pub(crate) struct RunArguments {
    /// Use the SOCKS5 proxy at this address, such as that of a near end
    ///
    /// Without this and --config, the near end that runs here and serves SOCKS5 is used.
    #[arg(long, value_name = "[USER:PASSWORD@][HOST:]PORT")]
    socks5: Option<Proxy>,
    /// Start a near end for this program, with the options of this file
    ///
    /// It has the keys, peers and limits of the file, but opens none of its listeners.
    #[arg(long, value_name = "FILE", conflicts_with = "socks5")]
    config: Option<PathBuf>,
    /// Log to stderr at this level [default: warn, and refused connections]
    #[arg(long, value_name = "LEVEL", env = "REFRAIN_LOG", hide_env = true, value_parser = levels())]
    log: Option<LevelFilter>,
    #[command(flatten)]
    form: LogForm,
    /// Print no line about UDP at the start
    #[arg(short, long)]
    quiet: bool,
    /// The program to run, and its arguments
    #[arg(value_name = "CMD", required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
    /// Become the program: the socket of the process that serves it.
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

/// An error of `refrain run` itself.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub(crate) struct RunFailed(anyhow::Error);

/// Where the connections of the program go.
enum Way {
    /// A near end in this process.
    Near(Box<Config>),
    /// A proxy.
    Proxy(Proxy),
}

/// Runs the program, and exits with its exit code.
pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    if let Some(control) = &arguments.inside {
        inside::report_and_become(control, &arguments.command);
    }
    if arguments.socks5.is_none() && arguments.config.is_none() && inside::is_inside() {
        // Its connections go through the link already.
        inside::become_program(&arguments.command);
    }
    let exit_code = serve_program(arguments).map_err(RunFailed)?;
    process::exit(exit_code.into())
}

fn serve_program(arguments: &RunArguments) -> anyhow::Result<u8> {
    let log = match arguments.log {
        Some(level) => arguments.form.begin(level),
        None => arguments.form.begin_with(EnvFilter::new(LOGGED)),
    };
    let way = choose(arguments)?;
    let control = Control::listen()?;
    let children = Children::adopt()?;
    let mut command = Command::new(OWN_PROGRAM);
    command
        .arg0("refrain")
        .args(["run", "--inside"])
        .arg(control.path())
        .arg("--")
        .args(&arguments.command);
    let program = command.spawn().context("cannot start a process")?;
    let (sockets, go) = control.receive(&program)?;
    if !arguments.quiet {
        crate::stderr::warn(
            "UDP is not passed on, except queries for names (see `refrain run --help`)",
        );
    }
    let exit_code = match way {
        Way::Near(config) => gateways::block_on(config.peers.len(), async {
            let drain = config.timeouts.drain;
            let mut tasks = Tasks::default();
            let gateway = start(*config, &mut tasks).await?;
            let names = serve_names(&sockets, &mut tasks.services)?;
            take_redirected(&gateway, sockets.listener()?, names, &mut tasks)?;
            go.send()?;
            let exit_code = children.ended(&program).await?;
            gateway.drain(drain).await;
            tokio::time::sleep(LEAVE).await;
            tokio::task::spawn_blocking(move || gateway.settle()).await?;
            anyhow::Ok(exit_code)
        }),
        Way::Proxy(proxy) => gateways::block_on(1, async {
            let mut services = JoinSet::new();
            let names = serve_names(&sockets, &mut services)?;
            let relays = relay::serve(sockets.listener()?, proxy, names, &mut services);
            go.send()?;
            let exit_code = children.ended(&program).await?;
            drop(services);
            relays.ended(LAST_BYTES).await;
            anyhow::Ok(exit_code)
        }),
    };
    drop(log);
    exit_code
}

fn choose(arguments: &RunArguments) -> anyhow::Result<Way> {
    if let Some(proxy) = &arguments.socks5 {
        return Ok(Way::Proxy(proxy.clone()));
    }
    if let Some(file) = &arguments.config {
        return Ok(Way::Near(Box::new(near_end(file)?)));
    }
    let found = local::find("--socks5 or --config")?;
    let near_ends = found
        .into_iter()
        .filter(|found| found.status.role == "near");
    let mut proxies = near_ends.filter_map(|found| open_proxy(&found.status));
    match (proxies.next(), proxies.next()) {
        (Some(address), None) => Ok(Way::Proxy(Proxy::at(address))),
        (Some(_), Some(_)) => Err(UsageError(anyhow!(
            "several near ends with --socks5 run here; choose one with --socks5"
        ))
        .into()),
        (None, _) => Err(UsageError(anyhow!(
            "no near end here serves SOCKS5 without a password; start one with --socks5, or give --socks5 or --config"
        ))
        .into()),
    }
}

/// The address of a gateway's SOCKS5 listener, if it needs no password.
fn open_proxy(status: &Status) -> Option<Target> {
    let mut listeners = status.listeners.iter();
    let socks5 = |listener: &&Listening| listener.option == "socks5" && !listener.asks_password;
    let address = listeners.find(socks5)?.address;
    let own = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        ip => ip,
    };
    Some(SocketAddr::new(own, address.port()).into())
}

/// The configuration of a near end that serves this program only.
fn near_end(file: &Path) -> anyhow::Result<Config> {
    #[derive(Parser)]
    struct OfFile {
        #[command(flatten)]
        options: NearOptions,
    }
    let given = ["near", "--transparent", "1", "--config"].map(OsString::from);
    let arguments = given.into_iter().chain([file.into()]);
    let mut config = OfFile::try_parse_from(arguments)?.options.resolve()?;
    // Another process may have them.
    config.ways_in.clear();
    config.admin = None;
    Ok(config)
}

/// Serves the program's queries for names.
fn serve_names(sockets: &Sockets, services: &mut JoinSet<()>) -> anyhow::Result<Arc<VirtualNames>> {
    let names = Arc::new(VirtualNames::default());
    for socket in sockets.for_names()? {
        let serving = Arc::clone(&names).serve(socket);
        services.spawn(serving);
    }
    Ok(names)
}
