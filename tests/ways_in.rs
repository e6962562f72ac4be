//! Who may use a gateway's listeners, what they are called in the log, and how addresses are
//! written.

mod common;

use std::{
    fs::{self, Permissions},
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
};

use common::{
    PATIENCE,
    addresses::{forward, free_address},
    command::{refrain, refrain_fails},
    eventually,
    http::{HandMadeClient, HandMadeOrigin},
    origin,
    programs::{are_installed, run, run_ok},
    read,
    site::{Pair, Site},
};

/// The user `alice` with the password `secret`, hashed a few times only: these tests are not built
/// to be fast. `mkpasswd --method=sha-512 --rounds=1000 secret saltstring`
const ALICE: &str = "alice:$6$rounds=1000$saltstring$2BkAo106CG84raQcWpAlhyy6TSSkAsL1nfvBCoezLYye\
     rUzY2l8axTvq6NynEt7SQAx3/cdop9ds0po8uaeHq0";

/// Says these bytes to a SOCKS5 proxy, and reads the answer.
fn say<const N: usize>(stream: &mut TcpStream, bytes: &[u8]) -> [u8; N] {
    stream.write_all(bytes).expect("a connection");
    let mut answer = [0; N];
    stream.read_exact(&mut answer).expect("an answer");
    answer
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream
}

/// Whether a connection is closed before anything comes.
fn is_closed(mut stream: TcpStream) -> bool {
    match read(&mut stream, &mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// A login as RFC 1929 has it.
fn login(user: &str, password: &str) -> Vec<u8> {
    let lengths = [user, password].map(|part| part.len() as u8);
    let parts = [user.as_bytes(), &lengths[1..], password.as_bytes()];
    [&[1, lengths[0]], &parts.concat()[..]].concat()
}

/// A login in base64, as the field of a request.
fn basic(coded: &str) -> String {
    format!("Proxy-Authorization: Basic {coded}\r\n")
}

/// The request for a connection to this target, with its address.
fn socks5_request(target: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(target) = target else {
        panic!("{target} is not of IPv4");
    };
    let address = target.ip().octets();
    [&[5, 1, 0, 1], &address[..], &target.port().to_be_bytes()].concat()
}

#[test]
fn socks5_clients_sign_in_where_the_proxy_asks_for_it() {
    let target = origin::start();
    let socks = free_address();
    let listen = socks.to_string();
    let pair = Pair::start(&[], &["--socks5", &listen, "--proxy-auth", ALICE]);

    let mut client = connect(socks);
    assert_eq!(say(&mut client, &[5, 2, 0, 2]), [5, 2]);
    assert_eq!(say(&mut client, &login("alice", "secret")), [1, 0]);
    let granted: [u8; 10] = say(&mut client, &socks5_request(target));
    assert_eq!(granted[..2], [5, 0]);
    client.write_all(b"send 1 100\n").expect("a connection");
    let mut content = Vec::new();
    client.read_to_end(&mut content).expect("the content");
    assert_eq!(content, common::content::letters(1, 100));

    // All at once, as a client may that needs no answers to go on.
    let mut client = connect(socks);
    let at_once = [
        &[5, 1, 2],
        &login("alice", "secret")[..],
        &socks5_request(target),
    ];
    let answers: [u8; 6] = say(&mut client, &at_once.concat());
    assert_eq!(answers, [5, 2, 1, 0, 5, 0]);

    for (user, password) in [("alice", "hunter2"), ("hunter2", "secret"), ("alice", "")] {
        let mut client = connect(socks);
        assert_eq!(say(&mut client, &[5, 1, 2]), [5, 2]);
        let refused: [u8; 2] = say(&mut client, &login(user, password));
        assert_eq!(refused[0], 1);
        assert_ne!(refused[1], 0);
        assert!(is_closed(client));
    }
    let mut client = connect(socks);
    assert_eq!(say(&mut client, &[5, 1, 0]), [5, 0xff]);
    assert!(is_closed(client));
    pair.near
        .wait_for_log(&["WARN", "127.0.0.1", "socks5", "wrong user name or password"]);
    pair.near
        .wait_for_log(&["does not offer a user name and password", "--proxy-auth"]);
    for secret in ["alice", "secret", "hunter2", "$6$"] {
        assert!(!pair.near.log().contains(secret), "{secret} is in the log");
    }
}

#[test]
fn socks5_clients_are_not_asked_where_nobody_has_to_sign_in() {
    let socks = free_address();
    let _pair = Pair::start(&[], &["--socks5", &socks.to_string()]);
    assert_eq!(say(&mut connect(socks), &[5, 2, 2, 0]), [5, 0]);
    let mut client = connect(socks);
    assert_eq!(say(&mut client, &[5, 1, 2]), [5, 0xff]);
    assert!(is_closed(client));
}

/// A SOCKS4 request for a connection to this target, by its address.
fn socks4_request(target: SocketAddr, user: &str) -> Vec<u8> {
    let SocketAddr::V4(target) = target else {
        panic!("{target} is not of IPv4");
    };
    let (port, address) = (target.port().to_be_bytes(), target.ip().octets());
    [&[4, 1], &port[..], &address, user.as_bytes(), &[0]].concat()
}

#[test]
fn socks4_clients_are_served_at_the_same_port() {
    let target = origin::start();
    let socks = free_address();
    let pair = Pair::start(&[], &["--socks5", &socks.to_string()]);
    let granted = [0, 90, 0, 0, 0, 0, 0, 0];
    let refused = [0, 91, 0, 0, 0, 0, 0, 0];
    let by_name = [
        &[4, 1],
        &target.port().to_be_bytes()[..],
        b"\0\0\0\x01user\0localhost\0",
    ];
    for request in [socks4_request(target, "alice"), by_name.concat()] {
        let mut client = connect(socks);
        // Split anywhere, as packets may be.
        let (start, rest) = request.split_at(request.len() / 2);
        client.write_all(start).expect("a connection");
        assert_eq!(say(&mut client, rest), granted);
        client.write_all(b"send 1 100\n").expect("a connection");
        let mut content = Vec::new();
        client.read_to_end(&mut content).expect("the content");
        assert_eq!(content, common::content::letters(1, 100));
    }
    let nobody = free_address();
    let elsewhere = "192.0.2.1:80".parse().expect("an address");
    for request in [
        socks4_request(target, &"u".repeat(256)),
        socks4_request(nobody, ""),
        socks4_request(elsewhere, ""),
        [&[4, 2], &socks4_request(target, "")[2..]].concat(),
        [&[4, 1, 0, 80, 0, 0, 0, 1, 0], &b"a".repeat(256)[..]].concat(),
    ] {
        let mut client = connect(socks);
        assert_eq!(say(&mut client, &request), refused, "{request:?}");
        assert!(is_closed(client));
    }
    pair.near.wait_for_log(&[
        "refused a SOCKS4 client",
        "user id is longer than 255 bytes",
    ]);
    assert!(!pair.near.log().contains("alice"));
}

#[test]
fn socks4_clients_are_refused_where_the_proxy_asks_for_a_password() {
    let target = origin::start();
    let socks = free_address();
    let listen = socks.to_string();
    let pair = Pair::start(&[], &["--socks5", &listen, "--proxy-auth", ALICE]);
    let mut client = connect(socks);
    let refused = say(&mut client, &socks4_request(target, "alice"));
    assert_eq!(refused, [0, 91, 0, 0, 0, 0, 0, 0]);
    pair.near
        .wait_for_log(&["SOCKS4 has no passwords", "--proxy-auth"]);
}

#[test]
fn curl_speaks_each_version_of_socks() {
    if !are_installed(&["curl"]) {
        return;
    }
    let origin = HandMadeOrigin::conversing(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")?;
        stream.shutdown(Shutdown::Write)
    });
    let socks = free_address();
    let pair = Pair::start(&[], &["--socks5", &socks.to_string()]);
    let (by_address, by_name) = (
        format!("http://{}/", origin.address),
        format!("http://localhost:{}/", origin.address.port()),
    );
    let proxy = socks.to_string();
    for (version, url) in [
        ("--socks4", &by_address),
        ("--socks4a", &by_name),
        ("--socks5", &by_address),
        ("--socks5-hostname", &by_name),
    ] {
        let quiet = ["--disable", "--silent", "--show-error", "--max-time", "30"];
        let folder = pair.site.path("");
        let answer = run_ok(
            "curl",
            &folder,
            &[&quiet[..], &[version, &proxy, url]].concat(),
        );
        assert_eq!(answer, b"hi", "{version}");
    }
}

#[test]
fn http_clients_sign_in_where_the_proxy_asks_for_it() {
    let origin = HandMadeOrigin::conversing(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")?;
        stream.shutdown(Shutdown::Write)
    });
    let http = free_address();
    let listen = http.to_string();
    let pair = Pair::start(&[], &["--http-proxy", &listen, "--proxy-auth", ALICE]);
    let target = origin.address;
    let get = format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n");
    let connect = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    // alice:secret
    let right = basic("YWxpY2U6c2VjcmV0");
    for wrong in [
        "",
        "Proxy-Authorization: Basic\r\n",
        "Proxy-Authorization: Bearer hunter2hunter2\r\n",
        "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
        // alice:hunter2, alice:, hunter2:secret
        &basic("YWxpY2U6aHVudGVyMg=="),
        &basic("YWxpY2U6"),
        &basic("aHVudGVyMjpzZWNyZXQ="),
        &right.repeat(2),
    ] {
        for request in [&get, &connect] {
            let mut client = HandMadeClient::say(http, &format!("{request}{wrong}\r\n"));
            let head = client.head();
            assert!(head.starts_with("HTTP/1.1 407 "), "{wrong}: {head}");
            let challenge = "\r\nProxy-Authenticate: Basic realm=\"refrain\"\r\n";
            assert!(head.contains(challenge), "{head}");
            // Two logins are none.
            let has_login = wrong.matches("Proxy-Authorization").count() == 1;
            let body = client.rest();
            let is_refused = body.contains("wrong user name or password");
            assert_eq!(is_refused, has_login, "{wrong}: {body}");
        }
    }
    let mut client = HandMadeClient::say(http, &format!("{get}{right}\r\n"));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(client.body(2), "hi");
    drop(client);
    let heard = origin.heard(1).remove(0);
    assert!(!heard.contains("Proxy-Authorization"), "{heard}");
    // A request that follows on the same connection needs its own.
    let both = format!("{get}{right}\r\n{get}\r\n");
    let mut client = HandMadeClient::say(http, &both);
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(client.body(2), "hi");
    let mut rest = String::new();
    // It may be cut off.
    let _ = client.into_stream().read_to_string(&mut rest);
    assert!(!rest.contains("200 OK"), "{rest}");
    let heard = origin.heard(2).remove(1);
    assert_eq!(heard.matches("GET ").count(), 1, "{heard}");
    let mut client = HandMadeClient::say(http, &format!("{connect}{right}\r\n"));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    client.say_more("GET / HTTP/1.1\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    pair.near.wait_for_log(&[
        "WARN",
        "127.0.0.1",
        "http proxy",
        "wrong user name or password",
    ]);
    for secret in ["alice", "hunter2", "YWxpY2U", "$6$"] {
        assert!(!pair.near.log().contains(secret), "{secret} is in the log");
    }
}

#[test]
fn curl_signs_in_with_users_that_htpasswd_and_openssl_made() {
    if !are_installed(&["curl", "htpasswd", "openssl", "nginx"]) {
        return;
    }
    let nginx = common::nginx::Nginx::start();
    let page = nginx.serve_letters("page", 1, 10_000);
    let site = Site::new();
    let folder = site.path(".");
    let users = site.path("users").display().to_string();
    run_ok("htpasswd", &folder, &["-cbB", &users, "alice", "a secret"]);
    let hash = run_ok("openssl", &folder, &["passwd", "-6", "other:secret"]);
    let more = format!("bob:{}", String::from_utf8_lossy(&hash));
    let written = fs::read_to_string(&users).expect("htpasswd wrote it") + &more;
    fs::write(&users, written).expect("its owner may");
    fs::set_permissions(&users, Permissions::from_mode(0o600)).expect("its owner may");

    let _far = site.far(&[]);
    let [socks, http] = [(); 2].map(|()| free_address().to_string());
    let ways = ["--socks5", &socks, "--http-proxy", &http];
    let near = site.near(
        site.far_listen,
        &[&ways[..], &["--proxy-auth", &users]].concat(),
    );
    near.wait_until_up();
    let url = nginx.url("page");
    let [socks, http] = [format!("socks5h://{socks}"), format!("http://{http}")];
    for (way, user, code) in [
        (vec!["--proxy", &http], "alice:a secret", 0),
        (
            vec!["--proxy", &http, "--proxy-anyauth"],
            "alice:a secret",
            0,
        ),
        (
            vec!["--proxy", &http, "--proxytunnel"],
            "bob:other:secret",
            0,
        ),
        (vec!["--proxy", &socks], "alice:a secret", 0),
        (vec!["--proxy", &socks], "bob:other:secret", 0),
        // "Can't complete SOCKS5 connection", and an error of HTTP.
        (vec!["--proxy", &socks], "bob:secret", 97),
        (vec!["--proxy", &http], "bob:secret", 22),
    ] {
        let quiet = ["--disable", "--silent", "--fail", "--max-time", "30"];
        let arguments = [&quiet, &way[..], &["--proxy-user", user, &url]].concat();
        let output = run("curl", &folder, &arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{way:?} {user}: {output:?}"
        );
        assert!(code != 0 || output.stdout == page, "{way:?} {user}");
    }
}

#[test]
fn clients_outside_the_list_are_disconnected() {
    let target = origin::start();
    let (forwarded, forward_option) = forward(target);
    let (back, back_option) = forward(target);
    let [socks, http] = [(); 2].map(|()| free_address());
    let site = Site::new();
    let elsewhere = [
        "--clients",
        "10.0.0.0/8,fd00::/8",
        "--allow",
        "127.0.0.0/8:*",
    ];
    let far = site.far(&[&elsewhere[..], &["--forward", &back_option]].concat());
    let (socks_text, http_text) = (socks.to_string(), http.to_string());
    let ways = [
        "--socks5",
        &socks_text,
        "--http-proxy",
        &http_text,
        "--forward",
        &forward_option,
    ];
    let near = site.near(site.far_listen, &[&elsewhere[..], &ways].concat());
    near.wait_until_up();
    for listener in [forwarded, socks, http, back] {
        assert!(is_closed(connect(listener)), "{listener}");
    }
    for (gateway, kind, listener) in [
        (&near, "forward", forwarded),
        (&near, "socks5", socks),
        (&near, "http proxy", http),
        (&far, "forward", back),
    ] {
        let warned = ["WARN", "refuses all clients", &listener.to_string()];
        gateway.wait_for_log(&warned);
        let refused = format!("refused a connection from 127.0.0.1 ({kind} {listener})");
        gateway.wait_for_log(&["WARN", &refused, "--clients"]);
    }
    // Many more cost few lines, and are counted.
    for _ in 0..100 {
        assert!(is_closed(connect(socks)));
    }
    near.wait_for_log(&["WARN", &socks_text, "more like it"]);
    let lines = near.log().matches("refused a connection").count();
    assert!(lines < 10, "{lines} lines");
}

#[test]
fn sighup_reloads_who_may_connect_and_sign_in() {
    let target = origin::start();
    let (listen, option) = forward(target);
    let socks = free_address();
    let site = Site::new();
    let _far = site.far(&[]);
    let users = site.write("users", &format!("{ALICE}\n"));
    fs::set_permissions(&users, Permissions::from_mode(0o600)).expect("its owner may");
    let config = |clients: &str| {
        let text = format!("clients = [\"{clients}\"]\nproxy_auth = \"{users}\"\n");
        site.write("near.toml", &text)
    };
    let file = config("127.0.0.0/8");
    let socks_text = socks.to_string();
    let ways = [
        "--config",
        &file,
        "--forward",
        &option,
        "--socks5",
        &socks_text,
    ];
    let near = site.near(site.far_listen, &ways);
    near.wait_until_up();
    let signs_in = |user: &str| {
        let mut client = connect(socks);
        assert_eq!(say(&mut client, &[5, 1, 2]), [5, 2]);
        say::<2>(&mut client, &login(user, "secret")) == [1, 0]
    };
    assert!(signs_in("alice") && !signs_in("bob") && origin::answers(listen));

    let alice = fs::read_to_string(&users).expect("it is there");
    fs::write(&users, alice.replace("alice", "bob")).expect("its owner may");
    near.signal("HUP");
    near.wait_for_log(&["reloaded"]);
    // A password that was right a moment ago is forgotten as well.
    assert!(signs_in("bob") && !signs_in("alice"));

    config("10.0.0.0/8");
    near.signal("HUP");
    eventually("a second reload", || {
        (near.log().matches("reloaded").count() == 2).then_some(())
    });
    for listener in [listen, socks] {
        near.wait_for_log(&["WARN", "refuses all clients", &listener.to_string()]);
    }
    assert!(is_closed(connect(listen)) && is_closed(connect(socks)));

    // What cannot be read changes nothing.
    fs::write(&users, "bob:secret\n").expect("its owner may");
    config("127.0.0.0/8");
    near.signal("HUP");
    near.wait_for_log(&["kept the old configuration", "users:1: "]);
    assert!(is_closed(connect(listen)));
    assert!(!near.log().contains("after a restart"), "{}", near.log());
}

#[test]
fn a_listener_that_others_can_reach_needs_to_say_who_may_use_it() {
    let site = Site::new();
    let key = site.path("near.key").display().to_string();
    let own = ["near", "--peer", "far.invalid", "--key", &key, "--dry-run"];
    let own = [&own[..], &["--peer-key", &site.far_key]].concat();
    for (way, named) in [
        (
            ["--socks5", "*:1080"],
            &["--clients", "--proxy-auth", "--open-to-all"][..],
        ),
        (
            ["--http-proxy", "0.0.0.0:3128"],
            &["--clients", "--proxy-auth", "--open-to-all"],
        ),
        (
            ["--forward", "*:80:intranet:80"],
            &["--clients", "--open-to-all"],
        ),
    ] {
        let (code, error) = refrain_fails(&[&own[..], &way].concat());
        assert_eq!((code, error.lines().count()), (2, 2), "{error}");
        assert!(named.iter().all(|option| error.contains(option)), "{error}");
        let mut ways_out = vec![
            (vec!["--open-to-all"], "open to all that can reach it", true),
            (
                vec!["--clients", "10.0.0.0/8"],
                "open to clients in 10.0.0.0/8",
                false,
            ),
        ];
        if named.contains(&"--proxy-auth") {
            let asked = "open to all that can reach it, with a password (1 user)";
            ways_out.push((vec!["--proxy-auth", ALICE], asked, false));
        }
        for (options, shown, is_loud) in ways_out {
            let tried = refrain(&[&own[..], &way, &options].concat());
            let said = String::from_utf8_lossy(&tried.stdout);
            let warned = String::from_utf8_lossy(&tried.stderr);
            assert_eq!(tried.status.code(), Some(0), "{warned}");
            assert!(said.contains(shown), "{said}");
            let has_users = said.contains("  proxy_auth       1 user (hashes not shown)\n");
            assert_eq!(has_users, options[0] == "--proxy-auth", "{said}");
            let is_dual = way[1].starts_with('*');
            assert_eq!(said.contains(" (all addresses)"), is_dual, "{said}");
            assert!(!said.contains("[::]"), "{said}");
            assert_eq!(warned.contains("is open to all"), is_loud, "{warned}");
            assert!(!said.contains("$6$") && !said.contains("alice"), "{said}");
        }
    }
}

#[test]
fn the_log_names_what_listens_where() {
    let target = "127.0.0.1:9";
    let pair = Pair::start(
        &[
            "--forward",
            "0=127.0.0.1:9",
            "--forward",
            "*:0:127.0.0.1:9",
            "--open-to-all",
        ],
        &[
            "--socks5",
            "0",
            "--http-proxy",
            ":0",
            "--forward",
            "localhost:0:127.0.0.1:9",
        ],
    );
    let (near_admin, far_admin) = (pair.near.admin.to_string(), pair.far.admin.to_string());
    let lanes = pair.site.far_listen.to_string();
    for (gateway, kind, part) in [
        (&pair.near, "kind=\"socks5\"", "127.0.0.1:"),
        (&pair.near, "kind=\"http proxy\"", "127.0.0.1:"),
        (&pair.near, "kind=\"forward\"", "127.0.0.1:"),
        (&pair.near, "kind=\"admin\"", &near_admin),
        (&pair.far, "kind=\"lanes\"", &lanes),
        (&pair.far, "kind=\"forward\"", "127.0.0.1:"),
        (&pair.far, "kind=\"admin\"", &far_admin),
    ] {
        let line = gateway.wait_for_log(&["INFO", "listening", kind, part]);
        let has_target = line.contains(&format!("target={target}"));
        assert_eq!(has_target, kind.contains("forward"), "{line}");
    }
    let warning = ["WARN", "--forward [::]:0 is open to all that can reach it"];
    pair.far.wait_for_log(&warning);
}

#[test]
fn a_far_end_takes_lanes_at_several_addresses() {
    let site = Site::new();
    let second = free_address();
    let far = site.far(&["--listen", &second.to_string()]);
    for address in [site.far_listen, second] {
        let check = site.check_of(address, "near.key", &site.far_key);
        let check = check.each_ref().map(String::as_str);
        let checked = refrain(&check);
        assert!(checked.status.success(), "{checked:?}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("an address");
    let taken = taken.local_addr().expect("an address").to_string();
    let key = site.path("far.key").display().to_string();
    let options = ["--key", &key, "--peer-key", &site.near_key];
    let listen = ["far", "--listen", "127.0.0.1:0", "--listen", &taken];
    let (code, error) = refrain_fails(&[&listen[..], &options].concat());
    assert!(code == 1 && error.contains(&taken), "{error}");
    let (_, port) = taken.rsplit_once(':').expect("a port");
    assert!(error.contains(&format!("grep :{port})")), "{error}");
    drop(far);
}
