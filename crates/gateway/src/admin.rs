//! The admin listener: `/healthz`, `/metrics` (Prometheus), `/status` (JSON).
//!
//! With a token, each request needs `Authorization: Bearer TOKEN`, `/healthz` included.

mod metrics;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::{TcpListener, UnixListener};

use crate::{
    config::{AdminConfig, AdminToken},
    gateway::Gateway,
    status::Status,
};

/// What the handlers share.
#[derive(Clone)]
struct Admin {
    gateway: Arc<dyn Gateway>,
    token: Option<Arc<AdminToken>>,
}

/// Serves the admin page until the task is aborted.
pub async fn serve(listener: TcpListener, config: AdminConfig, gateway: Arc<dyn Gateway>) {
    let admin = Admin {
        gateway,
        token: config.token.map(Arc::new),
    };
    if let Err(error) = axum::serve(listener, pages(admin)).await {
        tracing::error!(%error, "the admin listener failed");
    }
}

/// Serves the same on the gateway's local socket, which only its own user and root can open: no
/// token is needed.
pub async fn serve_local(listener: UnixListener, gateway: Arc<dyn Gateway>) {
    let admin = Admin {
        gateway,
        token: None,
    };
    if let Err(error) = axum::serve(listener, pages(admin)).await {
        tracing::error!(%error, "the local socket failed");
    }
}

fn pages(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/status", get(status))
        .route("/metrics", get(metrics_page))
        .layer(middleware::from_fn_with_state(admin.clone(), authorize))
        .with_state(admin)
}

async fn authorize(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    if let Some(token) = &admin.token {
        let presented = request
            .headers()
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        if !presented.is_some_and(|presented| token.matches(presented)) {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            return (StatusCode::UNAUTHORIZED, challenge, "a token is needed\n").into_response();
        }
    }
    next.run(request).await
}

async fn status(State(admin): State<Admin>) -> Json<Status> {
    Json(Status::of(&*admin.gateway))
}

async fn metrics_page(State(admin): State<Admin>) -> Response {
    let page = metrics::page(&Status::of(&*admin.gateway));
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response()
}
