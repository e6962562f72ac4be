//! The demo's four parties: origin, far gateway, near gateway, client.

use std::{net::SocketAddr, sync::Arc, thread};

use anyhow::Context;
use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
};
use refrain_gateway::{
    loopback::{Keys, Running},
    status::Status,
};
use refrain_http_ranges::{Host, ProxyChoice, RemoteOptions};
use tokio::{net::TcpListener, runtime::Builder};

use super::content::Object;

/// Everything that runs.
pub(super) struct World {
    near: Running,
    _far: Running,
    client: Host,
}

impl World {
    /// Starts all parties on ports that are free.
    pub(super) fn start(objects: &[Object], effort: &str) -> anyhow::Result<World> {
        let target = serve_objects(objects)?;
        let keys = Keys::new()?;
        let far = keys.far(&["--effort", effort])?;
        let forward = format!("127.0.0.1:0={target}");
        let near = keys.near(
            far.gateway.listening()[0],
            &["--forward", &forward, "--effort", effort],
        )?;
        let forward = near.gateway.listening().first();
        let address = forward.context("the forward has no address")?;
        let options = RemoteOptions {
            connections: 1,
            proxy: ProxyChoice::Direct,
            ..RemoteOptions::default()
        };
        near.wait_until_up()?;
        Ok(World {
            client: Host::new(&format!("http://{address}/"), options)?,
            near,
            _far: far,
        })
    }

    /// Fetches an object through the pair.
    pub(super) fn fetch(&self, index: usize) -> anyhow::Result<Vec<u8>> {
        let body = self.client.get(&index.to_string(), u64::MAX)?;
        body.context("not found at the origin")
    }

    /// The near gateway's status.
    pub(super) fn status(&self) -> Status {
        Status::of(&self.near.gateway)
    }
}

/// Serves each object under its index, in a thread of its own, as long as the program runs.
fn serve_objects(objects: &[Object]) -> anyhow::Result<SocketAddr> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let bodies: Vec<Bytes> = objects
        .iter()
        .map(|object| object.bytes.clone().into())
        .collect();
    let pages = Router::new()
        .route("/{index}", axum::routing::get(serve_object))
        .with_state(Arc::new(bodies));
    let serve = move || {
        if let Err(error) = runtime.block_on(async { axum::serve(listener, pages).await }) {
            tracing::error!(%error, "the demo's origin failed");
        }
    };
    let origin = thread::Builder::new().name("demo-origin".to_owned());
    origin.spawn(serve)?;
    Ok(address)
}

async fn serve_object(
    State(bodies): State<Arc<Vec<Bytes>>>,
    Path(index): Path<usize>,
) -> Result<Bytes, StatusCode> {
    bodies.get(index).cloned().ok_or(StatusCode::NOT_FOUND)
}
