//! `refrain near` and `refrain far`: run until told to stop.
//!
//! SIGTERM and Ctrl-C drain: no new flows, open ones go on for the drain time-out; a second
//! signal stops at once. SIGHUP reloads the options that need no restart, and names what else
//! changed; open flows go on.

use std::{
    ffi::OsString,
    future::Future,
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::Parser;
use refrain_gateway::{
    acceptor, admin,
    arguments::{FarOptions, Near, NearOptions, Options, Program},
    config::Config,
    gateway::Gateway,
    local_socket::{self, SocketFile},
    memory::smaller_caches,
    options::Role,
    settings::ConfigError,
    start::{Tasks, start},
};

use tokio::task::JoinSet;

use crate::{
    bounded, dry_run,
    interrupt::{HANGUP, Signals},
    log::LogForm,
    watchdog,
};

/// How long lanes may take to say that the gateway leaves.
pub(crate) const LEAVE: Duration = Duration::from_millis(200);

/// The variable by which tokio's programs are given a number of threads.
const WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// What `refrain near` and `refrain far` take.
#[derive(clap::Args)]
pub(crate) struct GatewayArguments<O: clap::Args> {
    #[command(flatten)]
    options: O,
    /// Check the configuration, start nothing
    ///
    /// Reads the configuration and all files that it names, and prints what the gateway would do.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    log: LogForm,
}

impl<O: clap::Args> GatewayArguments<O> {
    /// Whether it writes to standard output.
    pub(crate) fn prints(&self) -> bool {
        self.dry_run
    }
}

/// What `refrain near` takes.
#[derive(clap::Args)]
pub(crate) struct NearArguments {
    #[command(flatten)]
    run: GatewayArguments<NearOptions>,
    /// Exit with code 3 if no link comes up
    ///
    /// The link must be up within TIME of the start. If no TIME is given, within --connect-timeout.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        value_parser = bounded::time_from(Duration::ZERO)
    )]
    require_peer: Option<Option<Duration>>,
}

impl NearArguments {
    /// Whether it writes to standard output.
    pub(crate) fn prints(&self) -> bool {
        self.run.prints()
    }
}

pub(crate) fn near(arguments: &NearArguments) -> anyhow::Result<()> {
    run(&arguments.run, arguments.require_peer)
}

pub(crate) fn far(arguments: &GatewayArguments<FarOptions>) -> anyhow::Result<()> {
    run(arguments, None)
}

fn run<P: Program>(
    arguments: &GatewayArguments<Options<P>>,
    require_peer: Option<Option<Duration>>,
) -> anyhow::Result<()> {
    let options = &arguments.options;
    let started = options.resolve()?;
    let log = arguments.log.begin(started.log);
    if !arguments.dry_run {
        tracing::info!(
            "refrain {} {}{}, using SIMD path {}",
            started.role.name(),
            env!("CARGO_PKG_VERSION"),
            options
                .file()
                .map_or_else(String::new, |file| format!(" with {}", file.display())),
            started.matching.backend.instruction_set()
        );
    }
    crate::warn_of_unread_variables(P::ROLE);
    warn_of(&started);
    if arguments.dry_run {
        let mut report = Vec::new();
        let result = dry_run::run(&started, &options.given()?, &mut report);
        // Writes the warnings, so that the report is last.
        drop(log);
        io::stdout().write_all(&report)?;
        return result;
    }
    let ended = block_on(started.peers.len(), async {
        let mut tasks = Tasks::default();
        let gateway = start(started.clone(), &mut tasks).await?;
        let reload = || {
            let new = options.resolve()?;
            gateway.reload(&new);
            Ok(new)
        };
        let within = require_peer.map(|given| given.unwrap_or(started.timeouts.connect));
        let missing = async {
            match within {
                Some(within) => gateway.wait_for_peer(within).await,
                None => Ok(()),
            }
        };
        let result = tokio::select! {
            served = serve(&gateway, &started, options.file(), tasks, reload) => served,
            Err(error) = missing => Err(error.into()),
        };
        tokio::task::spawn_blocking(move || gateway.settle()).await?;
        result
    });
    if ended.is_ok() {
        tracing::info!("stopped");
    }
    ended
}

/// The configuration of a near end's file, and of these flags, which override it.
pub(crate) fn near_end_of(file: &Path, flags: &[&str]) -> anyhow::Result<Config> {
    config_of::<Near>(file, flags)
}

/// The same of a file of either end.
pub(crate) fn config_of<P: Program>(file: &Path, flags: &[&str]) -> anyhow::Result<Config> {
    Ok(options_of::<P>(file, flags)?.resolve()?)
}

/// The options of a file, and of these flags.
pub(crate) fn options_of<P: Program>(file: &Path, flags: &[&str]) -> anyhow::Result<Options<P>> {
    #[derive(Parser)]
    struct OfFile<O: clap::Args> {
        #[command(flatten)]
        options: O,
    }
    let flags = [P::ROLE.name()].into_iter().chain(flags.iter().copied());
    let words = flags.map(OsString::from);
    let words = words.chain(["--config".into(), file.into()]);
    Ok(OfFile::<Options<P>>::try_parse_from(words)?.options)
}

/// Logs what is allowed, and hardly meant.
fn warn_of(config: &Config) {
    for warning in config.warnings().into_iter().chain(smaller_caches(config)) {
        tracing::warn!("{warning}");
    }
}

/// Runs a gateway with so many peers. A link's engine is behind one lock, so threads that no link has to itself would only
/// hand it to each other (`docs/decisions/0047-a-thread-for-each-link.md`).
pub(crate) fn block_on<T>(
    peers: usize,
    gateway: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if std::env::var_os(WORKER_THREADS).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        builder.worker_threads(peers.clamp(1, processors));
    }
    let runtime = builder.enable_all().build()?;
    let result = runtime.block_on(gateway);
    // Connections that are still open end with the process.
    runtime.shutdown_background();
    result
}

async fn serve(
    gateway: &Arc<Gateway>,
    started: &Config,
    file: Option<&Path>,
    mut tasks: Tasks,
    reload: impl Fn() -> Result<Config, ConfigError>,
) -> anyhow::Result<()> {
    // First, so that it is there once the admin page answers.
    let _socket = serve_local(&mut tasks, started.role, gateway).await;
    if let Some(config) = started.admin.clone() {
        let listener = acceptor::bind(config.listen, "admin")?;
        tracing::info!(kind = "admin", address = %listener.1, "listening");
        let serving = admin::serve(listener, config, Arc::clone(gateway));
        tasks.services.spawn(serving);
    }
    // Dropped before the listeners end, which make no progress then.
    let mut watchdog = JoinSet::new();
    if let Some(progress) = gateway.progress() {
        watchdog.spawn(watchdog::keep(progress));
    }
    let mut signals = Signals::with_hangup(true).context("cannot listen for signals")?;
    while signals.next().await == HANGUP {
        match reload() {
            Ok(new) => {
                let unapplied = started.readings.needs_restart(&new.readings, started.role);
                tracing::info!("{}", reloaded(file, started.role));
                warn_of(&new);
                if !unapplied.is_empty() {
                    let keys: Vec<_> = unapplied.iter().map(|spec| spec.key).collect();
                    tracing::warn!(
                        "changed, but applied only after a restart: {}",
                        keys.join(", ")
                    );
                }
                for rule in &new.intercept {
                    if !started.has_listener_of(rule) {
                        tracing::warn!("intercepted only after a restart: {rule}");
                    }
                }
            }
            Err(error) => tracing::error!("kept the old configuration: {error}"),
        }
    }
    tracing::info!("draining: no new connections; a second signal stops at once");
    let draining = async {
        gateway.stop_interception().await;
        watchdog.shutdown().await;
        tasks.listeners.abort_all();
        gateway.drain(started.timeouts.drain).await
    };
    tokio::select! {
        left = draining => {
            if left > 0 {
                tracing::warn!("{left} connections were still open and are reset");
            }
        }
        () = async { while signals.next().await == HANGUP {} } => {}
    }
    tokio::time::sleep(LEAVE).await;
    Ok(())
}

/// What SIGHUP has reloaded, for the log. Without a configuration file, only the files that options name can have
/// changed.
fn reloaded(file: Option<&Path>, role: Role) -> String {
    match (file, role) {
        (Some(file), _) => format!(
            "reloaded {}: all options that need no restart",
            file.display()
        ),
        (None, Role::Far) => {
            "no --config file: reloaded only the files that options name, such as that of --peer-key".to_owned()
        }
        (None, _) => {
            "no --config file: reloaded only the files that options name, such as that of --proxy-auth"
                .to_owned()
        }
    }
}

/// Serves `refrain status` on this machine. A gateway runs as well without.
async fn serve_local(tasks: &mut Tasks, role: Role, gateway: &Arc<Gateway>) -> Option<SocketFile> {
    match local_socket::bind(role.name()).await {
        Ok((listener, file)) => {
            let serving = admin::serve_local(listener, Arc::clone(gateway));
            tasks.services.spawn(serving);
            tracing::debug!(path = %file.path().display(), "serving the local socket");
            Some(file)
        }
        Err(error) => {
            tracing::info!(
                "no local socket: {error} (set XDG_RUNTIME_DIR to a directory of this user; without it, `refrain status` \
                 needs --admin, and `refrain run` needs --socks5)"
            );
            None
        }
    }
}
