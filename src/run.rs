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
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Child, Command},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use refrain_gateway::{
    config::Config,
    gateway::Gateway,
    redirected::Redirected,
    start::{Tasks, start, take_redirected},
    status::{Listening, Status},
    target::Target,
    virtual_names::VirtualNames,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Resource, getrlimit, setrlimit},
    stdio::{dup2_stdin, dup2_stdout},
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use crate::{
    gateways::{self, LEAVE},
    in_words,
    local::{self, Found, Place},
    log::{LogForm, levels},
    progress, watchdog,
};
use children::Children;
use control::{Control, Go, Sockets};
use relay::Proxy;

/// The exit code of an error of `refrain run` itself: others are those of CMD. So do env, timeout and docker.
pub(crate) const FAILED: u8 = 125;

/// This program, even if its file was replaced meanwhile.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The log where no level is given: also the reasons of resets, which the program cannot know.
const LOGGED: &str = "warn,refrain_gateway::listeners=info,refrain::run=info";

/// How long connections may take to send their last bytes, once the program has ended.
const LAST_BYTES: Duration = Duration::from_secs(30);

/// How often connections that nobody has accepted yet are looked for then.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// What `refrain run` takes.
#[derive(clap::Args)]
pub(crate) struct RunArguments {
    /// Use the SOCKS5 proxy at this address, such as that of a near end
    ///
    /// If neither this nor --config is given, the near end that this user or root runs here is used. Other users can
    /// see a password given here while the command runs.
    #[arg(long, value_name = "[USER:PASSWORD@][HOST:]PORT")]
    socks5: Option<Proxy>,
    /// Start a near end only for this program, with the options of this file
    ///
    /// It has the keys, peers and limits of the file, but opens none of its listeners. Its caches begin empty.
    #[arg(long, value_name = "FILE", conflicts_with = "socks5")]
    config: Option<PathBuf>,
    /// Log to stderr at this level [default: warn, and refused connections]
    #[arg(long, value_name = "LEVEL", env = "REFRAIN_LOG", hide_env = true, value_parser = levels())]
    log: Option<LevelFilter>,
    #[command(flatten)]
    form: LogForm,
    /// The program to run, and its arguments
    #[arg(value_name = "CMD", required = true, num_args = 1.., trailing_var_arg = true)]
    command: Vec<OsString>,
    /// Become the program: the socket of the process that serves it.
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

/// An error of `refrain run` itself.
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(.0))]
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
    if inside::is_inside() {
        if arguments.socks5.is_some() || arguments.config.is_some() {
            let error = anyhow!(
                "inside another `refrain run`, --socks5 and --config cannot be used: without them, the program uses \
                 the link of the outer one"
            );
            return Err(RunFailed(error).into());
        }
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
    let peers = match &way {
        Way::Near(config) => config.peers.len(),
        Way::Proxy(_) => 1,
    };
    let exit_code = gateways::block_on(peers, async {
        if let Way::Proxy(proxy) = &way {
            proxy.check().await?;
        }
        // First: it is none of the program's children.
        if children::are_listed() {
            watchdog::start_with_timer();
        }
        let mut children = Children::adopt()?;
        let (program, sockets, go) = start_program(arguments)?;
        serve(way, sockets, go, &program, &mut children).await
    });
    drop(log);
    exit_code
}

/// Fails where no program can be run. Makes a network as for a program, and runs none.
pub(crate) fn test_network() -> anyhow::Result<()> {
    if inside::is_inside() {
        return Ok(());
    }
    let (mut process, ..) = start_process(&["true".into()])?;
    process.kill()?;
    process.wait()?;
    Ok(())
}

/// Starts the process that becomes the program. It waits for `Go`.
fn start_program(arguments: &RunArguments) -> anyhow::Result<(Child, Sockets, Go)> {
    let started = start_process(&arguments.command)?;
    if !progress::is_quiet() && may_be_found(&arguments.command[0]) {
        crate::stderr::warn(
            "only TCP to other machines uses the link: loopback stays inside, and UDP is refused except DNS",
        );
    }
    // The streams are the program's: their other ends are to notice when it closes them.
    dup2_stdin(File::open("/dev/null")?)?;
    dup2_stdout(OpenOptions::new().write(true).open("/dev/null")?)?;
    Ok(started)
}

/// Whether a program is at its path, or on PATH: if not, its error is enough.
fn may_be_found(program: &OsStr) -> bool {
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let folders = std::env::var_os("PATH").unwrap_or_default();
    is_path || std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

fn start_process(command: &[OsString]) -> anyhow::Result<(Child, Sockets, Go)> {
    let control = Control::listen()?;
    let mut process = Command::new(OWN_PROGRAM);
    process
        .arg0("refrain")
        .args(["run", "--inside"])
        .arg(control.path())
        .arg("--")
        .args(command);
    let program = process.spawn().context("cannot start a process")?;
    let (sockets, go) = control.receive(&program)?;
    Ok((program, sockets, go))
}

/// Serves the program's connections until it has ended, with all its children.
async fn serve(
    way: Way,
    sockets: Sockets,
    go: Go,
    program: &Child,
    children: &mut Children,
) -> anyhow::Result<u8> {
    let waiting = sockets.listener.try_clone()?;
    let (listener, for_names) = sockets.into_async()?;
    let mut tasks = Tasks::default();
    let names = Arc::new(VirtualNames::default());
    for socket in for_names {
        let serving = Arc::clone(&names).serve(socket);
        tasks.services.spawn(serving);
    }
    let (open, mut closed) = mpsc::channel(1);
    let redirected = Redirected { names, open };
    let mut gateway: Option<(Arc<Gateway>, Duration)> = None;
    match way {
        Way::Near(config) => {
            let drain = config.timeouts.drain;
            let started = start(*config, &mut tasks).await?;
            take_redirected(&started, listener, redirected, &mut tasks)?;
            gateway = Some((started, drain));
        }
        Way::Proxy(proxy) => {
            raise_limit_of_files();
            let serving = relay::serve(listener, proxy, redirected);
            tasks.listeners.spawn(serving);
        }
    }
    go.send()?;
    let exit_code = children.ended(program).await?;
    let last_bytes = async {
        // No further connection can come.
        while is_waiting(&waiting) {
            sleep(LOOK_INTERVAL).await;
        }
        tasks.listeners.shutdown().await;
        let _ = timeout(LAST_BYTES, closed.recv()).await;
        if let Some((gateway, drain)) = &gateway {
            gateway.drain(*drain).await;
            sleep(LEAVE).await;
        }
    };
    let reason = "its last bytes are not sent, or not answered";
    children.unless_signalled(reason, last_bytes).await;
    if let Some((gateway, _)) = gateway {
        tokio::task::spawn_blocking(move || gateway.settle()).await?;
    }
    Ok(exit_code)
}

/// Whether a connection waits to be accepted.
fn is_waiting(listener: &std::net::TcpListener) -> bool {
    let mut events = [PollFd::new(listener, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut events, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// A connection needs two. The program keeps its own limit.
fn raise_limit_of_files() {
    let mut limits = getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    let _ = setrlimit(Resource::Nofile, limits);
}

fn choose(arguments: &RunArguments) -> anyhow::Result<Way> {
    if let Some(proxy) = &arguments.socks5 {
        return Ok(Way::Proxy(proxy.clone()));
    }
    if let Some(file) = &arguments.config {
        return Ok(Way::Near(Box::new(near_end(file)?)));
    }
    let others = "or give --socks5 PORT or --config FILE";
    let mut found = local::find("--socks5 or --config (a near end needs --socks5 PORT)")?;
    // Any user could answer at an address.
    found.retain(|found| found.status.role == "near" && matches!(found.place, Place::Socket(_)));
    let proxies: Vec<_> = found
        .iter()
        .filter_map(|found| Some((found, proxy(&found.status)?)))
        .collect();
    match &proxies[..] {
        [(_, (address, false))] => Ok(Way::Proxy(Proxy::at(address.clone()))),
        [(_, (address, true))] => {
            bail!("the near end here asks for a password: give --socks5 USER:PASSWORD@{address}")
        }
        [] if found.is_empty() => {
            bail!(
                "no near end of this user or of root runs here: start one with --socks5 PORT, {others}"
            )
        }
        [] => bail!("the near end here serves no SOCKS5: add socks5 to its options, {others}"),
        several => {
            let mut text = "several near ends run here; choose one:".to_owned();
            for (Found { status, .. }, (address, _)) in several {
                let peers = status.peers.iter().map(|peer| peer.label());
                let peers: Vec<_> = peers.collect();
                text += &format!("\n  --socks5 {address}  (peer {})", peers.join(", "));
            }
            bail!(text)
        }
    }
}

/// The address of a gateway's SOCKS5 listener, and whether it asks for a password.
fn proxy(status: &Status) -> Option<(Target, bool)> {
    let mut listeners = status.listeners.iter();
    let is_socks5 = |listener: &&Listening| listener.option == "socks5";
    let listener = listeners.find(is_socks5)?;
    let own = match listener.address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        ip => ip,
    };
    let address = SocketAddr::new(own, listener.address.port()).into();
    Some((address, listener.asks_password))
}

/// The configuration of a near end that serves this program only.
fn near_end(file: &Path) -> anyhow::Result<Config> {
    let config = gateways::near_end_of(file, &["--transparent", "1"]);
    let mut config = config.with_context(|| file.display().to_string())?;
    // Another process may have its listeners. Clients are only those inside.
    config.ways_in.clear();
    config.admin = None;
    config.access = Default::default();
    Ok(config)
}
