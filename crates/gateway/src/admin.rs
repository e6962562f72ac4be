//! The admin listener: `/healthz`, `/metrics` (Prometheus), `/status` (JSON).
//!
//! With a token, each request needs `Authorization: Bearer TOKEN`, `/healthz` included.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use metrics::{Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;

use crate::{
    config::{AdminConfig, AdminToken},
    gateway::Gateway,
    status::{Direction, Peer, Status},
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
    let pages = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/status", get(status))
        .route("/metrics", get(metrics_page))
        .layer(middleware::from_fn_with_state(admin.clone(), authorize))
        .with_state(admin);
    if let Err(error) = axum::serve(listener, pages).await {
        tracing::error!(%error, "the admin listener failed");
    }
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
    let page = render(&Status::of(&*admin.gateway));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response()
}

/// The status as Prometheus reads it. The engine has the counts; a recorder made for each
/// page turns them into text, so that a link that ended leaves no stale series.
fn render(status: &Status) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let gauge = |name: &'static str, labels: Vec<Label>, value: f64| {
        recorder
            .register_gauge(&Key::from_parts(name, labels), &METADATA)
            .set(value);
    };
    let counter = |name: &'static str, labels: Vec<Label>, value: u64| {
        recorder
            .register_counter(&Key::from_parts(name, labels), &METADATA)
            .absolute(value);
    };
    gauge(
        "refrain_memory_bound_bytes",
        vec![],
        status.memory.bound_bytes as f64,
    );
    gauge(
        "refrain_memory_allocated_bytes",
        vec![],
        status.memory.allocated_bytes as f64,
    );
    gauge("refrain_uptime_seconds", vec![], status.uptime_s);
    let mut peers: BTreeMap<String, Peer> = BTreeMap::new();
    for peer in &status.peers {
        let name = peer.name.clone().unwrap_or_else(|| peer.key.clone());
        match peers.entry(name) {
            Entry::Vacant(place) => {
                place.insert(peer.clone());
            }
            Entry::Occupied(mut sum) => sum.get_mut().add(peer),
        }
    }
    for (name, peer) in &peers {
        let labels = || vec![Label::new("peer", name.clone())];
        gauge("refrain_peer_up", labels(), f64::from(u8::from(peer.up)));
        gauge("refrain_lanes", labels(), peer.lanes as f64);
        gauge("refrain_lanes_held_up", labels(), peer.lanes_held_up as f64);
        gauge("refrain_flows_open", labels(), peer.flows_open as f64);
        gauge("refrain_holes", labels(), peer.holes as f64);
        counter("refrain_flows_opened_total", labels(), peer.flows_opened);
        counter("refrain_flows_reset_total", labels(), peer.flows_reset);
        counter("refrain_lanes_lost_total", labels(), peer.lanes_lost);
        counter("refrain_holes_made_total", labels(), peer.holes_made);
        if let Some(time) = peer.round_trip_ms {
            gauge("refrain_round_trip_seconds", labels(), time / 1e3);
        }
        if let Some(effort) = &peer.effort {
            gauge(
                "refrain_effort_period_bytes",
                labels(),
                effort.period_bytes.into(),
            );
            gauge(
                "refrain_effort_zstd_level",
                labels(),
                effort.zstd_level.into(),
            );
        }
        for (direction, counts) in [("sent", &peer.sent), ("received", &peer.received)] {
            let labels = || {
                vec![
                    Label::new("peer", name.clone()),
                    Label::new("direction", direction),
                ]
            };
            let Direction {
                app_bytes,
                link_bytes,
                blocks,
                bypassed_blocks,
                ..
            } = *counts;
            counter("refrain_app_bytes_total", labels(), app_bytes);
            counter("refrain_link_bytes_total", labels(), link_bytes);
            counter("refrain_blocks_total", labels(), blocks);
            counter("refrain_bypassed_blocks_total", labels(), bypassed_blocks);
            // Savings of a moment may be negative: a gauge.
            gauge(
                "refrain_matching_saved_bytes",
                labels(),
                counts.matching_saved_bytes as f64,
            );
            gauge(
                "refrain_zstd_saved_bytes",
                labels(),
                counts.zstd_saved_bytes as f64,
            );
            gauge("refrain_cache_bytes", labels(), counts.cache_bytes as f64);
            gauge(
                "refrain_cache_filled_bytes",
                labels(),
                counts.cache_filled_bytes as f64,
            );
        }
    }
    recorder.handle().render()
}

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
