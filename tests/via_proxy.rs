//! Lanes through an HTTP proxy, tinyproxy.

mod common;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use common::{
    addresses::{forward, free_address},
    command::refrain_fails,
    content::letters,
    digest, eventually,
    gateway::Gateway,
    origin,
    programs::{are_installed, find},
    server::serve,
    site::Site,
};

/// tinyproxy, with the site's files.
struct Proxy {
    child: Child,
    address: SocketAddr,
}

impl Proxy {
    /// Starts it with these lines in its configuration; none if it is not installed.
    fn start(site: &Site, lines: &str) -> Option<Proxy> {
        if !are_installed(&["tinyproxy"]) {
            return None;
        }
        let address = free_address();
        let (host, port) = (address.ip(), address.port());
        let config = site.write(
            "tinyproxy.conf",
            &format!(
                "Listen {host}\nPort {port}\nAllow 127.0.0.1\nDisableViaHeader Yes\n{lines}\n"
            ),
        );
        let child = Command::new(find("tinyproxy").expect("its presence was tested"))
            .args(["-d", "-c", &config])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("tinyproxy starts");
        let proxy = Proxy { child, address };
        eventually("a proxy that listens", || TcpStream::connect(address).ok());
        Some(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a near end whose lanes go through `proxy`, a URL.
fn near(site: &Site, proxy: &str, options: &[&str]) -> Gateway {
    let socks = free_address().to_string();
    let options = [&["--via-proxy", proxy, "--socks5", &socks], options].concat();
    site.near(site.far_listen, &options)
}

#[test]
fn lanes_go_through_a_proxy_that_knows_the_user() {
    let site = Site::new();
    let Some(proxy) = Proxy::start(&site, "BasicAuth alice s3cret") else {
        return;
    };
    let _far = site.far(&[]);
    let (address, forward) = forward(origin::start());
    let url = format!("http://alice:%733cret@{}", proxy.address);
    let near = near(&site, &url, &["--forward", &forward]);
    near.wait_for_lanes(4);
    let content = origin::fetch(address, "send 7 3000000").expect("an answer");
    assert_eq!(digest(&content), digest(&letters(7, 3_000_000)));
    // All of it went through the proxy.
    drop(proxy);
    near.wait_for_log(&["through the proxy"]);
    let lanes = || (near.peer().lanes == 0).then_some(());
    eventually("a link without lanes", lanes);
}

#[test]
fn a_proxy_that_refuses_is_named_with_the_reason_and_the_password_is_not() {
    let site = Site::new();
    let Some(proxy) = Proxy::start(&site, "BasicAuth alice s3cret\nConnectPort 443") else {
        return;
    };
    let _far = site.far(&[]);
    let peer = site.far_listen.to_string();
    let key = site.path("near.key").display().to_string();
    let check = |user: &str| {
        let url = format!("http://{user}{}", proxy.address);
        let pair = [
            "check",
            "--key",
            &key,
            "--peer",
            &peer,
            "--peer-key",
            &site.far_key,
        ];
        let (code, error) = refrain_fails(&[&pair[..], &["--via-proxy", &url]].concat());
        assert_eq!(code, 1, "{error}");
        assert!(
            error.contains(&proxy.address.to_string()) && error.contains(&peer),
            "{error}"
        );
        assert!(!error.contains("s3cret"), "{error}");
        error
    };
    assert!(check("").contains("asks for a user name and a password"));
    assert!(check("alice:s3cret7@").contains("does not accept the user name"));
    assert!(check("alice:s3cret@").contains("only port 443"));
    let near = near(
        &site,
        &format!("http://alice:s3cret@{}", proxy.address),
        &[],
    );
    near.wait_for_log(&["only port 443"]);
    assert!(!near.log().contains("s3cret"), "{}", near.log());
}

#[test]
fn a_proxy_that_cuts_idle_connections_loses_no_new_one() {
    let site = Site::new();
    let Some(proxy) = Proxy::start(&site, "Timeout 1") else {
        return;
    };
    let _far = site.far(&[]);
    let (address, forward) = forward(origin::start());
    let url = format!("http://{}", proxy.address);
    let near = near(&site, &url, &["--forward", &forward]);
    near.wait_until_up();
    for _ in 0..6 {
        assert!(origin::answers(address), "{}", near.log());
        sleep(Duration::from_millis(1_300));
    }
    assert!(near.log().contains("closed the connection"), "it cut none");
}

#[test]
fn what_answers_in_place_of_the_far_end_is_told_from_it() {
    let site = Site::new();
    let proxy = serve(|mut client| {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte)?;
            asked.extend(byte);
        }
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        client.read_exact(&mut [0; 100])?;
        // An alert of TLS: no certificate was asked for, and no protocol is known.
        client.write_all(&[21, 3, 3, 0, 2, 2, 40])
    });
    let near = near(&site, &format!("http://{proxy}"), &[]);
    near.wait_for_log(&["a proxy that decrypts TLS cannot carry lanes"]);
}
