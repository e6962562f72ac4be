//! Certificates of web sites, and servers that present them.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use super::service::{PROGRAMS, served};
use crate::common::{
    addresses::free_address,
    command::command,
    doctor::Findings,
    eventually,
    http::get,
    nginx::Nginx,
    programs::{are_installed, find, run_ok},
    site::{Pair, Site},
};

/// Certificates, and servers that present them.
pub(super) struct Authority {
    site: Site,
    servers: Vec<Child>,
}

impl Authority {
    pub(super) fn new() -> Authority {
        let authority = Authority {
            site: Site::new(),
            servers: Vec::new(),
        };
        authority.site.write(
            "ca.conf",
            "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\ncertificate = ca.crt\nprivate_key = ca.key\n\
             default_md = sha256\ndefault_crl_days = 2\ncrlnumber = crl.number\n",
        );
        authority.site.write("index.txt", "");
        authority.site.write("crl.number", "01\n");
        for name in ["ca", "stranger"] {
            let (key, certificate) = (format!("{name}.key"), format!("{name}.crt"));
            let own = format!("/CN={name}");
            authority.openssl(
                &[
                    &["req", "-x509", "-nodes", "-days", "2", "-subj", &own],
                    &NEW_KEY[..],
                    &["-keyout", &key, "-out", &certificate],
                ]
                .concat(),
            );
        }
        authority
    }

    fn openssl(&self, arguments: &[&str]) {
        run_ok("openssl", &self.site.path(""), arguments);
    }

    /// Makes the certificate of a server with this name, by this authority, valid for so many days.
    pub(super) fn certify(&self, name: &str, host: &str, by: &str, days: &str) {
        let [key, request, certificate] =
            ["key", "csr", "crt"].map(|kind| format!("{name}.{kind}"));
        let names = format!("subjectAltName=DNS:{host}");
        self.openssl(
            &[
                &["req", "-nodes", "-subj", "/CN=server"],
                &NEW_KEY[..],
                &["-keyout", &key, "-out", &request, "-addext", &names],
            ]
            .concat(),
        );
        let (authority, its_key) = (format!("{by}.crt"), format!("{by}.key"));
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &authority,
            "-CAkey",
            &its_key,
            "-days",
            days,
            "-copy_extensions",
            "copy",
            "-out",
            &certificate,
        ]);
    }

    /// Starts a server with this certificate, and returns where it is.
    fn serve(&mut self, name: &str, options: &[&str]) -> SocketAddr {
        let address = free_address();
        let [key, certificate] = ["key", "crt"].map(|kind| format!("{name}.{kind}"));
        let accept = address.to_string();
        let command = [
            "s_server",
            "-www",
            "-accept",
            &accept,
            "-key",
            &key,
            "-cert",
            &certificate,
        ];
        let server = Command::new(find("openssl").expect("its presence was tested"))
            .args([&command, options].concat())
            .current_dir(self.site.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.servers.push(server.expect("openssl starts"));
        eventually("a server that listens", || TcpStream::connect(address).ok());
        address
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.site.path(name).display().to_string()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

const NEW_KEY: [&str; 4] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

/// What a client gets of a server at this address, named `localhost`.
fn answer_of(server: SocketAddr, far_options: &[&str]) -> (u16, String) {
    let (_pair, listen) = served(&format!("https://localhost:{}", server.port()), far_options);
    get(listen, "/", None).expect("an answer")
}

#[test]
fn a_certificate_that_is_not_accepted_is_a_502_with_the_reason() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let mut authority = Authority::new();
    let ca = authority.path("ca.crt");
    let trust = ["--origin-ca", &*ca];
    authority.certify("good", "localhost", "ca", "2");
    authority.certify("name", "other.example", "ca", "2");
    authority.certify("issuer", "localhost", "stranger", "2");
    authority.certify("expired", "localhost", "ca", "0");
    authority.certify("revoked", "localhost", "ca", "2");
    authority.openssl(&["ca", "-config", "ca.conf", "-revoke", "revoked.crt"]);
    authority.openssl(&["ca", "-config", "ca.conf", "-gencrl", "-out", "list.pem"]);
    authority.openssl(&[
        "crl", "-in", "list.pem", "-outform", "DER", "-out", "list.der",
    ]);
    let mut short = vec!["ca", "-config", "ca.conf", "-gencrl", "-crlsec", "1"];
    short.extend(["-out", "old.pem"]);
    authority.openssl(&short);
    // Its last second is over.
    sleep(Duration::from_millis(1100));

    let good = authority.serve("good", &[]);
    assert_eq!(answer_of(good, &trust).0, 200);
    let old = authority.serve("good", &["-tls1_2"]);
    assert_eq!(answer_of(old, &trust).0, 200);
    // The system does not know the authority.
    let (status, reason) = answer_of(good, &[]);
    assert!(
        status == 502 && reason.contains("--origin-ca"),
        "{status} {reason}"
    );
    for (name, part) in [
        ("name", "its certificate is for other.example"),
        ("issuer", "--origin-ca"),
        ("expired", "expired"),
    ] {
        let server = authority.serve(name, &[]);
        let (status, reason) = answer_of(server, &trust);
        assert!(
            status == 502 && reason.contains(part),
            "{name}: {status} {reason}"
        );
    }
    let revoked = authority.serve("revoked", &[]);
    assert_eq!(answer_of(revoked, &trust).0, 200);
    for list in ["list.pem", "list.der"] {
        let list = authority.path(list);
        let checked = [&trust[..], &["--origin-crl", &list]].concat();
        let (status, reason) = answer_of(revoked, &checked);
        assert!(
            status == 502 && reason.contains("revoked"),
            "{status} {reason}"
        );
        assert_eq!(answer_of(good, &checked).0, 200);
    }
    // A list that should have been replaced holds.
    let list = authority.path("old.pem");
    let site = format!("https://localhost:{}", revoked.port());
    let (pair, listen) = served(&site, &[&trust[..], &["--origin-crl", &list]].concat());
    assert_eq!(get(listen, "/", None).expect("an answer").0, 502);
    pair.far
        .wait_for_log(&["a list of --origin-crl expired 0 hours ago"]);
    // Neither TLS, nor anything at all.
    let plain = Nginx::start();
    let (status, reason) = answer_of(plain.http, &trust);
    assert!(
        status == 502 && reason.contains("does not speak TLS"),
        "{status} {reason}"
    );
    let (status, reason) = answer_of(free_address(), &trust);
    assert!(
        status == 502 && reason.contains("refused the connection"),
        "{status} {reason}"
    );
    // What is not allowed is not asked.
    let elsewhere = [&trust[..], &["--allow", "elsewhere.example:443"]].concat();
    assert_eq!(answer_of(good, &elsewhere).0, 403);
}

#[test]
fn a_change_of_the_authorities_is_read_again() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let mut authority = Authority::new();
    authority.certify("good", "localhost", "ca", "2");
    let server = authority.serve("good", &[]);
    let trusted = authority.path("trusted.crt");
    fs::copy(authority.path("stranger.crt"), &trusted).expect("a new file");
    let site = format!("https://localhost:{}", server.port());
    let (pair, listen) = served(&site, &["--origin-ca", &trusted]);
    let status = || get(listen, "/", None).expect("an answer").0;
    assert_eq!(status(), 502);
    fs::copy(authority.path("ca.crt"), &trusted).expect("a new file");
    pair.far.signal("HUP");
    eventually("a CA that is read", || (status() == 200).then_some(()));
    fs::write(&trusted, "no certificate").expect("a file");
    pair.far.signal("HUP");
    pair.far.wait_for_log(&["origin-ca"]);
    assert_eq!(status(), 200, "the rules of before hold");
}

#[test]
fn a_site_that_requires_a_certificate_of_the_client_is_a_502_that_says_so() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let mut authority = Authority::new();
    let ca = authority.path("ca.crt");
    authority.certify("good", "localhost", "ca", "2");
    let requires = ["-Verify", "1", "-verify_return_error", "-CAfile", "ca.crt"];
    // The handshake fails with TLS 1.2, and succeeds with 1.3.
    for (version, part) in [
        ("-tls1_2", "it asks for a certificate of the client"),
        ("-tls1_3", "the origin requires a client certificate"),
    ] {
        let server = authority.serve("good", &[&requires[..], &[version]].concat());
        let (status, reason) = answer_of(server, &["--origin-ca", &ca]);
        assert!(status == 502 && reason.contains(part), "{status} {reason}");
    }
    // As a stream of HTTP/2.
    let server = authority.serve("good", &[&requires[..], &["-alpn", "h2"]].concat());
    let near = free_address();
    let service = format!("https://{near}=https://localhost:{}", server.port());
    let [certificate, key] = ["good.crt", "good.key"].map(|name| authority.path(name));
    let options = [
        "--service",
        &service,
        "--cert",
        &certificate,
        "--cert-key",
        &key,
    ];
    let _pair = Pair::start(&["--origin-ca", &ca], &options);
    let url = format!("https://localhost:{}", near.port());
    let always = [
        "--silent",
        "--http2",
        "--noproxy",
        "*",
        "--cacert",
        &ca,
        &url,
    ];
    let answer = run_ok("curl", Path::new("/"), &always);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("requires a client certificate"), "{answer}");
}

#[test]
fn doctor_asks_each_site_for_a_page() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let mut authority = Authority::new();
    let ca = authority.path("ca.crt");
    authority.certify("good", "localhost", "ca", "2");
    authority.certify("other", "other.example", "ca", "2");
    let servers = ["good", "other", "good"].map(|name| authority.serve(name, &[]));
    let listens = [free_address(), free_address(), free_address()];
    let schemes = ["", "", "https://"];
    let services = [0, 1, 2].map(|nth: usize| {
        let port = servers[nth].port();
        format!("{}{}=https://localhost:{port}", schemes[nth], listens[nth])
    });
    let [certificate, key] = ["good.crt", "good.key"].map(|name| authority.path(name));
    let mut options = vec!["--cert", &certificate, "--cert-key", &key];
    options.extend(services.iter().flat_map(|service| ["--service", service]));
    let pair = Pair::start(&["--origin-ca", &ca], &options);
    let file = pair.site.write(
        "near.toml",
        &format!(
            "key = \"{}\"\npeer = \"{}\"\npeer_key = \"{}\"\nservice = {services:?}\n\
             cert = \"{certificate}\"\ncert_key = \"{key}\"\n",
            pair.site.path("near.key").display(),
            pair.site.far_listen,
            pair.site.far_key,
        ),
    );
    let output = command(&["doctor", "--json", "--config", &file]).output();
    let found = Findings::of(&output.expect("it runs"));
    found.expect(
        "ok",
        "site",
        &[&servers[0].port().to_string(), "status 200"],
    );
    found.expect(
        "problem",
        "site",
        &[&servers[1].port().to_string(), "other.example"],
    );
    found.expect("skipped", "site", &[&servers[2].port().to_string(), "curl"]);
}
