//! The demo's web server. It serves each object under its index, and compressed under `zstd/` and its index.

use std::{net::SocketAddr, sync::Arc, thread};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use tokio::{net::TcpListener, runtime::Builder, task::spawn_blocking};

use super::content::Object;

/// zstd's level for objects that are compressed one by one.
pub(super) const ZSTD_LEVEL: i32 = 3;

/// All objects, by index.
type Bodies = Arc<Vec<Bytes>>;

/// Serves the objects in a thread, as long as the program runs.
pub(super) fn serve(objects: &[Object]) -> anyhow::Result<SocketAddr> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let bodies = objects
        .iter()
        .map(|object| Bytes::from(object.bytes.clone()));
    let bodies: Bodies = Arc::new(bodies.collect());
    let pages = Router::new()
        .route("/{index}", get(serve_plain))
        .route("/zstd/{index}", get(serve_zstd))
        .with_state(bodies);
    let serve = move || {
        if let Err(error) = runtime.block_on(async { axum::serve(listener, pages).await }) {
            tracing::error!(%error, "the demo's origin failed");
        }
    };
    let origin = thread::Builder::new().name("demo-origin".to_owned());
    origin.spawn(serve)?;
    Ok(address)
}

async fn serve_plain(
    State(bodies): State<Bodies>,
    Path(index): Path<usize>,
) -> Result<Bytes, StatusCode> {
    bodies.get(index).cloned().ok_or(StatusCode::NOT_FOUND)
}

/// Compresses for each request, since a server that sends zstd spends this time too.
async fn serve_zstd(
    State(bodies): State<Bodies>,
    Path(index): Path<usize>,
) -> Result<Vec<u8>, StatusCode> {
    let body = bodies.get(index).cloned().ok_or(StatusCode::NOT_FOUND)?;
    let compressed = spawn_blocking(move || zstd::bulk::compress(&body, ZSTD_LEVEL)).await;
    match compressed {
        Ok(Ok(frame)) => Ok(frame),
        Ok(Err(_)) | Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
