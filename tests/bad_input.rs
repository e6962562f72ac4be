//! Wrong keys, other versions, hostile peers, refusing targets, wrong options: each gives one
//! clear error where the user looks, and costs no other flow anything.

mod common;

use std::{
    fs,
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use common::{
    PATIENCE,
    addresses::{free_address, has_ipv6},
    command::{command, keygen, refrain, refrain_fails},
    eventually,
    fake_peer::{FakeLane, hello_of_versions},
    gateway::Gateway,
    http,
    origin::{self, Download},
    site::{Pair, Site},
};
use refrain_proto::{
    FlowId,
    frame::{BlockFrame, Frame, Stream},
    limits::FRAME_BYTES_MAX,
};

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test)
}

/// `refrain check` with these keys, which must fail: what it says.
#[track_caller]
fn check_fails(site: &Site, peer: SocketAddr, key: &str, peer_key: &str) -> String {
    let (peer, key) = (peer.to_string(), site.path(key).display().to_string());
    let command = [
        "check",
        "--peer",
        &peer,
        "--key",
        &key,
        "--peer-key",
        peer_key,
    ];
    let (code, error) = refrain_fails(&command);
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
        lane.send(&hello_of_versions(2, 3)).await;
        lane.until_closed().await
    });
    // What the other version needs to name both in its own words.
    assert_eq!(answer[..10], *b"refrain\n\x01\x01");
    far.wait_for_log(&["WARN", "2 to 3", "1 to 1"]);
    let shown = far.peer().last_error.expect("the status names the error");
    assert!(
        shown.contains("2 to 3") && shown.contains("1 to 1"),
        "{shown}"
    );
}

#[test]
fn a_far_end_of_another_version() {
    let site = Site::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let listening = tokio::net::TcpListener::bind("127.0.0.1:0");
    let listener = runtime.block_on(listening).expect("an address");
    let address = listener.local_addr().expect("an address");
    let (key, near_key) = (site.path("far.key"), site.near_key.clone());
    runtime.spawn(async move {
        loop {
            let mut lane = FakeLane::accept(&listener, &key, &near_key).await;
            lane.receive(12).await;
            lane.send(&hello_of_versions(2, 3)).await;
            tokio::spawn(lane.until_closed());
        }
    });
    let near = site.near(address, &["--socks5", "127.0.0.1:0"]);
    near.wait_for_log(&["WARN", "2 to 3", "1 to 1"]);
    let shown = eventually("the status names the error", || near.peer().last_error);
    assert!(
        shown.contains("2 to 3") && shown.contains("1 to 1"),
        "{shown}"
    );
    let error = check_fails(&site, address, "near.key", &site.far_key);
    assert!(
        error.contains("2 to 3") && error.contains("1 to 1"),
        "{error}"
    );
}

/// What the newcomer's log, its status, `refrain check` with its key, and the far end say when
/// there is no room.
#[track_caller]
fn assert_refused_with(site: &Site, far: &Gateway, near: &Gateway, key: &str, reason: &str) {
    near.wait_for_log(&["WARN", "the peer refused it", reason]);
    let shown = eventually("the status names the error", || near.peer().last_error);
    assert!(shown.contains(reason), "{shown}");
    let error = check_fails(site, site.far_listen, key, &site.far_key);
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
    assert_refused_with(&site, &far, &fifth, "near.key", "has 4 links already");
    assert!(first.iter().all(|near| near.peer().lanes_lost == 0));
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
    assert_refused_with(&site, &far, &second, "other.key", "raise its --memory");
    drop(first);
    second.wait_until_up();
}

/// A pair with a flow under way, and a second near key for a peer that misbehaves meanwhile.
struct Besieged {
    pair: Pair,
    target: SocketAddr,
    listen: SocketAddr,
    download: Download,
}

impl Besieged {
    fn start() -> Besieged {
        let target = origin::start();
        let site = Site::new();
        let hostile_key = keygen(&site.path("hostile.key"));
        let peers = [site.near_key.as_str(), &hostile_key].join(",");
        let far = site.far(&["--peer-key", &peers]);
        let listen = free_address();
        let near = site.near(
            site.far_listen,
            &["--forward", &format!("{listen}={target}")],
        );
        near.wait_until_up();
        let download = Download::begin(listen);
        let pair = Pair { near, far, site };
        Besieged {
            pair,
            target,
            listen,
            download,
        }
    }

    /// Sends `frames` after a good hello, and waits until the far end closes the lane.
    fn attack(&self, frames: &[u8]) {
        let site = &self.pair.site;
        block_on(async {
            let key = site.path("hostile.key");
            let mut lane = FakeLane::connect(site.far_listen, &key, &site.far_key).await;
            lane.greet().await;
            lane.send(frames).await;
            lane.until_closed().await;
        });
    }

    /// The flow arrives whole, its lanes live, and the far end serves new flows.
    #[track_caller]
    fn assert_unharmed(self) {
        self.download.finish();
        assert_eq!(self.pair.near.peer().lanes_lost, 0);
        assert!(origin::answers(self.listen));
    }
}

#[test]
fn bytes_that_are_no_tls() {
    let siege = Besieged::start();
    let mut stream = TcpStream::connect(siege.pair.site.far_listen).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = b"GET / HTTP/1.1\r\nHost: far\r\n\r\n";
    stream.write_all(request).expect("a connection");
    let mut answer = Vec::new();
    let closed = stream.read_to_end(&mut answer);
    assert!(
        closed.is_ok() && answer.len() < 100,
        "{closed:?}: {answer:?}"
    );
    siege.pair.far.wait_for_log(&["WARN", "does not speak TLS"]);
    siege.assert_unharmed();
}

#[test]
fn something_else_in_good_tls() {
    let siege = Besieged::start();
    let site = &siege.pair.site;
    block_on(async {
        let key = site.path("hostile.key");
        let mut lane = FakeLane::connect(site.far_listen, &key, &site.far_key).await;
        lane.send(b"SSH-2.0-other\r\n").await;
        lane.until_closed().await;
    });
    let far = &siege.pair.far;
    far.wait_for_log(&["WARN", "does not speak refrain's protocol"]);
    siege.assert_unharmed();
}

#[test]
fn a_frame_of_an_unknown_type() {
    let siege = Besieged::start();
    siege.attack(&[200, 1, 0]);
    siege.pair.far.wait_for_log(&["WARN", "unknown type 200"]);
    siege.assert_unharmed();
}

#[test]
fn a_frame_longer_than_any() {
    let siege = Besieged::start();
    // A block's type, and the limit plus some in LEB128.
    let length = FRAME_BYTES_MAX as u32 + 1;
    let varint = [
        length as u8 | 0x80,
        (length >> 7) as u8 | 0x80,
        (length >> 14) as u8,
    ];
    siege.attack(&[&[4], &varint[..]].concat());
    siege
        .pair
        .far
        .wait_for_log(&["WARN", &format!("a frame of {length} bytes")]);
    siege.assert_unharmed();
}

#[test]
fn a_frame_cut_short_by_a_dying_peer() {
    let siege = Besieged::start();
    let site = &siege.pair.site;
    block_on(async {
        let key = site.path("hostile.key");
        let mut lane = FakeLane::connect(site.far_listen, &key, &site.far_key).await;
        lane.greet().await;
        let frames = open_and_block(siege.target, b"hello", u64::MAX, &[]);
        lane.send(&frames[..frames.len() - 1]).await;
        lane.drop_at_once();
    });
    eventually("the far end lets the lane go", || {
        let down = |peer: &refrain_gateway::status::Peer| peer.lanes == 0;
        siege.pair.far.status().peers.iter().any(down).then_some(())
    });
    siege.assert_unharmed();
}

#[test]
fn a_block_whose_check_is_wrong() {
    let siege = Besieged::start();
    siege.attack(&open_and_block(siege.target, b"hello", 0, &[]));
    siege
        .pair
        .far
        .wait_for_log(&["WARN", "caches of the two ends disagree", "check"]);
    siege.assert_unharmed();
}

#[test]
fn a_token_outside_of_the_cache() {
    let siege = Besieged::start();
    // No literals, eight bytes, from a position a million before the block's own.
    let tokens = [0, 0, 0xff, 0x84, 0x7a];
    siege.attack(&open_and_block(siege.target, b"", 0, &tokens));
    siege
        .pair
        .far
        .wait_for_log(&["WARN", "caches of the two ends disagree"]);
    siege.assert_unharmed();
}

/// A flow to `target` and one block on it.
fn open_and_block(target: SocketAddr, literals: &[u8], check: u64, tokens: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    Frame::Open {
        flow: FlowId(0),
        credit_bytes: 1 << 16,
        excluded: false,
        target: &target.to_string(),
    }
    .write(&mut frames);
    let plain = |bytes| Stream {
        compressed: false,
        bytes,
    };
    Frame::Block(BlockFrame {
        flow: FlowId(0),
        len: if tokens.is_empty() { literals.len() } else { 8 },
        offset: None,
        position_step: Some(0),
        check,
        tokens: plain(tokens),
        literals: plain(literals),
    })
    .write(&mut frames);
    frames
}

/// A pair with both proxies.
fn pair_with_proxies(far_options: &[&str]) -> (Pair, SocketAddr, SocketAddr) {
    let (socks, http) = (free_address(), free_address());
    let near_options = [
        "--socks5",
        &socks.to_string(),
        "--http-proxy",
        &http.to_string(),
    ];
    (Pair::start(far_options, &near_options), socks, http)
}

/// What a SOCKS5 proxy replies to a request for a host by its name.
fn socks_reply(proxy: SocketAddr, host: &str, port: u16) -> u8 {
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.write_all(&[5, 1, 0]).expect("a connection");
    let mut accepted = [0; 2];
    stream.read_exact(&mut accepted).expect("an answer");
    let mut request = vec![5, 1, 0, 3, host.len() as u8];
    request.extend(host.as_bytes());
    request.extend(port.to_be_bytes());
    stream.write_all(&request).expect("a connection");
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).expect("a reply");
    reply[1]
}

/// The status line of an HTTP proxy's answer.
fn http_answer(proxy: SocketAddr, request_line: &str) -> String {
    let mut stream = TcpStream::connect(proxy).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = format!("{request_line} HTTP/1.1\r\nHost: target\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a connection");
    stream.shutdown(Shutdown::Write).expect("a connection");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[track_caller]
fn assert_http(answer: &str, status: &str, reason: &str) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
    assert!(answer.contains(reason), "{answer}");
}

#[test]
fn a_target_that_refuses() {
    let (pair, socks, http) = pair_with_proxies(&[]);
    let closed = free_address();
    assert_eq!(
        socks_reply(socks, "127.0.0.1", closed.port()),
        5,
        "connection refused"
    );
    let answer = http_answer(http, &format!("GET http://{closed}/"));
    assert_http(&answer, "502", "refused");
    let answer = http_answer(http, &format!("CONNECT {closed}"));
    assert_http(&answer, "502", "refused");
    pair.far
        .wait_for_log(&["refused a connection for the peer", &closed.to_string()]);
}

#[test]
fn a_name_that_does_not_resolve() {
    let (_pair, socks, http) = pair_with_proxies(&[]);
    // Reserved never to resolve (RFC 6761).
    assert_eq!(
        socks_reply(socks, "nowhere.invalid", 80),
        4,
        "host unreachable"
    );
    let answer = http_answer(http, "GET http://nowhere.invalid/");
    assert_http(&answer, "502", "resolve");
}

/// An address of this machine other than loopback, or one that nobody has (RFC 5737).
fn other_than_loopback() -> IpAddr {
    let routed = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("198.51.100.1:9")?;
        socket.local_addr()
    });
    match routed {
        Ok(address) if !address.ip().is_loopback() => address.ip(),
        _ => [198, 51, 100, 1].into(),
    }
}

#[test]
fn a_target_that_is_not_allowed() {
    let address = other_than_loopback();
    // It would answer, if it were asked: where the machine has such an address.
    let listener = TcpListener::bind((address, 0));
    let port = listener
        .as_ref()
        .ok()
        .and_then(|listener| listener.local_addr().ok());
    let target = SocketAddr::from((address, port.map_or(80, |address| address.port())));
    let (_pair, socks, http) = pair_with_proxies(&[]);
    assert_eq!(
        socks_reply(socks, &address.to_string(), target.port()),
        2,
        "not allowed"
    );
    let answer = http_answer(http, &format!("GET http://{target}/"));
    assert_http(&answer, "403", "allow");
    let answer = http_answer(http, &format!("CONNECT {target}"));
    assert_http(&answer, "403", "allow");
    if let Ok(listener) = listener {
        listener.set_nonblocking(true).expect("a listener");
        assert!(
            listener.accept().is_err(),
            "the far end connected all the same"
        );
    }
}

#[test]
fn loopback_by_other_names_is_loopback() {
    let (_pair, socks, _) = pair_with_proxies(&[]);
    let target = origin::start();
    for host in ["localhost", "127.0.0.1", "127.1.2.3", "::ffff:127.0.0.1"] {
        let reply = socks_reply(socks, host, target.port());
        // The origin listens on 127.0.0.1 alone: 127.1.2.3 is allowed, and refuses.
        let expected = if host == "127.1.2.3" { 5 } else { 0 };
        assert_eq!(reply, expected, "{host}");
    }
    let (_pair, socks, _) = pair_with_proxies(&["--allow", "127.0.0.1:1"]);
    for host in ["localhost", "127.0.0.1", "::ffff:127.0.0.1"] {
        assert_eq!(socks_reply(socks, host, target.port()), 2, "{host}");
    }
}

#[test]
fn ipv6_loopback_is_allowed() {
    if !has_ipv6() {
        eprintln!("skipped: this machine has no IPv6 on loopback");
        return;
    }
    let target = origin::start_on("[::1]:0".parse().expect("an address"));
    let (_pair, socks, http) = pair_with_proxies(&[]);
    assert_eq!(socks_reply(socks, "::1", target.port()), 0);
    let answer = http_answer(http, &format!("CONNECT {target}"));
    assert_http(&answer, "200", "established");
}

/// `refrain far` with `options` and what else is necessary, which must fail: exit code and
/// message.
#[track_caller]
fn far_fails(site: &Site, options: &[&str]) -> (i32, String) {
    let key = site.path("far.key").display().to_string();
    let listen = site.far_listen.to_string();
    let necessary = [
        ("--key", key.as_str()),
        ("--listen", &listen),
        ("--peer-key", &site.near_key),
    ];
    let mut command = vec!["far"];
    for (option, value) in necessary {
        if !options.contains(&option) {
            command.extend([option, value]);
        }
    }
    command.extend(options);
    refrain_fails(&command)
}

#[test]
fn a_port_in_use() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = taken.local_addr().expect("an address").to_string();
    let (code, error) = far_fails(&site, &["--listen", &address]);
    assert_eq!(code, 1);
    assert!(
        error.contains(&address) && error.contains("another program"),
        "{error}"
    );
    let (code, error) = far_fails(&site, &["--admin", &address]);
    assert_eq!(code, 1);
    assert!(
        error.contains("admin") && error.contains(&address),
        "{error}"
    );
    let forward = format!("{address}=127.0.0.1:80");
    let (code, error) = far_fails(&site, &["--forward", &forward]);
    assert_eq!(code, 1);
    assert!(
        error.contains("forward") && error.contains(&address),
        "{error}"
    );
}

#[test]
fn keys_that_are_missing_or_open_to_others_or_no_keys() {
    let site = Site::new();
    let (code, error) = far_fails(&site, &["--peer-key", "nowhere/peers"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("--peer-key") && error.contains("nowhere/peers"),
        "{error}"
    );

    let (code, error) = far_fails(&site, &["--key", "nowhere/far.key"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("--key") && error.contains("nowhere/far.key"),
        "{error}"
    );
    assert!(error.contains("refrain keygen"), "{error}");

    let path = site.path("far.key");
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&path, open).expect("its owner may");
    let (code, error) = far_fails(&site, &[]);
    assert_eq!(code, 2);
    assert!(
        error.contains("others can read") && error.contains("chmod 600"),
        "{error}"
    );

    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&path, private).expect("its owner may");
    fs::write(&path, "no key\n").expect("its owner may");
    let (code, error) = far_fails(&site, &[]);
    assert_eq!(code, 2);
    assert!(
        error.contains("far.key") && error.contains("refrain keygen"),
        "{error}"
    );
}

#[test]
fn a_key_that_does_not_fit_the_disk_leaves_nothing() {
    let site = Site::new();
    let folder = site.path("keys");
    fs::create_dir(&folder).expect("a folder");
    let file = folder.join("near.key");
    // A limit on files' size stands for the full disk; its signal would kill before any error.
    let limited = "trap '' XFSZ; ulimit -f 0; exec \"$0\" keygen \"$1\"";
    let made = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_refrain")])
        .arg(&file)
        .output()
        .expect("a shell");
    let error = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(1), "{error}");
    assert!(error.contains("near.key"), "{error}");
    assert!(made.stdout.is_empty(), "no key was made");
    let left = fs::read_dir(&folder).expect("the folder").count();
    assert_eq!(left, 0, "files are left");
    keygen(&file);
}

#[test]
fn a_public_key_that_cannot_be_printed() {
    let site = Site::new();
    let file = site.path("new.key").display().to_string();
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let mut keygen = command(&["keygen", &file]);
    let made = keygen.stdout(full.expect("Linux has it")).output();
    let made = made.expect("it runs");
    let error = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(1), "{error}");
    assert!(
        error.contains("the key is in") && error.contains(&file),
        "{error}"
    );
    assert!(refrain(&["keygen", "--show", &file]).status.success());
}

#[test]
fn an_empty_file_is_no_key_and_is_not_overwritten() {
    let site = Site::new();
    let file = site.write("empty.key", "");
    let (code, error) = refrain_fails(&["keygen", &file]);
    assert_eq!(code, 1);
    assert!(error.contains("empty"), "{error}");
    assert_eq!(fs::read(&file).expect("it is there"), b"");
}

#[test]
fn the_gateways_own_key_as_its_peers() {
    let site = Site::new();
    for mode in [&[][..], &["--dry-run"]] {
        let own = [&["--peer-key", &site.far_key], mode].concat();
        let (code, error) = far_fails(&site, &own);
        assert_eq!(code, 2);
        assert!(error.contains("this gateway's own key"), "{error}");
    }
}

#[test]
fn all_missing_options_are_named_at_once() {
    let far = ["--listen", "--key", "--peer-key"];
    let near = ["--peer", "--key", "--peer-key", "one of --forward"];
    for (end, options) in [("far", &far[..]), ("near", &near)] {
        let (code, error) = refrain_fails(&[end]);
        assert_eq!(code, 2);
        for option in options {
            assert!(error.contains(option), "{option} is not in: {error}");
        }
    }
}

#[test]
fn output_into_a_closed_pipe_ends_quietly() {
    let Pair {
        site,
        far,
        near: _near,
    } = Pair::start(&[], &["--socks5", "127.0.0.1:0"]);
    let key = site.path("far.key").display().to_string();
    let near_key = site.path("near.key").display().to_string();
    let (admin, listen) = (far.admin.to_string(), site.far_listen.to_string());
    let file = site.write("file", "to move");
    let status = ["status", "--admin", &admin];
    let check = ["check", "--peer", &listen, "--key", &near_key];
    let check = [&check[..], &["--peer-key", &site.far_key]].concat();
    let dry_run = ["far", "--dry-run", "--listen", &listen, "--key", &key];
    let dry_run = [&dry_run[..], &["--peer-key", &site.near_key]].concat();
    for arguments in [
        &["keygen", "--show", &key][..],
        &dry_run,
        &status,
        &[&status[..], &["--json"]].concat(),
        &[&status[..], &["--watch", "0.1"]].concat(),
        &check,
        &[&check[..], &["--json"]].concat(),
        &["demo", &file],
        &["demo", "--json", &file],
    ] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let ended = command(arguments).stdout(writer).output().expect("it runs");
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{arguments:?}: {error}");
        assert!(!error.contains("pipe"), "{arguments:?}: {error}");
    }
}

#[test]
fn configurations_with_mistakes() {
    let site = Site::new();
    let file = site.write("far.toml", "# a comment\nlanes = 2\nlanes_maximum = 4\n");
    let (code, error) = far_fails(&site, &["--config", &file]);
    assert_eq!(code, 2);
    for part in ["far.toml:3", "lanes_maximum", "lanes_max"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let (code, error) = far_fails(&site, &["--config", "nowhere/far.toml"]);
    assert_eq!(code, 2);
    assert!(error.contains("nowhere/far.toml"), "{error}");
    let (code, error) = far_fails(&site, &["--rate", "fast"]);
    assert_eq!(code, 2);
    assert!(error.contains("--rate"), "{error}");
    let (code, error) = far_fails(&site, &["--lane", "3"]);
    assert_eq!(code, 2);
    assert!(error.contains("--lanes"), "{error}");
}

#[test]
fn an_admin_page_for_others_needs_a_token() {
    let site = Site::new();
    let (code, error) = far_fails(&site, &["--admin", "0.0.0.0:0"]);
    assert_eq!(code, 2);
    assert!(error.contains("--admin-token-file"), "{error}");
}

#[test]
fn an_admin_page_with_a_token_answers_nobody_else() {
    const TOKEN: &str = "correct-horse-battery";
    let site = Site::new();
    let token_file = site.write("token", TOKEN);
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&token_file, private).expect("its owner may");
    let far = site.far(&["--admin-token-file", &token_file]);
    for page in ["/healthz", "/status", "/metrics"] {
        for token in [None, Some("correct-horse-batterx"), Some("")] {
            let (status, body) = http::get(far.admin, page, token).expect("an answer");
            assert_eq!(status, 401, "{page} with {token:?}: {body}");
        }
        let (status, _) = http::get(far.admin, page, Some(TOKEN)).expect("an answer");
        assert_eq!(status, 200, "{page}");
    }
    let admin = far.admin.to_string();
    let (code, error) = refrain_fails(&["status", "--admin", &admin]);
    assert_eq!(code, 1);
    assert!(error.contains("--admin-token-file"), "{error}");
    let shown = refrain(&[
        "status",
        "--admin",
        &admin,
        "--admin-token-file",
        &token_file,
    ]);
    assert!(shown.status.success());
}
