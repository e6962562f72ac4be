//! `refrain czip proxy`, between curl and nginx.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use serde_json::Value;

use super::{
    World,
    common::{
        addresses::free_address,
        command::command,
        eventually,
        nginx::Nginx,
        programs::{are_installed, run, run_ok},
    },
    noise,
};

/// A proxy, which does not outlive its test.
struct Proxying {
    child: Child,
    url: String,
}

impl Drop for Proxying {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Proxying {
    fn start(world: &World, origin: &str, arguments: &[&str]) -> Self {
        let mut child = command(&["czip", "proxy", "--listen", "127.0.0.1:0", "--json-log"])
            .args(["--origin", origin, "--cache", "cache"])
            .args(arguments)
            .current_dir(world.path("."))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let log = child.stderr.take().expect("it is piped");
        let mut log = BufReader::new(log).lines();
        let url = loop {
            let line = log.next().expect("it says where it listens");
            let line = line.expect("UTF-8");
            let line: Value = serde_json::from_str(&line).expect("an object a line");
            if let Some(address) = line["address"].as_str() {
                break format!("http://{address}");
            }
        };
        // A log that nobody reads would stop it.
        thread::spawn(move || log.count());
        Self { child, url }
    }

    /// What curl gets.
    #[track_caller]
    fn get(&self, folder: &Path, path: &str, arguments: &[&str]) -> Vec<u8> {
        let url = format!("{}{path}", self.url);
        let all = [&["-sS", "--fail", &url], arguments].concat();
        run_ok("curl", folder, &all)
    }

    fn status(&self) -> Value {
        let url = format!("{}/.czip/status", self.url);
        let mut answer = ureq::get(&url).call().expect("an answer");
        let body = answer.body_mut().read_to_vec().expect("a body");
        serde_json::from_slice(&body).expect("an object")
    }

    fn origin_bytes(&self) -> u64 {
        self.status()["origin_bytes"].as_u64().expect("a count")
    }
}

/// A tar archive of a release: two of its nine parts are other ones in each.
fn release(world: &World, number: u64) -> Vec<u8> {
    let name = format!("release-{number}");
    for part in 0..9 {
        let seed = part * 10 + if part < 2 { number } else { 0 };
        world.write(&format!("{name}/{part}"), &noise(seed, 200_000));
    }
    run_ok(
        "tar",
        &world.path("."),
        &["-cf", &format!("{name}.tar"), &name],
    );
    fs::read(world.path(&format!("{name}.tar"))).expect("it was made")
}

/// Puts a release's archive where nginx serves it, without the plain file.
fn publish(world: &World, nginx: &Nginx, number: u64, arguments: &[&str]) -> (Vec<u8>, u64) {
    let content = release(world, number);
    let name = format!("release-{number}.tar");
    let archive = format!("{name}.czip");
    world.run(&[&["create", &name, "-o", &archive], arguments].concat());
    let stored = fs::read(world.path(&archive)).expect("it was made");
    nginx.serve(&archive, &stored);
    (content, stored.len() as u64)
}

#[test]
fn curl_gets_plain_files_of_a_server_that_has_archives() {
    if !are_installed(&["nginx", "curl", "tar"]) {
        return;
    }
    for profile in ["small", "shared"] {
        let world = World::new();
        let here = world.path(".");
        let nginx = Nginx::start();
        let (one, _) = publish(&world, &nginx, 1, &["--profile", profile]);
        let (two, stored) = publish(&world, &nginx, 2, &["--profile", profile]);
        nginx.serve("page.html", b"<p>as it is</p>");
        let origin = nginx.url("");
        let mut proxy = Proxying::start(&world, &origin, &[]);
        assert!(proxy.get(&here, "/release-1.tar", &[]) == one);
        let before = proxy.origin_bytes();
        assert!(proxy.get(&here, "/release-2.tar", &["--compressed"]) == two);
        let news = proxy.origin_bytes() - before;
        // Frames that have news have something else too.
        assert!(news < stored / 2, "{profile}: {news} of {stored}");
        let part = proxy.get(&here, "/release-1.tar", &["-r", "100000-300000"]);
        assert!(part == one[100_000..=300_000]);
        assert_eq!(proxy.get(&here, "/page.html", &[]), b"<p>as it is</p>");
        // Its tag is the content's: what curl has it does not fetch again.
        let saved = ["--etag-save", "tag", "-o", "file"];
        proxy.get(&here, "/release-1.tar", &saved);
        let sent = proxy.status()["sent_bytes"].as_u64();
        let compared = ["--etag-compare", "tag", "-o", "file"];
        proxy.get(&here, "/release-1.tar", &compared);
        assert_eq!(proxy.status()["requests_failed"], 0);
        assert!(proxy.status()["sent_bytes"].as_u64() < sent.map(|sent| sent + 100_000));
        assert!(fs::read(world.path("file")).expect("a file") == one);
        // A download that was broken off goes on.
        fs::write(world.path("file"), &two[..1_000_000]).expect("written");
        proxy.get(&here, "/release-2.tar", &["-C", "-", "-o", "file"]);
        assert!(fs::read(world.path("file")).expect("a file") == two);
        let none = run(
            "curl",
            &here,
            &["-sS", "--fail", &format!("{}/none", proxy.url)],
        );
        assert_eq!(none.status.code(), Some(22));
        // Killed, and started anew, it has its chunks.
        proxy.child.kill().expect("it runs");
        proxy.child.wait().expect("it ends");
        let proxy = Proxying::start(&world, &origin, &[]);
        assert!(proxy.get(&here, "/release-2.tar", &[]) == two);
        assert!(proxy.origin_bytes() < 200_000, "{}", proxy.origin_bytes());
        assert_eq!(proxy.status()["chunks_fetched"], 0);
    }
}

#[test]
fn a_server_without_ranges_is_an_origin_too() {
    if !are_installed(&["nginx", "curl", "tar", "python3"]) {
        return;
    }
    let world = World::new();
    let here = world.path(".");
    let nginx = Nginx::start_with_lines("max_ranges 0;");
    let (content, stored) = publish(&world, &nginx, 1, &[]);
    let address = free_address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let python = Command::new("python3")
        .args(["-m", "http.server", &port, "--bind", &host])
        .current_dir(nginx.www())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _python = Proxying {
        child: python.expect("Python starts"),
        url: String::new(),
    };
    eventually("Python listens", || TcpStream::connect(address).ok());
    for origin in [nginx.url(""), format!("http://{address}/")] {
        let proxy = Proxying::start(&world, &origin, &[]);
        assert!(proxy.get(&here, "/release-1.tar", &[]) == content);
        let part = proxy.get(&here, "/release-1.tar", &["-r", "100000-300000"]);
        assert!(part == content[100_000..=300_000]);
        assert_eq!(proxy.origin_bytes(), stored, "{origin}");
        let short = Proxying::start(&world, &origin, &["--cache-size", "1M"]);
        let url = format!("{}/release-1.tar", short.url);
        let refused = run("curl", &here, &["-sS", "-w", "%{http_code}", &url]);
        let said = String::from_utf8_lossy(&refused.stdout).into_owned();
        assert!(
            said.contains("too large") && said.ends_with("502"),
            "{said}"
        );
    }
}

#[test]
fn an_origin_with_tls_is_trusted_by_its_certificate() {
    if !are_installed(&["nginx", "curl", "tar", "openssl"]) {
        return;
    }
    let world = World::new();
    let nginx = Nginx::start_with_tls();
    let (content, _) = publish(&world, &nginx, 1, &[]);
    nginx.serve("page.html", b"<p>as it is</p>");
    let port = nginx.https.expect("it has TLS").port();
    let origin = format!("https://localhost:{port}/");
    let roots = nginx.certificate().display().to_string();
    let proxy = Proxying::start(&world, &origin, &["--origin-ca", &roots]);
    assert!(proxy.get(&world.path("."), "/release-1.tar", &[]) == content);
    assert_eq!(
        proxy.get(&world.path("."), "/page.html", &[]),
        b"<p>as it is</p>"
    );
    assert_eq!(proxy.status()["answers_from_archives"], 1);
    // Without it, nobody is believed.
    let proxy = Proxying::start(&world, &origin, &[]);
    let url = format!("{}/page.html", proxy.url);
    let refused = run(
        "curl",
        &world.path("."),
        &["-sS", "-w", "%{http_code}", &url],
    );
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.ends_with("502"), "{said}");
}

#[test]
fn it_stops_when_told_to_and_says_what_is_wrong() {
    let world = World::new();
    let mut proxy = Proxying::start(&world, "http://127.0.0.1:9/", &[]);
    let process = proxy.child.id().to_string();
    let told = Command::new("kill").args(["-TERM", &process]).status();
    assert!(told.expect("kill runs").success());
    assert!(proxy.child.wait().expect("it ends").success());
    for (origin, code, expected) in [
        ("example.org", 2, "does not begin with http"),
        ("ftp://example.org", 2, "neither http nor https"),
        ("http://example.org/?a", 1, "not the address of a directory"),
    ] {
        let arguments = [
            "proxy",
            "--listen",
            "127.0.0.1:0",
            "--cache",
            "c",
            "--origin",
        ];
        let output = world.run_with(&[&arguments[..], &[origin]].concat(), b"");
        assert_eq!(output.status.code(), Some(code), "{origin}");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(said.contains(expected), "{said}");
    }
}
