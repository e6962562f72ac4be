//! TLS that the near end opens for listed names: curl and openssl through its proxies, to nginx.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::common::{
    addresses::free_address,
    command::{refrain, refrain_fails},
    digest, eventually,
    nginx::Nginx,
    programs::{are_installed, run_ok},
    site::{Pair, Site},
};

const PROGRAMS: &[&str] = &["nginx", "curl", "openssl"];

/// A pair that opens TLS to nginx, by a CA of its own.
struct World {
    nginx: Nginx,
    pair: Pair,
    http: SocketAddr,
    socks: SocketAddr,
    ca: tempfile::TempDir,
}

impl World {
    /// Starts it, if the programs are there. `trusts` says whether the far end trusts nginx's certificate.
    fn start(trusts: bool) -> Option<World> {
        World::start_with(trusts, "")
    }

    /// The same with further lines for nginx's server.
    fn start_with(trusts: bool, lines: &str) -> Option<World> {
        if !are_installed(PROGRAMS) {
            return None;
        }
        let nginx = Nginx::start_with_tls_and_lines(&format!(
            "{lines}
             location = /seen {{ return 200 \"$http_host $http_authorization\"; }}
             location = /cookie {{ add_header Set-Cookie \"a=b; Domain=localhost; Secure\"; add_header Alt-Svc x;
                 add_header Location https://localhost/x; return 200; }}",
        ));
        let ca = tempfile::tempdir().expect("a directory");
        let folder = ca.path().join("ca").display().to_string();
        let made = refrain(&["ca", "init", &folder, "--permit", "localhost"]);
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let (http, socks) = (free_address(), free_address());
        let (http_text, socks_text) = (http.to_string(), socks.to_string());
        let name = format!("localhost:{}", nginx.https.expect("it has TLS").port());
        let certificate = nginx.certificate().display().to_string();
        let far: &[&str] = match trusts {
            true => &["--origin-ca", &certificate],
            false => &[],
        };
        let near = [
            "--http-proxy",
            &http_text,
            "--socks5",
            &socks_text,
            "--ca",
            &folder,
            "--open",
            &name,
        ];
        let pair = Pair::start(far, &near);
        Some(World {
            nginx,
            pair,
            http,
            socks,
            ca,
        })
    }

    fn root(&self) -> String {
        self.ca.path().join("ca/root.pem").display().to_string()
    }

    fn own(&self) -> String {
        self.nginx.certificate().display().to_string()
    }

    fn url(&self, path: &str) -> String {
        format!(
            "https://localhost:{}/{path}",
            self.nginx.https.expect("it has TLS").port()
        )
    }

    /// What curl gets that trusts the certificate in this file, through the HTTP proxy.
    fn curl(&self, trusts: &str, arguments: &[&str]) -> Output {
        let proxy = format!("http://{}", self.http);
        self.curl_by(&proxy, trusts, arguments)
    }

    fn curl_by(&self, proxy: &str, trusts: &str, arguments: &[&str]) -> Output {
        Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--noproxy",
                "",
                "--proxy",
                proxy,
            ])
            .args(["--fail", "--cacert", trusts])
            .args(arguments)
            .output()
            .expect("curl starts")
    }

    /// The issuer of the certificate that openssl gets with these options.
    fn issuer(&self, options: &[&str]) -> String {
        self.issuer_if_any(options).expect("a certificate")
    }

    fn issuer_if_any(&self, options: &[&str]) -> Option<String> {
        let (proxy, server) = (
            self.http.to_string(),
            self.url("")["https://".len()..].to_owned(),
        );
        let server = server.trim_end_matches('/');
        let connect = ["s_client", "-proxy", &proxy, "-connect", server];
        let shown = Command::new("openssl")
            .args([&connect, options].concat())
            .stdin(Stdio::null())
            .output()
            .expect("openssl starts");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let issuer = shown.lines().find_map(|line| line.strip_prefix("issuer="));
        issuer.map(str::to_owned)
    }

    /// Has the near end forget the clients that refused its certificates.
    fn forget(&self) {
        let before = self.pair.near.log().matches("reload").count();
        self.pair.near.signal("HUP");
        eventually("a reload", || {
            (self.pair.near.log().matches("reload").count() > before).then_some(())
        });
    }
}

fn ok(output: Output) -> Vec<u8> {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    output.stdout
}

#[test]
fn a_listed_name_is_opened_and_what_repeats_inside_is_saved() {
    let Some(world) = World::start(true) else {
        return;
    };
    let page = world.nginx.serve_letters("page", 1, 2_000_000);
    let root = world.root();
    // Two requests over one connection.
    let url = world.url("page");
    let twice = ok(world.curl(&root, &[&url, &url]));
    assert_eq!(digest(&twice), digest(&[&page[..], &page].concat()));
    let before = world.pair.far.link_bytes();
    let socks = format!("socks5h://{}", world.socks);
    let again = ok(world.curl_by(&socks, &root, &[&url]));
    assert_eq!(digest(&again), digest(&page));
    let again = world.pair.far.link_bytes() - before;
    assert!(again < 40_000, "{again} bytes");

    let seen = ok(world.curl(
        &root,
        &["--header", "Authorization: Bearer abc", &world.url("seen")],
    ));
    let host = world.url("")["https://".len()..]
        .trim_end_matches('/')
        .to_owned();
    assert_eq!(String::from_utf8_lossy(&seen), format!("{host} Bearer abc"));
    let head = ok(world.curl(&root, &["--head", &world.url("cookie")]));
    let head = String::from_utf8(head).expect("text");
    assert!(
        head.contains("a=b; Domain=localhost; Secure") && head.contains("https://localhost/x"),
        "{head}"
    );
    assert!(!head.contains("Alt-Svc"), "{head}");
    let wrong = [
        "--header",
        "Host: other.example",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
    ];
    let wrong = world.curl(&root, &[&wrong[..], &[&url]].concat());
    assert_eq!(wrong.stdout, b"421");
    world
        .pair
        .near
        .wait_for_log(&["opening TLS to these names", &host]);
}

#[test]
fn a_client_without_the_ca_loses_one_connection_and_passes_after_that() {
    let Some(world) = World::start(true) else {
        return;
    };
    let page = world.nginx.serve_letters("page", 1, 100_000);
    let (own, url) = (world.own(), world.url("page"));
    assert!(!world.curl(&own, &[&url]).status.success());
    world
        .pair
        .near
        .wait_for_log(&["does not accept this end's certificate", "1 hour"]);
    let opening = world.pair.near.status().opening.expect("names");
    assert_eq!((opening.refused_clients, opening.refused_names), (1, 0));
    assert!(opening.names.starts_with("localhost:"), "{opening:?}");
    assert_eq!(digest(&ok(world.curl(&own, &[&url]))), digest(&page));
    world.forget();
    assert_eq!(
        digest(&ok(world.curl(&world.root(), &[&url]))),
        digest(&page)
    );
    // The proxy does not know the name.
    let address = format!("socks5://{}", world.socks);
    assert_eq!(
        digest(&ok(world.curl_by(&address, &own, &[&url]))),
        digest(&page)
    );
}

#[test]
fn clients_that_speak_no_http_or_name_no_server_pass() {
    let Some(world) = World::start(true) else {
        return;
    };
    assert!(world.issuer(&[]).contains("refrain intermediate CA"));
    assert!(world.issuer(&["-alpn", "h2"]).contains("refrain"));
    world.forget();
    // nginx ends the handshake of this one, since it does not know the protocol.
    assert_eq!(world.issuer_if_any(&["-alpn", "other"]), None);
    for options in [&["-noservername"][..], &["-servername", "other.example"]] {
        let issuer = world.issuer(options);
        assert!(!issuer.contains("refrain"), "{options:?}: {issuer}");
    }
}

#[test]
fn a_server_that_cannot_be_verified_passes() {
    let Some(world) = World::start(false) else {
        return;
    };
    let page = world.nginx.serve_letters("page", 1, 100_000);
    let fetched = ok(world.curl(&world.own(), &[&world.url("page")]));
    assert_eq!(digest(&fetched), digest(&page));
    world
        .pair
        .near
        .wait_for_log(&["is not opened for 10 minutes"]);
}

#[test]
fn a_server_that_asks_for_a_certificate_of_the_client_passes() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        // Whoever presents one has it accepted, and others are served without.
        let lines = format!(
            "ssl_verify_client optional_no_ca; ssl_protocols {version};
             location = /name {{ return 200 \"name $ssl_client_s_dn\"; }}"
        );
        let Some(world) = World::start_with(true, &lines) else {
            return;
        };
        let (url, own) = (world.url("name"), world.own());
        let folder = Path::new(&own).parent().expect("a folder");
        let [certificate, key] =
            ["tls.crt", "tls.key"].map(|name| folder.join(name).display().to_string());
        let with = ["--cert", &certificate, "--key", &key];
        let fetched = ok(world.curl(&own, &[&with[..], &[&url]].concat()));
        assert_eq!(
            String::from_utf8_lossy(&fetched),
            "name CN=localhost",
            "{version}"
        );
        let log = ["is not opened for 10 minutes", "certificate of the client"];
        world.pair.near.wait_for_log(&log);
    }
}

#[test]
fn a_ca_certifies_what_it_was_made_for() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let site = Site::new();
    let folder = site.path("ca").display().to_string();
    let shown = refrain(&[
        "ca",
        "init",
        &folder,
        "--permit",
        "corp.example,test.example",
    ]);
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(
        shown.contains("root.pem") && shown.contains("update-ca-certificates"),
        "{shown}"
    );
    let text = ["x509", "-noout", "-text", "-in", "intermediate.pem"];
    let text = run_ok("openssl", Path::new(&folder), &text);
    let text = String::from_utf8(text).expect("text");
    for part in [
        "Name Constraints: critical",
        "DNS:corp.example",
        "DNS:test.example",
        "pathlen:0",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    run_ok(
        "openssl",
        Path::new(&folder),
        &["verify", "-CAfile", "root.pem", "intermediate.pem"],
    );

    let own = [
        "near",
        "--dry-run",
        "--peer",
        "far.example",
        "--key",
        &site.path("near.key").display().to_string(),
        "--peer-key",
        &site.far_key,
        "--http-proxy",
        "3128",
    ]
    .map(str::to_owned);
    let near = |options: &[&str]| {
        let own = own.iter().map(String::as_str);
        let all: Vec<&str> = own.chain(options.iter().copied()).collect();
        refrain_fails(&all)
    };
    for (options, part) in [
        (&["--open", "corp.example"][..], "needs --ca"),
        (&["--open", "*", "--ca", &folder], "*.suffix"),
        (
            &["--open", "other.example", "--ca", &folder],
            "does not permit",
        ),
        (
            &["--open", "corp.example", "--ca", "missing"],
            "refrain ca init",
        ),
    ] {
        let (code, error) = near(options);
        assert!(
            code == 2 && error.contains(part),
            "{options:?}: {code} {error}"
        );
    }
    let again = refrain(&["ca", "init", &folder, "--permit", "corp.example"]);
    assert!(!again.status.success());
    assert!(refrain(&["ca", "revoke", &folder]).status.success());
    assert_eq!(near(&["--open", "corp.example", "--ca", &folder]).0, 2);
}
