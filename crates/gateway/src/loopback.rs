//! A pair on one machine, each gateway with a thread of its own: for demonstrations,
//! experiments and tests.
//!
//! Options are given as on a command line, so that what is shown is what users get.

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clap::{Args, Command, FromArgMatches};
use tokio::runtime::Runtime;

use crate::{
    arguments::{FarOptions, NearOptions},
    config::Config,
    gateway::Gateway,
    keys::{KeyError, PrivateKey},
    settings::ConfigError,
    start::{StartError, Tasks, start},
    status::Status,
};

/// Handshakes on one machine take much less.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// Both ends' keys, in a folder that goes with this.
pub struct Keys {
    folder: tempfile::TempDir,
    near: PrivateKey,
    far: PrivateKey,
}

/// A gateway that runs in threads of its own, until dropped.
pub struct Running {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    runtime: Option<Runtime>,
    // Ends with the runtime.
    _tasks: Tasks,
}

/// Why a gateway of a pair does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopbackError {
    /// Its options are wrong.
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    /// Its options are wrong together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Start(#[from] StartError),
    /// They did not find each other.
    #[error("the two gateways did not find each other: {0}")]
    Apart(String),
    /// The keys cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The keys' folder or the threads cannot be made.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Keys {
    /// A pair of new keys.
    pub fn new() -> Result<Keys, LoopbackError> {
        let keys = Keys {
            folder: tempfile::tempdir()?,
            near: PrivateKey::generate()?,
            far: PrivateKey::generate()?,
        };
        keys.near.write_new(&keys.folder.path().join("near.key"))?;
        keys.far.write_new(&keys.folder.path().join("far.key"))?;
        Ok(keys)
    }

    /// Starts a far gateway on a free port, with further options.
    pub fn far(&self, options: &[&str]) -> Result<Running, LoopbackError> {
        let config = self.far_config(options)?;
        run("refrain-far", config)
    }

    /// What [`far`](Self::far) starts a gateway with.
    pub(crate) fn far_config(&self, options: &[&str]) -> Result<Config, LoopbackError> {
        let (key, peer) = (self.path("far.key"), self.near.public().to_string());
        let given = [
            "--listen",
            "127.0.0.1:0",
            "--key",
            &key,
            "--peer-key",
            &peer,
        ];
        let options: FarOptions = parse(&[&given, options].concat())?;
        Ok(options.resolve()?)
    }

    /// Starts a near gateway that dials `peer`, with further options.
    pub fn near(&self, peer: SocketAddr, options: &[&str]) -> Result<Running, LoopbackError> {
        let (key, far) = (self.path("near.key"), self.far.public().to_string());
        let peer = peer.to_string();
        let given = ["--peer", &peer, "--key", &key, "--peer-key", &far];
        let options: NearOptions = parse(&[&given, options].concat())?;
        run("refrain-near", options.resolve()?)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

impl Running {
    /// Waits until a link to a peer is up.
    pub fn wait_until_up(&self) -> Result<(), LoopbackError> {
        let deadline = Instant::now() + UP_WITHIN;
        loop {
            let peers = Status::of(&self.gateway).peers;
            if peers.iter().any(|peer| peer.up) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let error = peers.into_iter().find_map(|peer| peer.last_error);
                return Err(LoopbackError::Apart(error.unwrap_or_default()));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn run(threads: &str, config: Config) -> Result<Running, LoopbackError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(1)
        .thread_name(threads)
        .enable_all()
        .build()?;
    let mut tasks = Tasks::default();
    let gateway = runtime.block_on(start(config, &mut tasks))?;
    Ok(Running {
        gateway,
        runtime: Some(runtime),
        _tasks: tasks,
    })
}

/// Options as if given on a command line; the environment's do not count here.
fn parse<O: Args + FromArgMatches>(options: &[&str]) -> Result<O, clap::Error> {
    let command = O::augment_args(Command::new("refrain").no_binary_name(true));
    let command = command.mut_args(|argument| argument.env(None::<&str>));
    O::from_arg_matches(&command.try_get_matches_from(options)?)
}
