//! The demo's four parties, each with a runtime, and so threads, of its own.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
};
use clap::{CommandFactory, FromArgMatches, Parser};
use refrain_gateway::{
    far::Far,
    keys::PrivateKey,
    near::Near,
    options::{FarOptions, NearOptions},
    status::Status,
};
use tokio::{net::TcpListener, runtime::Runtime, task::JoinSet};

use super::{content::Object, cpu};

const NEAR_THREADS: &str = "demo-near";
const FAR_THREADS: &str = "demo-far";

/// Everything that runs.
pub struct World {
    near: Arc<Near>,
    client: ureq::Agent,
    address: SocketAddr,
    // Dropped last: the tasks of all parties.
    _tasks: JoinSet<()>,
    runtimes: Vec<Runtime>,
}

#[derive(Parser)]
struct NearCommand {
    #[command(flatten)]
    options: NearOptions,
}

#[derive(Parser)]
struct FarCommand {
    #[command(flatten)]
    options: FarOptions,
}

impl World {
    /// Starts all parties on ports that are free.
    pub fn start(objects: &[Object], effort_max: bool) -> anyhow::Result<World> {
        let keys = KeyFolder::new()?;
        let mut tasks = JoinSet::new();
        let origin_runtime = runtime("demo-origin", 1)?;
        let far_runtime = runtime(FAR_THREADS, 1)?;
        let near_runtime = runtime(NEAR_THREADS, 1)?;

        let origin = origin_runtime.block_on(serve_objects(objects.to_vec(), &mut tasks))?;
        let effort = if effort_max { "max" } else { "auto" };
        let far = far_runtime.block_on(async {
            let options: FarCommand = parse(&[
                "far",
                "--listen",
                "127.0.0.1:0",
                "--key",
                &keys.far,
                "--peer-key",
                &keys.near_public,
                "--effort",
                effort,
            ])?;
            Ok::<_, anyhow::Error>(Far::start(options.options.resolve()?, &mut tasks).await?)
        })?;
        let (peer, forward) = (far.address().to_string(), format!("127.0.0.1:0={origin}"));
        let near = near_runtime.block_on(async {
            let options: NearCommand = parse(&[
                "near",
                "--peer",
                &peer,
                "--key",
                &keys.near,
                "--peer-key",
                &keys.far_public,
                "--forward",
                &forward,
                "--effort",
                effort,
            ])?;
            Ok::<_, anyhow::Error>(Near::start(options.options.resolve()?, &mut tasks).await?)
        })?;
        let address = *near
            .addresses()
            .first()
            .context("a forward has an address")?;
        let client = ureq::Agent::config_builder()
            .timeout_global(None)
            .build()
            .into();
        let world = World {
            near,
            client,
            address,
            _tasks: tasks,
            runtimes: vec![near_runtime, far_runtime, origin_runtime],
        };
        world.wait_until_up()?;
        Ok(world)
    }

    /// Fetches an object through the pair.
    pub fn fetch(&self, index: usize) -> anyhow::Result<Vec<u8>> {
        let mut response = self
            .client
            .get(format!("http://{}/{index}", self.address))
            .call()?;
        let body = response.body_mut().with_config().limit(u64::MAX);
        Ok(body.read_to_vec()?)
    }

    /// The near gateway's status.
    pub fn status(&self) -> Status {
        Status::of(&*self.near)
    }

    /// CPU seconds of the near and the far gateway's threads.
    pub fn cpu_seconds(&self) -> Option<(f64, f64)> {
        Some((
            cpu::seconds_of_threads(NEAR_THREADS)?,
            cpu::seconds_of_threads(FAR_THREADS)?,
        ))
    }

    fn wait_until_up(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let status = self.status();
            if status.peers.iter().any(|peer| peer.up) {
                return Ok(());
            }
            let error = status.peers.into_iter().find_map(|peer| peer.last_error);
            ensure!(
                Instant::now() < deadline,
                "the two gateways did not find each other: {}",
                error.unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for runtime in self.runtimes.drain(..) {
            runtime.shutdown_background();
        }
    }
}

/// Both ends' keys, in a folder that goes when they are read.
struct KeyFolder {
    _folder: tempfile::TempDir,
    near: String,
    near_public: String,
    far: String,
    far_public: String,
}

impl KeyFolder {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for the demo's keys")?;
        let make = |name: &str| {
            let path = folder.path().join(name);
            let key = PrivateKey::generate()?;
            key.write_new(&path)?;
            Ok::<_, anyhow::Error>((path.display().to_string(), key.public().to_string()))
        };
        let ((near, near_public), (far, far_public)) = (make("near.key")?, make("far.key")?);
        Ok(Self {
            near,
            near_public,
            far,
            far_public,
            _folder: folder,
        })
    }
}

/// Options as if given on a command line; the environment's do not count here.
fn parse<C: CommandFactory + FromArgMatches>(arguments: &[&str]) -> anyhow::Result<C> {
    let command = C::command().mut_args(|argument| argument.env(None::<&str>));
    Ok(C::from_arg_matches(
        &command.try_get_matches_from(arguments)?,
    )?)
}

fn runtime(name: &str, threads: usize) -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()?)
}

async fn serve_objects(
    objects: Vec<Object>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let bodies: Arc<Vec<axum::body::Bytes>> = Arc::new(
        objects
            .into_iter()
            .map(|object| object.bytes.into())
            .collect(),
    );
    let pages = Router::new()
        .route("/{index}", axum::routing::get(serve_object))
        .with_state(bodies);
    tasks.spawn(async move {
        if let Err(error) = axum::serve(listener, pages).await {
            tracing::error!(%error, "the demo's origin failed");
        }
    });
    Ok(address)
}

async fn serve_object(
    State(bodies): State<Arc<Vec<axum::body::Bytes>>>,
    Path(index): Path<usize>,
) -> Result<axum::body::Bytes, StatusCode> {
    bodies.get(index).cloned().ok_or(StatusCode::NOT_FOUND)
}
