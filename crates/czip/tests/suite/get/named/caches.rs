//! Caches that others wrote: skipped where they are not installed, unless
//! `REFRAIN_REQUIRE_PROGRAMS=1`.

use super::*;
use crate::get::real_servers::{Nginx, installed};

/// A cache in front of a server, as `docs/archives.md` shows it.
fn cache_of(origin: SocketAddr, nginx: &std::path::Path) -> Nginx {
    Nginx::start(
        nginx,
        "proxy_cache_path {folder}/cache keys_zone=chunks:1m use_temp_path=off;",
        &format!(
            "location /.czip/chunk/ {{
            proxy_pass http://{origin};
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_cache chunks;
            proxy_cache_lock on;
        }}"
        ),
    )
}

#[test]
fn a_chunk_leaves_its_server_once_for_all_clients_of_nginx_caches() {
    let Some(nginx) = installed("nginx") else {
        return;
    };
    let serving = Serving::start();
    serving.folder.with("a.czip", &shared(2));
    let caches: Vec<_> = (0..2).map(|_| cache_of(serving.address, &nginx)).collect();
    let mut options = options();
    options.edges = caches.iter().map(Nginx::url).collect();
    let url = serving.url("a.czip");
    let chunks = Chunks::of(&shared(2)).len();
    let mut headers = 0;
    for _ in 0..3 {
        let place = Place::new();
        let report = get_url(&place, &url, &options).expect("a file");
        place.assert_is(&release(2));
        assert_eq!(report.by_name.chunks, chunks);
        assert!(
            report.named.iter().all(|edge| edge.problem.is_none()),
            "{report:?}"
        );
        headers += report.header.requests + report.table.requests;
    }
    assert_eq!(serving.status().requests, headers + chunks);

    // One dies; what it had goes to the other, and from there to the server once more.
    let mut caches = caches.into_iter();
    drop(caches.next());
    let place = Place::new();
    let report = get_url(&place, &url, &options).expect("a file");
    place.assert_is(&release(2));
    assert_eq!(report.by_name.chunks, chunks);
    assert!(report.named[0].problem.is_some());
    assert!(report.named[1].problem.is_none());
}
