//! The admin listener: `/healthz`, `/readyz`, `/metrics` (Prometheus), `/status` and `/explain` (JSON).
//!
//! With a token, each request needs `Authorization: Bearer TOKEN`, `/healthz` included.
//!
//! Pages in a browser are not trusted. A page whose name was made to resolve to this address
//! (DNS rebinding) names itself in `Host`, so only names that belong to this listener are
//! answered; and no answer allows another origin to read it.
//!
//! A connection carries one request and has a bounded time. Of silent ones the oldest give way
//! ([`Acceptor`]).

mod host;
mod metrics;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, Request, State},
    http::{StatusCode, Version, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::{
    acceptor::{ACCEPT_PAUSE, Acceptor},
    config::{AdminConfig, AdminToken},
    descriptors::UNPROVEN_ADMIN_MAX,
    explain::{self, Asked},
    gateway::Gateway,
    status::Status,
};
use host::is_own;

/// A client has this long for the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection ends after this long, whatever it still does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections to the local socket at once.
const LOCAL_CONNECTIONS_MAX: usize = 16;

/// So many ended flows are explained, if no number is given.
const EXPLAINED: usize = 20;

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The pages, for people who open the listener's address.
const INDEX: &str = "\
refrain gateway

/healthz   200 while the gateway serves
/readyz    200 while a link to a peer is up, else 503
/status    links, connections and counters as JSON; `refrain status` shows them as tables
/explain   the last connections that ended, and why their data was not saved, as JSON: `refrain explain`
           /explain/NUMBER for those with this number, /explain/last for the last
/metrics   the same counters for Prometheus
";

/// What the handlers share.
#[derive(Clone)]
struct Admin {
    gateway: Arc<Gateway>,
    token: Option<Arc<AdminToken>>,
    hosts: Arc<[String]>,
}

/// Serves the admin pages until the task is aborted.
pub async fn serve(
    (listener, address): (TcpListener, SocketAddr),
    config: AdminConfig,
    gateway: Arc<Gateway>,
) {
    let descriptors = Arc::clone(&gateway.descriptors);
    let pages = pages(gateway, config.token, config.hosts);
    let acceptor = Acceptor::new(listener, address, &descriptors, UNPROVEN_ADMIN_MAX);
    loop {
        let (tcp, visit, ()) = acceptor.accept(|_| Some(())).await;
        let pages = pages.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = visit.displaced() => {}
                () = serve_connection(tcp, pages) => {}
            }
        });
    }
}

/// Serves the same on the gateway's local socket, which only its own user and root can open: no
/// token is needed.
pub async fn serve_local(listener: UnixListener, gateway: Arc<Gateway>) {
    let pages = pages(Arc::clone(&gateway), None, Vec::new()).merge(switches(gateway));
    let places = Arc::new(Semaphore::new(LOCAL_CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let pages = pages.clone();
                tokio::spawn(async move {
                    serve_connection(stream, pages).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "the local socket cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn pages(gateway: Arc<Gateway>, token: Option<AdminToken>, hosts: Vec<String>) -> Router {
    let admin = Admin {
        gateway,
        token: token.map(Arc::new),
        hosts: hosts.into(),
    };
    Router::new()
        .route("/", get(|| async { INDEX }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/explain", get(explain_last))
        .route("/explain/last", get(explain_last_one))
        .route("/explain/{flow}", get(explain_flow))
        .route("/metrics", get(metrics_page))
        .layer(middleware::from_fn_with_state(admin.clone(), authorize))
        .layer(middleware::from_fn_with_state(admin.clone(), check_host))
        .with_state(admin)
}

/// What changes the gateway: for its own user and root.
fn switches(gateway: Arc<Gateway>) -> Router {
    let set = |on: bool| {
        move |State(gateway): State<Arc<Gateway>>| async move {
            gateway.gate.bypass(on);
            let state = if on { "on" } else { "off" };
            tracing::info!("bypass {state}, by a command");
        }
    };
    Router::new()
        .route("/bypass/on", post(set(true)))
        .route("/bypass/off", post(set(false)))
        .with_state(gateway)
}

/// Serves one request of a connection.
async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin, pages: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages));
    // A client that breaks the protocol, or goes, concerns nobody else.
    let _ = timeout(CONNECTION_TIMEOUT, connection).await;
}

async fn check_host(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        // Before HTTP/1.1 there was no such field, and no browser sends that.
        (None, _) if request.version() < Version::HTTP_11 => Some("localhost"),
        _ => None,
    };
    let Some(named) = named else {
        return (
            StatusCode::BAD_REQUEST,
            "the request must have exactly one Host field\n",
        )
            .into_response();
    };
    let target = request
        .uri()
        .authority()
        .map(|authority| authority.as_str());
    if is_own(named, &admin.hosts) && target.is_none_or(|target| is_own(target, &admin.hosts)) {
        return next.run(request).await;
    }
    let text = "refrain: the Host of this request is not a name of this gateway; \
                give the gateway the name with --admin-host NAME\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
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
            let needed = "this page needs the header \"Authorization: Bearer TOKEN\", with the gateway's admin token\n";
            return (StatusCode::UNAUTHORIZED, challenge, needed).into_response();
        }
    }
    next.run(request).await
}

async fn readyz(State(admin): State<Admin>) -> Response {
    match admin.gateway.is_up() {
        true => "a link is up\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "no link is up\n").into_response(),
    }
}

async fn status(State(admin): State<Admin>) -> Result<Response, StatusCode> {
    render(admin, |status| Json(status).into_response()).await
}

async fn explain_last(State(admin): State<Admin>) -> Result<Response, StatusCode> {
    explanations(admin, Asked::Last(EXPLAINED)).await
}

async fn explain_last_one(State(admin): State<Admin>) -> Result<Response, StatusCode> {
    explanations(admin, Asked::Last(1)).await
}

async fn explain_flow(
    State(admin): State<Admin>,
    Path(number): Path<u64>,
) -> Result<Response, StatusCode> {
    explanations(admin, Asked::Number(number)).await
}

async fn explanations(admin: Admin, asked: Asked) -> Result<Response, StatusCode> {
    in_thread(move || Json(explain::explain(&admin.gateway, &asked)).into_response()).await
}

async fn metrics_page(State(admin): State<Admin>) -> Result<Response, StatusCode> {
    let content_type = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    render(admin, move |status| {
        (content_type, metrics::page(&status)).into_response()
    })
    .await
}

async fn render(
    admin: Admin,
    page: impl FnOnce(Status) -> Response + Send + 'static,
) -> Result<Response, StatusCode> {
    in_thread(move || page(Status::of(&admin.gateway))).await
}

/// Makes a page in a thread of its own: with thousands of flows it takes long, and the runtime's threads are those
/// that carry them.
async fn in_thread(
    page: impl FnOnce() -> Response + Send + 'static,
) -> Result<Response, StatusCode> {
    tokio::task::spawn_blocking(page)
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}
