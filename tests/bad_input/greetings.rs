//! Peers with wrong keys, of other versions, or without room for one more.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    sync::mpsc::{Sender, channel},
    time::Duration,
};

use refrain_proto::hello::Hello;
use tokio::{net::TcpListener, runtime::Runtime};

use crate::{
    block_on,
    common::{
        PATIENCE,
        addresses::free_address,
        command::{keygen, refrain_fails},
        eventually,
        fake_peer::{FakeLane, hello_of_versions},
        gateway::Gateway,
        site::Site,
    },
};

/// `refrain check` with these keys, which must fail: what it says.
#[track_caller]
fn check_fails(site: &Site, peer: SocketAddr, key: &str, peer_key: &str) -> String {
    let command = site.check_of(peer, key, peer_key);
    let (code, error) = refrain_fails(&command.each_ref().map(String::as_str));
    assert_eq!(code, 1, "{error}");
    assert_eq!(error.lines().count(), 1, "one error, not: {error}");
    error
}

#[test]
fn a_near_key_that_the_far_end_does_not_know() {
    let site = Site::new();
    let other = keygen(&site.path("other.key"));
    let far = site.far(&[]);
    let near = site.near_with_key("other.key", site.far_listen, &["--socks5", "127.0.0.1:0"]);
    near.wait_for_log(&["WARN", "refused this end's key", &other]);
    far.wait_for_log(&["WARN", &other, "not in --peer-key"]);
    let shown = eventually("the status names the error", || near.peer().last_error);
    assert!(shown.contains("refused this end's key"), "{shown}");
    let error = check_fails(&site, site.far_listen, "other.key", &site.far_key);
    assert!(
        error.contains("refused this end's key") && error.contains(&other),
        "{error}"
    );
}

#[test]
fn a_far_key_that_the_near_end_does_not_know() {
    let site = Site::new();
    let other = keygen(&site.path("other.key"));
    let far = site.far(&[]);
    let options = ["--socks5", "127.0.0.1:0", "--peer-key", &other];
    let near = site.near(site.far_listen, &options);
    near.wait_for_log(&["WARN", &site.far_key, "not in --peer-key"]);
    far.wait_for_log(&["WARN", "refused this end's key"]);
    let error = check_fails(&site, site.far_listen, "near.key", &other);
    assert!(
        error.contains(&site.far_key) && error.contains("not in --peer-key"),
        "{error}"
    );
}

#[test]
fn a_near_end_of_another_version() {
    let site = Site::new();
    let far = site.far(&[]);
    let answer = block_on(async {
        let key = site.path("near.key");
        let mut lane = FakeLane::connect(site.far_listen, &key, &site.far_key).await;
        lane.send(&hello_of_versions(3, 4)).await;
        lane.until_closed().await
    });
    // What the other version needs to name both in its own words.
    assert_eq!(answer[..10], *b"refrain\n\x01\x02");
    far.wait_for_log(&["WARN", "3 to 4", "1 to 2"]);
    let shown = far.peer().last_error.expect("the status names the error");
    assert!(
        shown.contains("3 to 4") && shown.contains("1 to 2"),
        "{shown}"
    );
}

/// Where a fake far end listens, and the runtime that has it.
fn listener() -> (Runtime, TcpListener, SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let listening = TcpListener::bind("127.0.0.1:0");
    let listener = runtime.block_on(listening).expect("an address");
    let address = listener.local_addr().expect("an address");
    (runtime, listener, address)
}

#[test]
fn a_far_end_of_another_version() {
    let site = Site::new();
    let (runtime, listener, address) = listener();
    let (key, near_key) = (site.path("far.key"), site.near_key.clone());
    runtime.spawn(async move {
        loop {
            let mut lane = FakeLane::accept(&listener, &key, &near_key).await;
            lane.receive(12).await;
            lane.send(&hello_of_versions(3, 4)).await;
            tokio::spawn(lane.until_closed());
        }
    });
    let near = site.near(address, &["--socks5", "127.0.0.1:0"]);
    near.wait_for_log(&["WARN", "3 to 4", "1 to 2"]);
    let shown = eventually("the status names the error", || near.peer().last_error);
    assert!(
        shown.contains("3 to 4") && shown.contains("1 to 2"),
        "{shown}"
    );
    let error = check_fails(&site, address, "near.key", &site.far_key);
    assert!(
        error.contains("3 to 4") && error.contains("1 to 2"),
        "{error}"
    );
}

#[test]
fn a_far_end_that_closes_before_its_hello_is_in_the_log() {
    let site = Site::new();
    let (runtime, listener, address) = listener();
    let (key, near_key) = (site.path("far.key"), site.near_key.clone());
    runtime.spawn(async move {
        loop {
            drop(FakeLane::accept(&listener, &key, &near_key).await);
        }
    });
    let near = site.near(address, &["--socks5", "127.0.0.1:0"]);
    near.wait_for_log(&["WARN", "a connection to the far end"]);
}

/// What the newcomer's log, its status, `refrain check` of it, and the far end say when there is no room.
#[track_caller]
fn assert_refused_with(far: &Gateway, near: &Gateway, reason: &str) {
    near.wait_for_log(&["WARN", "the peer refused it", reason]);
    let shown = eventually("the status names the error", || near.peer().last_error);
    assert!(shown.contains(reason), "{shown}");
    let (_, error) = refrain_fails(&["check", "--admin", &near.admin.to_string()]);
    assert!(error.contains(reason), "{error}");
    far.wait_for_log(&["WARN", reason]);
    let peers = far.status().peers;
    let says = |error: &Option<String>| error.as_ref().is_some_and(|text| text.contains(reason));
    assert!(peers.iter().any(|peer| says(&peer.last_error)), "{peers:?}");
}

#[test]
fn too_many_near_ends_with_one_key() {
    let site = Site::new();
    let far = site.far(&[]);
    let options = ["--socks5", "127.0.0.1:0", "--lanes", "1"];
    let first: Vec<_> = (0..4)
        .map(|_| site.near(site.far_listen, &options))
        .collect();
    first.iter().for_each(Gateway::wait_until_up);
    let fifth = site.near(site.far_listen, &options);
    assert_refused_with(&far, &fifth, "already has 4 links");
    assert!(
        first
            .iter()
            .all(|near| near.peer().counters.lanes_lost == 0)
    );
}

#[test]
fn a_far_end_without_memory_for_another_link() {
    let site = Site::new();
    let other = keygen(&site.path("other.key"));
    let peers = [site.near_key.as_str(), &other].join(",");
    let far = site.far(&["--peer-key", &peers, "--memory", "40MiB"]);
    let options = ["--socks5", "127.0.0.1:0"];
    let first = site.near(site.far_listen, &options);
    first.wait_until_up();
    let second = site.near_with_key("other.key", site.far_listen, &options);
    assert_refused_with(&far, &second, "raise its --memory");
    drop(first);
    second.wait_until_up();
}

/// A far end that takes a lane and never says its hello: the bytes that come on the first lane, as the test takes them.
async fn silent_far_end(listener: TcpListener, key: PathBuf, near_key: String, came: Sender<u8>) {
    let mut lane = FakeLane::accept(&listener, &key, &near_key).await;
    while let Ok(bytes) = lane.try_receive().await {
        bytes
            .into_iter()
            .for_each(|byte| came.send(byte).expect("the test listens"));
    }
}

/// A near end of `others` more peers, whose first one is silent: how the near end's first lane begins, up to `until`.
fn first_flight(others: usize, until: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let site = Site::new();
    let (runtime, listener, silent) = listener();
    let (sender, came) = channel();
    runtime.spawn(silent_far_end(
        listener,
        site.path("far.key"),
        site.near_key.clone(),
        sender,
    ));
    let other_key = keygen(&site.path("other.key"));
    let mut peers = vec![("first", silent, site.far_key.as_str())];
    // Nobody listens there.
    peers.extend((0..others).map(|_| ("second", free_address(), other_key.as_str())));
    let entry = free_address();
    let forward = format!("{entry}=origin.example:80");
    let _near = site.near_of(&peers, &["--forward", &forward]);
    let mut client = TcpStream::connect(entry).expect("the near end listens");
    client.write_all(b"a request").expect("a connection");
    let mut bytes = Vec::new();
    while !until(&bytes) {
        bytes.push(came.recv_timeout(PATIENCE).expect("more bytes"));
    }
    // What would follow at once is there, too.
    while let Ok(byte) = came.recv_timeout(Duration::from_millis(300)) {
        bytes.push(byte);
    }
    bytes
}

fn names_the_target(bytes: &[u8]) -> bool {
    bytes.windows(17).any(|text| text == b"origin.example:80")
}

#[test]
fn a_request_follows_the_hello_without_an_answer() {
    let bytes = first_flight(0, names_the_target);
    let (_, read) = Hello::read(&bytes).expect("a hello").expect("whole");
    assert!(names_the_target(&bytes[read..]));
}

#[test]
fn a_request_that_another_peer_could_take_waits_for_the_answer() {
    let is_hello = |bytes: &[u8]| matches!(Hello::read(bytes), Ok(Some(_)));
    let bytes = first_flight(1, is_hello);
    assert!(!names_the_target(&bytes), "{bytes:?}");
}
