//! HTTP/2: clients of a service and of opened names, and sites, each by either version.

mod answers;
mod floods;
mod grpc;
mod h2spec;
mod malformed;
pub(super) mod peers;
mod versions;
mod websocket;

use std::{
    future::poll_fn,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use self::peers::{Client, Seen, content, runtime, send, serve, soon, tls};
use crate::common::{
    PATIENCE,
    addresses::free_address,
    certificate::certificate,
    digest, eventually,
    nginx::{Nginx, assert_kept},
    programs::{are_installed, run_ok},
    site::Pair,
};
use crate::served;
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Runtime,
};

/// TLS in front of a server of HTTP/1.1 that has none, by socat.
struct TlsFront {
    socat: Child,
    address: SocketAddr,
}

impl TlsFront {
    /// With the certificate in this folder.
    fn start(folder: &Path, server: SocketAddr) -> TlsFront {
        let address = free_address();
        let listen = format!(
            "OPENSSL-LISTEN:{},bind=127.0.0.1,fork,reuseaddr,verify=0,cert=tls.crt,key=tls.key",
            address.port()
        );
        let socat = Command::new("socat")
            .args([listen, format!("TCP:{server}")])
            .current_dir(folder)
            .spawn()
            .expect("socat starts");
        eventually("socat listens", || TcpStream::connect(address).ok());
        TlsFront { socat, address }
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        let _ = self.socat.kill();
        let _ = self.socat.wait();
    }
}

/// A site, and a near end that serves it by its own name.
struct World {
    folder: tempfile::TempDir,
    runtime: Runtime,
    near: SocketAddr,
    site: SocketAddr,
    pair: Pair,
    seen: Seen,
}

impl World {
    /// Starts it with a site that speaks these protocols, if openssl is there.
    fn start(protocols: &[&str]) -> Option<World> {
        if !are_installed(&["openssl"]) {
            return None;
        }
        let (folder, runtime) = (certificate(), runtime());
        let (site, seen) = serve(&runtime, folder.path(), protocols);
        let (pair, near) = served("https", folder.path(), site.port());
        Some(World {
            folder,
            runtime,
            near,
            site,
            pair,
            seen,
        })
    }

    /// What comes back, in lower case, if a client of HTTP/1.1 says this up to the end of the connection. `Host` is put
    /// behind the first line of each request, and an empty line behind the last.
    async fn answers_of_http1(&self, requests: &[&str]) -> String {
        let mut stream = tls(self.near, self.folder.path(), &["http/1.1"]).await;
        for request in requests {
            let (line, rest) = request.split_once("\r\n").unwrap_or((request, ""));
            let port = self.near.port();
            let gap = if rest.is_empty() { "" } else { "\r\n" };
            let text = format!("{line} HTTP/1.1\r\nHost: localhost:{port}\r\n{rest}{gap}\r\n");
            stream
                .write_all(text.as_bytes())
                .await
                .expect("a connection");
        }
        let mut answers = Vec::new();
        let _ = soon("an end", stream.read_to_end(&mut answers)).await;
        String::from_utf8_lossy(&answers).to_ascii_lowercase()
    }

    async fn client(&self) -> Client {
        Client::connect(self.near, self.folder.path()).await
    }
}

#[test]
fn a_request_reaches_the_site_as_it_was_meant() {
    let Some(world) = World::start(&["h2"]) else {
        return;
    };
    world.runtime.block_on(async {
        let client = world.client().await;
        let request = client.request("GET", "/seen?a=b");
        let request = request
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("te", "trailers")
            .header("authorization", "Bearer x")
            .header("accept-encoding", "gzip");
        let answer = client.ask(request.body(()).expect("a request"), None).await;
        let text = String::from_utf8(answer.expect("an answer").body).expect("text");
        let mut lines: Vec<&str> = text.lines().collect();
        let first = lines.remove(0);
        assert!(first.starts_with("GET https://localhost:"), "{first}");
        assert!(first.ends_with("/seen?a=b"), "{first}");
        lines.sort_unstable();
        let expected = [
            "accept-encoding: identity",
            "authorization: Bearer x",
            "cookie: a=1; b=2",
            "te: trailers",
            "via: 1.1 refrain",
        ];
        assert_eq!(lines, expected);
        // Another name than the site's.
        let request = http::Request::builder().uri("https://other.example/seen");
        let answer = client.ask(request.body(()).expect("a request"), None).await;
        assert_eq!(answer.expect("an answer").head.status, 421);
        let head = client.request("HEAD", "/1000").body(()).expect("a request");
        let answer = client.ask(head, None).await.expect("an answer");
        assert_eq!(
            (
                answer.head.headers["content-length"].as_bytes(),
                answer.body
            ),
            (&b"1000"[..], vec![])
        );
    });
}

#[test]
fn bodies_and_trailers_pass_both_ways_at_once() {
    let Some(world) = World::start(&["h2"]) else {
        return;
    };
    world.runtime.block_on(async {
        let client = world.client().await;
        let body = content(3_000_000);
        let post = client.request("POST", "/echo").body(()).expect("a request");
        let answer = client
            .ask(post, Some(body.clone().into()))
            .await
            .expect("an answer");
        assert_eq!(digest(&answer.body), digest(&body));
        assert_eq!(answer.trailers.expect("trailers")["x-bytes"], "3000000");

        // One message after the other, each after the answer to the one before; then trailers.
        let post = client.request("POST", "/echo").header("te", "trailers");
        let mut sender = client.sender.clone();
        let (response, mut stream) = sender
            .send_request(post.body(()).expect("a request"), false)
            .expect("a stream");
        let mut echo = soon("a head", response).await.expect("a head").into_body();
        for round in 0..20 {
            let message = Bytes::from(format!("message {round}"));
            send(&mut stream, message.clone()).await.expect("a stream");
            let mut came = Vec::new();
            while came.len() < message.len() {
                let data = soon("an echo", echo.data())
                    .await
                    .expect("more")
                    .expect("data");
                echo.flow_control()
                    .release_capacity(data.len())
                    .expect("capacity");
                came.extend(data);
            }
            assert_eq!(came, message);
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-own", "1".parse().expect("a value"));
        stream.send_trailers(trailers).expect("a stream");
        assert!(soon("the end", echo.data()).await.is_none());
        let trailers = soon("trailers", echo.trailers())
            .await
            .expect("an end")
            .expect("trailers");
        assert_eq!(
            (&trailers["x-own"], &trailers["x-bytes"]),
            (&"1".parse().unwrap(), &"190".parse().unwrap())
        );

        let answer = client.get("/only-trailers").await.expect("an answer");
        assert_eq!(answer.head.headers["grpc-status"], "5");
        assert!(answer.is_only_head);
    });
}

#[test]
fn an_answer_before_the_end_of_its_request_arrives_and_floods_of_interim_ones_do_not() {
    let Some(world) = World::start(&["h2"]) else {
        return;
    };
    world.runtime.block_on(async {
        let client = world.client().await;
        for _ in 0..10 {
            let post = client
                .request("POST", "/early")
                .body(())
                .expect("a request");
            let body = content(3_000_000).into();
            let answer = client.ask(post, Some(body)).await.expect("an answer");
            assert_eq!(answer.head.status, 413);
            assert_eq!(answer.body, b"too large");
        }
        let flood = client.get("/flood").await;
        let is_refused = |answer: &peers::Answer| answer.head.status == 502;
        assert!(flood.as_ref().is_err() || flood.as_ref().is_ok_and(is_refused));
        assert_eq!(
            client
                .get("/only-trailers")
                .await
                .expect("an answer")
                .head
                .headers["grpc-status"],
            "5"
        );
    });
}

#[test]
fn requests_of_a_client_share_a_connection_to_the_site_and_none_holds_up_another() {
    let Some(world) = World::start(&["h2", "http/1.1"]) else {
        return;
    };
    world.runtime.block_on(async {
        let client = world.client().await;
        // Nobody reads these.
        let mut unread = Vec::new();
        for path in [&["/wait"][..], &["/5000000"; 8]].concat() {
            let request = client.request("GET", path).body(()).expect("a request");
            let mut sender = client.sender.clone().ready().await.expect("a connection");
            let (response, _) = sender.send_request(request, true).expect("a stream");
            unread.push(soon("a head", response).await.expect("a head"));
        }
        let many = (0..60).map(|round| client.get(if round % 2 == 0 { "/30000" } else { "/seen" }));
        for (round, answer) in futures_of(many).await.into_iter().enumerate() {
            let answer = answer.expect("an answer");
            if round % 2 == 0 {
                assert_eq!(digest(&answer.body), digest(&content(30_000)));
            }
        }
        assert_eq!(world.seen.connections(), 1);
        // Those that are read after all.
        for response in unread.drain(1..) {
            let mut body = response.into_body();
            let mut all = Vec::new();
            while let Some(data) = soon("data", body.data()).await {
                let data = data.expect("data");
                body.flow_control()
                    .release_capacity(data.len())
                    .expect("capacity");
                all.extend(data);
            }
            assert_eq!(digest(&all), digest(&content(5_000_000)));
        }
        // Another client has another.
        let other = world.client().await;
        other.get("/seen").await.expect("an answer");
        assert_eq!(world.seen.connections(), 2);
        // Given up by the client, a request ends at the site.
        drop(unread);
        let gone = async {
            while world.seen.resets().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon("a reset at the site", gone).await;
        assert_eq!(world.seen.resets(), [h2::Reason::CANCEL]);
    });
    // With the clients, the connections to the site end.
    let flows = || world.pair.far.peer().flows_open;
    eventually("no flow is left", || (flows() == 0).then_some(()));
}

#[test]
fn an_answer_that_breaks_off_is_a_reset_and_a_connection_that_ends_is_made_anew() {
    let Some(world) = World::start(&["h2"]) else {
        return;
    };
    world.runtime.block_on(async {
        let client = world.client().await;
        for (path, reason) in [
            ("/reset", h2::Reason::ENHANCE_YOUR_CALM),
            ("/refuse", h2::Reason::HTTP_1_1_REQUIRED),
        ] {
            let error = client.get(path).await.expect_err("a reset");
            assert_eq!(error.reason(), Some(reason), "{path}");
        }
        for _ in 0..5 {
            let answers = ["/go-away", "/1000", "/1000", "/go-away", "/1000", "/seen"]
                .map(|path| client.get(path));
            for answer in futures_of(answers).await {
                assert_eq!(answer.expect("an answer").head.status, 200);
            }
        }
        assert!(world.seen.connections() > 1);
    });
}

#[test]
fn a_request_that_a_site_has_not_looked_at_is_sent_again() {
    let Some(world) = World::start(&["h2"]) else {
        return;
    };
    world.runtime.block_on(async {
        for _ in 0..30 {
            world.seen.unwanted.store(1, Ordering::Relaxed);
            // One that is not safe, and so is not repeated by the near end.
            let client = world.client().await;
            let request = client.request("DELETE", "/seen").body(());
            let answer = client.ask(request.expect("a request"), None).await;
            assert_eq!(answer.expect("an answer").head.status, 200);
        }
    });
}

/// The client has ended its side, so that its end cannot be passed on in order.
#[test]
fn a_flow_that_is_reset_resets_the_sites_stream() {
    let Some(mut world) = World::start(&["h2"]) else {
        return;
    };
    let request = format!(
        "GET /wait HTTP/1.1\r\nHost: localhost:{}\r\n\r\n",
        world.near.port()
    );
    let mut stream = world
        .runtime
        .block_on(tls(world.near, world.folder.path(), &["http/1.1"]));
    world.runtime.block_on(async {
        stream
            .write_all(request.as_bytes())
            .await
            .expect("a connection");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            soon("a head", stream.read_buf(&mut head))
                .await
                .expect("a head");
        }
        stream.shutdown().await.expect("a connection");
    });
    assert_eq!(world.pair.far.peer().flows_open, 1);
    world.pair.near.kill();
    eventually("a reset at the site", || {
        (world.seen.resets() == [h2::Reason::CANCEL]).then_some(())
    });
    assert_eq!(world.pair.far.peer().flows_open, 0);
}

/// Waits for all at once.
async fn futures_of<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = waiting.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, done) in waiting.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(result) = future.as_mut().poll(context)
            {
                *done = Some(result);
            }
        }
        match done.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[test]
fn a_client_that_gives_up_request_after_request_is_cut_off_and_nobody_else() {
    let Some(world) = World::start(&["h2"]) else {
        return;
    };
    world.runtime.block_on(async {
        let other = world.client().await;
        for waits in [false, true] {
            let client = world.client().await;
            let until = Instant::now() + PATIENCE;
            while !client.ended.is_finished() {
                assert!(Instant::now() < until, "it is still connected");
                let Ok(mut sender) = client.sender.clone().ready().await else {
                    break;
                };
                let request = client.request("GET", "/wait").body(());
                let Ok((response, mut stream)) =
                    sender.send_request(request.expect("a request"), true)
                else {
                    break;
                };
                // The site is at it by then.
                if waits && soon("a head", response).await.is_err() {
                    break;
                }
                stream.send_reset(h2::Reason::CANCEL);
            }
            let ended = soon("the end of the connection", client.ended).await;
            let error = ended.expect("a task").expect_err("an error");
            let is_calm = error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM);
            assert!(is_calm || error.is_io(), "{error}");
            other.get("/seen").await.expect("an answer");
        }
    });
}

/// curl by HTTP/2 to nginx by either version.
#[test]
fn curl_gets_what_nginx_serves_and_the_second_transfer_is_small() {
    if !are_installed(&["nginx", "curl", "openssl"]) {
        return;
    }
    for http2 in ["http2 on", "http2 off"] {
        let nginx = Nginx::start_with_tls_and_http2(http2.ends_with("on"));
        let page = nginx.serve_letters("page", 1, 2_000_000);
        let site = nginx.https.expect("it has TLS");
        let folder = nginx.certificate().parent().expect("a folder").to_owned();
        let (pair, near) = served("https", &folder, site.port());
        let curl = |arguments: &[&str]| {
            let always = "--silent --show-error --fail --noproxy * --http2 --cacert tls.crt";
            let always: Vec<&str> = always.split(' ').collect();
            run_ok("curl", &folder, &[&always, arguments].concat())
        };
        let url = |path: &str| format!("https://localhost:{}/{path}", near.port());
        let page_url = url("page");
        let version = [
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_version}",
            &page_url,
        ];
        assert_eq!(curl(&version), b"2", "{http2}");
        assert_eq!(digest(&curl(&[&page_url])), digest(&page));
        let before = pair.far.link_bytes();
        assert_eq!(digest(&curl(&[&page_url])), digest(&page));
        let again = pair.far.link_bytes() - before;
        assert!(
            again < 40_000,
            "{again} bytes for the second transfer, {http2}"
        );
        let part = curl(&["--range", "1000000-1000999", &page_url]);
        assert_eq!(part, &page[1_000_000..1_001_000]);
        let body = pair.site.path("body");
        std::fs::write(&body, &page).expect("a new file");
        let body = format!("@{}", body.display());
        let post = url("post");
        assert_kept(&curl(&["--data-binary", &body, &post]), &page);
        let expect = [
            "--header",
            "Expect: 100-continue",
            "--data-binary",
            &body,
            &post,
        ];
        assert_kept(&curl(&expect), &page);
        // The fields of an answer are those of the site.
        let head = |port: u16| {
            let url = format!("https://localhost:{port}/page");
            let head = String::from_utf8(curl(&["--head", &url])).expect("text");
            let lines = head.lines().map(str::to_ascii_lowercase);
            let mut lines: Vec<String> = lines
                .filter(|line| {
                    !["http/", "date:", "connection:", "via:"]
                        .iter()
                        .any(|name| line.starts_with(name))
                })
                .collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(head(near.port()), head(site.port()));
    }
}
