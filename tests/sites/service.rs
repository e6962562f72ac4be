//! Web sites that speak TLS, served by the near end over plain HTTP: curl, nginx, and certificates of all kinds.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use super::certificates::Authority;
use crate::common::{
    addresses::free_address,
    digest, eventually,
    http::{HandMadeClient, get},
    nginx::{Nginx, assert_kept},
    programs::{are_installed, are_large_ones_installed, run_ok},
    site::Pair,
};

pub(super) const PROGRAMS: &[&str] = &["nginx", "curl", "openssl"];

/// A pair whose near end serves `site`, and where.
pub(super) fn served(site: &str, far_options: &[&str]) -> (Pair, SocketAddr) {
    let listen = free_address();
    let pair = Pair::start(far_options, &["--service", &format!("{listen}={site}")]);
    (pair, listen)
}

/// The same of nginx, whose certificate the far end trusts.
fn served_by(nginx: &Nginx) -> (Pair, SocketAddr) {
    let certificate = nginx.certificate().display().to_string();
    served(&site_of(nginx), &["--origin-ca", &certificate])
}

/// The same with another host of the site, which it gives.
fn served_with_other(nginx: &Nginx, other: &Nginx) -> (Pair, SocketAddr, String) {
    let [first, second] = [nginx, other].map(|nginx| nginx.certificate().display().to_string());
    let host = authority_of(other);
    let site = format!("{},{host}", site_of(nginx));
    let trust = ["--origin-ca", &first, "--origin-ca", &second];
    let (pair, listen) = served(&site, &trust);
    (pair, listen, host)
}

fn authority_of(nginx: &Nginx) -> String {
    format!("localhost:{}", nginx.https.expect("it has TLS").port())
}

fn site_of(nginx: &Nginx) -> String {
    format!("https://{}", authority_of(nginx))
}

fn curl(arguments: &[&str]) -> Vec<u8> {
    let always = [
        "--silent",
        "--show-error",
        "--fail-with-body",
        "--noproxy",
        "*",
    ];
    run_ok("curl", Path::new("/"), &[&always, arguments].concat())
}

#[test]
fn a_site_behind_tls_is_served_over_plain_http_and_its_second_transfer_is_small() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let nginx = Nginx::start_with_tls_and_lines(
        "location = /seen { return 200 \"$http_host $http_authorization $http_via\"; }",
    );
    let page = nginx.serve_letters("page", 1, 2_000_000);
    let (pair, listen) = served_by(&nginx);
    let url = |path: &str| format!("http://{listen}/{path}");

    assert_eq!(digest(&curl(&[&url("page")])), digest(&page));
    let before = pair.far.link_bytes();
    assert_eq!(digest(&curl(&[&url("page")])), digest(&page));
    let again = pair.far.link_bytes() - before;
    assert!(again < 40_000, "{again} bytes for the second transfer");

    let listeners = pair.near.status().listeners;
    assert_eq!(listeners[0].sites, [site_of(&nginx)]);

    // It is the site's own name that it sees.
    let seen = curl(&["--header", "Authorization: Bearer abc", &url("seen")]);
    let expected = format!(
        "{} Bearer abc 1.1 refrain",
        &site_of(&nginx)["https://".len()..]
    );
    assert_eq!(String::from_utf8_lossy(&seen), expected);

    let part = curl(&["--range", "1000000-1000999", &url("page")]);
    assert_eq!(part, &page[1_000_000..1_001_000]);
    let head = String::from_utf8(curl(&["--head", &url("page")])).expect("text");
    assert!(head.contains("Content-Length: 2000000"), "{head}");
    let tag = head.lines().find_map(|line| line.strip_prefix("ETag: "));
    let tag = format!("If-None-Match: {}", tag.expect("a validator").trim());
    let status = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    let status = curl(&[&status[..], &["--header", &tag, &url("page")]].concat());
    assert_eq!(status, b"304");

    let body = pair.site.path("body");
    fs::write(&body, &page).expect("a new file");
    let body = format!("@{}", body.display());
    let kept = curl(&[
        "--data-binary",
        &body,
        "--header",
        "Expect: 100-continue",
        &url("post"),
    ]);
    assert_kept(&kept, &page);
}

#[test]
fn requests_of_a_connection_share_a_flow_and_a_page_that_is_missing_is_missing() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let nginx = Nginx::start_with_tls_and_lines("location = /c { return 200 $connection; }");
    let (_pair, listen) = served_by(&nginx);
    let request = "GET /c HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut client = HandMadeClient::say(listen, request);
    let first = client.answer().1;
    client.say_more(request);
    assert_eq!(client.answer().1, first, "another connection of the origin");
    assert_eq!(get(listen, "/missing", None).expect("an answer").0, 404);
}

#[test]
fn redirects_within_the_site_and_to_its_other_hosts_stay_with_the_listener() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let other = Nginx::start_with_tls_and_lines(
        "location = /seen { return 200 \"other $http_authorization\"; }",
    );
    let to_other = format!("return 307 {}/seen", site_of(&other));
    let nginx = Nginx::start_with_tls_and_lines(&format!(
        "location = /own {{ return 302 https://$http_host/seen; }}
         location = /other {{ {to_other}; }}
         location = /seen {{ return 200 \"own $http_authorization\"; }}"
    ));
    let (_pair, listen, host) = served_with_other(&nginx, &other);
    let follow = |path: &str| {
        let url = format!("http://{listen}/{path}");
        let secret = ["--location", "--header", "Authorization: Bearer abc"];
        let came_from = ["--write-out", " %{url_effective}", &url];
        let answer = curl(&[&secret[..], &came_from].concat());
        String::from_utf8(answer).expect("text")
    };
    assert_eq!(
        follow("own"),
        format!("own Bearer abc http://{listen}/seen")
    );
    assert_eq!(
        follow("other"),
        format!("other  http://{listen}/_refrain/{host}/seen")
    );
}

#[test]
fn no_request_is_led_to_a_host_that_the_far_end_does_not_allow() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let other = Nginx::start_with_tls_and_lines("location = /seen { return 200 other; }");
    // Addresses of the far end's machine and its network, which a hostile site may name.
    let hosts = [
        "127.0.0.1:1",
        "169.254.169.254",
        "[::1]:1",
        "unlisted.example",
    ];
    let redirects = hosts.iter().enumerate();
    let redirects = redirects
        .map(|(nth, host)| format!("location = /{nth} {{ return 307 http://{host}/seen; }}"));
    let nginx = Nginx::start_with_tls_and_lines(&redirects.collect::<String>());
    let [first, second] = [&nginx, &other].map(|nginx| nginx.certificate().display().to_string());
    let (own, listed) = (authority_of(&nginx), authority_of(&other));
    let allowed = [
        "--allow",
        &own,
        "--origin-ca",
        &first,
        "--origin-ca",
        &second,
    ];
    let (_pair, listen) = served(&format!("{},{listed}", site_of(&nginx)), &allowed);
    let ask = |path: &str| {
        let request = format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        HandMadeClient::say(listen, &request).rest()
    };
    for (nth, host) in hosts.iter().enumerate() {
        let answer = ask(&nth.to_string());
        let location = format!("Location: http://{host}/seen");
        let location = location.to_lowercase();
        assert!(answer.to_lowercase().contains(&location), "{answer}");
        let answer = ask(&format!("_refrain/{host}/seen"));
        assert!(answer.starts_with("HTTP/1.1 404 "), "{host}: {answer}");
    }
    // The near end lists this one, and the far end does not allow it.
    let answer = ask(&format!("_refrain/{listed}/seen"));
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

#[test]
fn an_answer_to_head_that_describes_a_file_of_another_host_is_no_redirect() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let other = Nginx::start_with_tls_and_lines("location = /file { return 200 content; }");
    let host = authority_of(&other);
    let nginx = Nginx::start_with_tls_and_lines(&format!(
        "location /model {{ add_header X-Linked-Size 7 always; add_header X-Xet-Hash 1 always;
             return 302 https://{host}/file; }}
         location /plain {{ return 302 https://{host}/file; }}"
    ));
    let (_pair, listen, _) = served_with_other(&nginx, &other);
    let url = |path: &str| format!("http://{listen}/{path}");
    let ask = |options: &[&str]| String::from_utf8(curl(options)).expect("text");
    let described = ask(&["--head", &url("model")]).to_lowercase();
    assert!(described.starts_with("http/1.1 200"), "{described}");
    for kept in ["x-linked-size: 7\r\n", "\r\ncontent-length: 7\r\n"] {
        assert!(described.contains(kept), "{described}");
    }
    for removed in ["location:", "x-xet-hash"] {
        assert!(!described.contains(removed), "{described}");
    }
    assert_eq!(ask(&["--location", &url("model")]), "content");
    let redirect = format!("location: /_refrain/{host}/file");
    let plain = ask(&["--head", &url("plain")]).to_lowercase();
    assert!(plain.contains(&redirect), "{plain}");
}

#[test]
fn clients_that_speak_tls_reach_a_site_by_its_own_name() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let nginx = Nginx::start_with_tls_and_lines(
        "location = /cookie { add_header Set-Cookie \"a=b; Domain=localhost; Secure\"; add_header Alt-Svc x; return 200; }",
    );
    let page = nginx.serve_letters("page", 1, 2_000_000);
    let authority = Authority::new();
    authority.certify("other", "other.example", "ca", "2");
    authority.certify("own", "localhost", "ca", "2");
    let listen = free_address();
    let service = format!("https://{listen}={}", site_of(&nginx));
    let trust = nginx.certificate().display().to_string();
    let files = ["other.crt", "other.key", "own.crt", "own.key"].map(|name| authority.path(name));
    let [other, other_key, own, own_key] = &files;
    let certificates = [
        "--cert",
        other,
        "--cert-key",
        other_key,
        "--cert",
        own,
        "--cert-key",
        own_key,
    ];
    let pair = Pair::start(
        &["--origin-ca", &trust],
        &[&["--service", &service][..], &certificates].concat(),
    );
    let port = listen.port();
    let url = |path: &str| format!("https://localhost:{port}/{path}");
    let ca = authority.path("ca.crt");
    let by_ca = |arguments: &[&str]| curl(&[&["--cacert", &ca], arguments].concat());

    // Twice over one connection, and once more, of which the link carries little.
    let twice = by_ca(&[&url("page"), &url("page")]);
    assert_eq!(digest(&twice), digest(&[&page[..], &page].concat()));
    let before = pair.far.link_bytes();
    assert_eq!(digest(&by_ca(&[&url("page")])), digest(&page));
    assert!(pair.far.link_bytes() - before < 40_000);
    let body = pair.site.path("body");
    fs::write(&body, &page).expect("a new file");
    let body = format!("@{}", body.display());
    assert_kept(&by_ca(&["--data-binary", &body, &url("post")]), &page);
    let head = String::from_utf8(by_ca(&["--head", &url("cookie")])).expect("text");
    assert!(
        head.contains("set-cookie: a=b; Domain=localhost; Secure"),
        "{head}"
    );
    assert!(!head.to_lowercase().contains("alt-svc"), "{head}");

    // Another name in the request, or in TLS, or none of TLS, or an old version of it.
    let status = [
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
        "--header",
        "Host: other.example",
    ];
    let page_url = url("page");
    let wrong = [
        &["--silent", "--noproxy", "*", "--cacert", &*ca, &*page_url][..],
        &status,
    ]
    .concat();
    assert_eq!(run_ok("curl", Path::new("/"), &wrong), b"421");
    let resolve = format!("other.example:{port}:127.0.0.1");
    let elsewhere = format!("https://other.example:{port}/page");
    assert!(!is_served(&[
        "--cacert",
        &ca,
        "--resolve",
        &resolve,
        &elsewhere
    ]));
    assert!(!is_served(&[&format!("http://localhost:{port}/page")]));
    assert!(!is_served(&[
        "--cacert",
        &ca,
        "--tls-max",
        "1.1",
        &url("page")
    ]));
    assert!(is_served(&[
        "--cacert",
        &ca,
        "--tls-max",
        "1.2",
        &url("page")
    ]));
    // With the alerts that say so.
    for (options, text) in [
        (
            ["-servername", "other.example"].as_slice(),
            "unrecognized name",
        ),
        (
            &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
            "protocol version",
        ),
        (&["-alpn", "other"], "no application protocol"),
    ] {
        let at = format!("localhost:{port}");
        let connect = ["s_client", "-connect", &at];
        let shown = Command::new("openssl")
            .args([&connect, options].concat())
            .stdin(Stdio::null())
            .output()
            .expect("openssl starts");
        let shown = String::from_utf8_lossy(&shown.stderr).into_owned();
        assert!(shown.contains(text), "{shown}");
    }
    for reason in [
        "asks for other.example",
        "does not speak TLS",
        "no version or cipher of TLS",
        "does not speak HTTP/2 or HTTP/1.1",
    ] {
        pair.near
            .wait_for_log(&["TLS with 127.0.0.1 failed", reason]);
    }

    // A certificate that was renewed, by another authority.
    authority.certify("own", "localhost", "stranger", "2");
    let stranger = authority.path("stranger.crt");
    let is_renewed = || is_served(&["--cacert", &stranger, &url("page")]).then_some(());
    eventually("the new certificate", is_renewed);
    authority.certify("own", "localhost", "ca", "0");
    // Its last second is over.
    sleep(Duration::from_millis(1100));
    eventually("a look at the certificate that has expired", || {
        assert!(is_served(&["--cacert", &stranger, &url("page")]));
        let log = pair.near.log();
        log.contains("is not valid now (has it expired?)")
            .then_some(())
    });
    fs::write(own, "nothing").expect("the file");
    eventually("a look at the damaged file", || {
        assert!(is_served(&["--cacert", &stranger, &url("page")]));
        pair.near.log().contains("stays as it was").then_some(())
    });
}

/// By Debian's testssl, which knows the protocols, ciphers and faults of twenty years.
#[test]
fn no_protocol_or_cipher_is_weak() {
    if !are_installed(PROGRAMS) || !are_large_ones_installed(&["testssl"]) {
        return;
    }
    let nginx = Nginx::start_with_tls();
    let folder = nginx.certificate().parent().expect("a folder").to_owned();
    let port = nginx.https.expect("it has TLS").port();
    let (_pair, near) = crate::served("https", &folder, port);
    let report = folder.join("report.json");
    let report_text = report.display().to_string();
    let server = format!("localhost:{}", near.port());
    let found = Command::new("testssl")
        .args([
            "--quiet",
            "--color",
            "0",
            "--warnings",
            "off",
            "--nodns",
            "none",
            "--ip",
            "127.0.0.1",
        ])
        .args(["-p", "-s", "-f", "-U", "--jsonfile", &report_text, &server])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let text = fs::read(&report).expect("a report");
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&text)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&found.stdout)));
    assert!(findings.len() > 30, "{findings:?}");
    let severity = |finding: &serde_json::Value| finding["severity"].as_str().map(str::to_owned);
    // WARN is about testssl's own means.
    let is_weak = |finding: &&serde_json::Value| {
        !["OK", "INFO", "WARN"].contains(&severity(finding).unwrap_or_default().as_str())
    };
    let weak: Vec<&serde_json::Value> = findings.iter().filter(is_weak).collect();
    assert!(weak.is_empty(), "{weak:#?}");
}

#[test]
fn several_sites_share_an_address_by_their_names() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let nginx = Nginx::start_with_tls();
    let page = nginx.serve_letters("page", 1, 1000);
    let authority = Authority::new();
    let listen = free_address();
    let sites = [
        ("other.example", "https://other.example".to_owned()),
        ("localhost", site_of(&nginx)),
    ];
    let mut near = Vec::new();
    for (name, site) in &sites {
        authority.certify(name, name, "ca", "2");
        near.extend(["--service".to_owned(), format!("https://{listen}={site}")]);
        let [key, certificate] =
            ["key", "crt"].map(|kind| authority.path(&format!("{name}.{kind}")));
        near.extend([
            "--cert".to_owned(),
            certificate,
            "--cert-key".to_owned(),
            key,
        ]);
    }
    let near: Vec<&str> = near.iter().map(String::as_str).collect();
    let trust = nginx.certificate().display().to_string();
    let _pair = Pair::start(&["--origin-ca", &trust], &near);
    let (port, ca) = (listen.port(), authority.path("ca.crt"));
    let own = curl(&["--cacert", &ca, &format!("https://localhost:{port}/page")]);
    assert_eq!(digest(&own), digest(&page));
    // The far end does not reach this one, so the answer is the near end's, with its certificate.
    let resolve = format!("other.example:{port}:127.0.0.1");
    let url = format!("https://other.example:{port}/");
    let other = [
        "--silent",
        "--noproxy",
        "*",
        "--cacert",
        &ca,
        "--resolve",
        &resolve,
        &url,
    ];
    let other = run_ok("curl", Path::new("/"), &other);
    let other = String::from_utf8_lossy(&other);
    assert!(other.contains("https://other.example"), "{other}");
}

/// Whether curl gets a page.
fn is_served(arguments: &[&str]) -> bool {
    let curl = Command::new("curl")
        .args([
            "--silent",
            "--fail",
            "--noproxy",
            "*",
            "--output",
            "/dev/null",
        ])
        .args(arguments)
        .status();
    curl.expect("curl starts").success()
}

#[test]
fn what_is_no_request_for_the_site_is_refused() {
    if !are_installed(PROGRAMS) {
        return;
    }
    let nginx = Nginx::start_with_tls();
    let (_pair, listen) = served_by(&nginx);
    for (request, status) in [
        ("CONNECT localhost:1 HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET /_refrain/x/ HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", "400"),
    ] {
        let (head, body) = HandMadeClient::say(listen, request).answer();
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {head}{body}"
        );
    }
}
