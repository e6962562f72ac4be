//! Real clients of a site that speaks TLS: each directly, by a plain address of the near end, and by an opened name. The
//! same comes on all ways.
//!
//! The site has a name, since clients use no proxy for `localhost`. Only the threads and processes of a test know it.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

use super::common::{
    addresses::free_address,
    command::refrain,
    content::letters,
    git::{GitServer, commit_version, git, tree},
    packages::{apt_machine, publish_deb},
    programs::{are_installed, are_large_ones_installed, find, run_ok},
    sha256,
    site::Pair,
};

mod browser;
mod forged;
mod images;
mod refusing;

/// The site's name.
const NAME: &str = "site.test";

/// nginx and git as a site, and a pair in front of it.
struct World {
    site: GitServer,
    pair: Pair,
    mirror: SocketAddr,
    proxy: SocketAddr,
    socks: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Direct,
    Mirror,
    Opened,
}

/// A client's way to the site.
struct Access<'a> {
    world: &'a World,
    way: Way,
    /// An empty folder of the client.
    folder: PathBuf,
    /// The certificate that it trusts, if it is not that of its way.
    trusted: Option<PathBuf>,
}

/// Has a client do its work on each way, and compares what it returns.
#[track_caller]
fn on_each_way<T: PartialEq + std::fmt::Debug>(
    lines: &str,
    publish: impl FnOnce(&World) + Send,
    client: impl Fn(&Access) -> T + Sync,
) {
    with_name(|| {
        let world = World::start(lines);
        publish(&world);
        let direct = client(&world.access(Way::Direct));
        for way in [Way::Mirror, Way::Opened] {
            let before = world.pair.near.status().peers[0].counters.flows_opened;
            assert_eq!(client(&world.access(way)), direct, "{way:?}");
            let opened = world.pair.near.status().peers[0].counters.flows_opened;
            assert!(opened > before, "{way:?} goes past the pair");
        }
    });
}

/// Runs a test whose thread and processes know the site's name.
fn with_name(test: impl FnOnce() + Send) {
    let with_name = || {
        unshare(CloneFlags::CLONE_NEWNS).expect("root may");
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        mount_change("/", private).expect("root may");
        let folder = tempfile::tempdir().expect("a folder");
        let hosts = folder.path().join("hosts");
        fs::write(&hosts, format!("127.0.0.1 localhost\n127.0.0.1 {NAME}\n")).expect("a new file");
        mount_bind(&hosts, "/etc/hosts").expect("root may");
        test();
    };
    thread::scope(|scope| scope.spawn(with_name).join().expect("no panic"));
}

/// Whether these programs are there, and the test may give the site its name.
fn are_here(programs: &[&str], large: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give a name to a site");
        return false;
    }
    are_installed(&GitServer::PROGRAMS)
        && are_installed(programs)
        && (large.is_empty() || are_large_ones_installed(large))
}

impl World {
    fn start(lines: &str) -> World {
        let site = GitServer::start_with_tls_and_lines(lines);
        let [mirror, proxy, socks] = [(); 3].map(|()| free_address());
        let certificate = site.nginx().certificate().display().to_string();
        let authority = authority_of(&site);
        let ca = site.repository("ca").display().to_string();
        let made = refrain(&["ca", "init", &ca, "--permit", NAME]);
        assert!(made.status.success());
        let service = format!("{mirror}=https://{authority}");
        let pair = Pair::start(
            &["--origin-ca", &certificate],
            &[
                "--service",
                &service,
                "--http-proxy",
                &proxy.to_string(),
                "--socks5",
                &socks.to_string(),
                "--ca",
                &ca,
                "--open",
                &authority,
            ],
        );
        World {
            site,
            pair,
            mirror,
            proxy,
            socks,
        }
    }

    fn www(&self) -> PathBuf {
        self.site.nginx().www()
    }

    fn access(&self, way: Way) -> Access<'_> {
        let folder = self.site.repository(&format!("{way:?}"));
        fs::create_dir(&folder).expect("a new folder");
        Access {
            world: self,
            way,
            folder,
            trusted: None,
        }
    }
}

fn authority_of(site: &GitServer) -> String {
    format!("{NAME}:{}", site.nginx().https.expect("it has TLS").port())
}

impl Access<'_> {
    fn url(&self) -> String {
        match self.way {
            Way::Mirror => format!("http://{}", self.world.mirror),
            _ => format!("https://{}", authority_of(&self.world.site)),
        }
    }

    /// The one certificate that the client trusts.
    fn trusted(&self) -> PathBuf {
        if let Some(trusted) = &self.trusted {
            return trusted.clone();
        }
        match self.way {
            Way::Opened => self.world.site.repository("ca/root.pem"),
            _ => self.world.site.nginx().certificate(),
        }
    }

    fn proxy(&self) -> Option<String> {
        (self.way == Way::Opened).then(|| format!("http://{}", self.world.proxy))
    }

    /// A program in the client's folder, for at most a minute, and without its user's own settings.
    fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", "60"])
            .arg(find(name).expect("its presence was tested"))
            .args(arguments)
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.folder)
            // For programs in Go.
            .env("SSL_CERT_FILE", self.trusted())
            .envs(self.proxy().map(|proxy| ("HTTPS_PROXY", proxy)));
        command
    }

    /// Runs a program, which must succeed; gives its standard output.
    #[track_caller]
    fn run(&self, name: &str, arguments: &[&str]) -> Vec<u8> {
        output(&mut self.program(name, arguments))
    }
}

#[track_caller]
fn output(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("it runs");
    let [text, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}\n{error}",
        output.status
    );
    output.stdout
}

/// Fields of a connection, and those that this pair adds or whose value is another at another time.
const NOT_COMPARED: [&str; 6] = [
    "connection",
    "date",
    "keep-alive",
    "transfer-encoding",
    "via",
    "location",
];

#[test]
fn curl_gets_equal_answers_in_both_versions_of_http() {
    if !are_here(&["curl"], &[]) {
        return;
    }
    let lines = "location = /moved { return 301 /page; }
                 location = /fields { add_header X-One 1; add_header X-One 2; add_header Vary Accept;
                     add_header Cache-Control \"private, max-age=5\"; return 200 text; }";
    let publish = |world: &World| {
        fs::write(world.www().join("page"), letters(1, 100_000)).expect("the served folder");
    };
    on_each_way(lines, publish, |access| {
        let mut answers = Vec::new();
        for (path, options) in [
            ("page", &[][..]),
            ("page", &["--head"]),
            ("page", &["--range", "1000-1999"]),
            ("page", &["--header", "If-None-Match: *"]),
            ("moved", &[]),
            ("fields", &[]),
            ("missing", &[]),
            ("", &["--request", "OPTIONS"]),
        ] {
            for version in ["--http1.1", "--http2"] {
                let (url, trusted) = (access.url(), access.trusted().display().to_string());
                let proxy = access.proxy().unwrap_or_default();
                let always = ["--silent", "--show-error", "--dump-header", "head"];
                let way = ["--proxy", &proxy, "--cacert", &trusted];
                let url = format!("{url}/{path}");
                let arguments = [&always, &way[..], &[version, &url], options].concat();
                let body = access.run("curl", &arguments);
                let body = if options.contains(&"--head") {
                    Vec::new()
                } else {
                    body
                };
                let head = fs::read_to_string(access.folder.join("head")).expect("a head");
                // In front of it, the proxy's own.
                let head = head
                    .trim_end()
                    .rsplit("\r\n\r\n")
                    .next()
                    .unwrap_or_default();
                let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let fields = head.lines().skip(1).map(str::to_ascii_lowercase);
                let is_compared = |field: &String| {
                    let name = field.split(':').next().unwrap_or_default();
                    !NOT_COMPARED.contains(&name)
                };
                let mut fields: Vec<String> = fields.filter(is_compared).collect();
                fields.sort();
                answers.push((path, options.len(), status, fields, sha256(&body)));
            }
        }
        answers
    });
}

#[test]
fn git_clones_fetches_and_pushes() {
    if !are_here(&[], &[]) {
        return;
    }
    let publish = |world: &World| {
        let work = world.site.repository("work");
        let options = ["init", "--quiet", "--initial-branch=main", "work"];
        git(&world.site.repository(""), &options);
        commit_version(&work, 0);
        let [from, to] = ["work", "project.git"].map(|name| world.site.repository(name));
        let [from, to] = [from, to].map(|path| path.display().to_string());
        git(&work, &["clone", "--quiet", "--bare", &from, &to]);
    };
    on_each_way("", publish, |access| {
        let served = access.world.site.repository("project.git");
        let first = git(&served, &["rev-list", "--max-parents=0", "main"]);
        git(&served, &["update-ref", "refs/heads/main", &first]);
        let trusted = format!("http.sslCAInfo={}", access.trusted().display());
        let proxy = format!("http.proxy={}", access.proxy().unwrap_or_default());
        let git_here = |arguments: &[&str]| {
            let settings = ["-c", &trusted, "-c", &proxy];
            access.run("git", &[&settings, arguments].concat());
        };
        let url = format!("{}/git/project.git", access.url());
        git_here(&["clone", "--quiet", &url, "clone"]);
        git_here(&["clone", "--quiet", &url, "other"]);
        let [clone, other] = ["clone", "other"].map(|name| access.folder.join(name));
        assert_eq!(tree(&clone, "HEAD"), tree(&served, "main"));
        commit_version(&clone, 1);
        git_here(&["-C", "clone", "push", "--quiet"]);
        git(&served, &["fsck", "--strict"]);
        assert_eq!(tree(&clone, "HEAD"), tree(&served, "main"));
        git_here(&["-C", "other", "fetch", "--quiet"]);
        tree(&other, "origin/main")
    });
}

#[test]
fn apt_gets_a_package() {
    if !are_here(&["apt-get", "dpkg-deb"], &[]) {
        return;
    }
    let publish = |world: &World| {
        publish_deb(&world.site.repository(""), &world.www());
    };
    on_each_way("", publish, |access| {
        let lines = format!(
            "Acquire::https::CaInfo \"{}\"; Acquire::https::Proxy \"{}\";\n",
            access.trusted().display(),
            access.proxy().unwrap_or("DIRECT".to_owned())
        );
        let configuration = apt_machine(&access.folder, &access.url(), &lines);
        for arguments in [&["update"][..], &["download", "content"]] {
            let mut apt = access.program("apt-get", &[&["-qq"], arguments].concat());
            output(apt.env("APT_CONFIG", &configuration));
        }
        let package = fs::read(access.folder.join("content_1.0_all.deb"));
        sha256(&package.expect("a package"))
    });
}

#[test]
fn go_gets_a_module() {
    if !are_here(&["zip"], &["go"]) {
        return;
    }
    let publish = |world: &World| {
        let made = world.site.repository("made");
        let source = made.join("content.test/module@v1.0.0");
        fs::create_dir_all(&source).expect("a new folder");
        let module = "module content.test/module\n\ngo 1.19\n";
        fs::write(source.join("go.mod"), module).expect("a new file");
        let text = [b"package module\n\n// ", &letters(1, 300_000)[..], b"\n"].concat();
        fs::write(source.join("module.go"), text).expect("a new file");
        let versions = world.www().join("content.test/module/@v");
        fs::create_dir_all(&versions).expect("a new folder");
        let package = versions.join("v1.0.0.zip").display().to_string();
        run_ok("zip", &made, &["-q", "-r", "-D", &package, "content.test"]);
        for (name, text) in [
            ("list", "v1.0.0\n"),
            ("v1.0.0.mod", module),
            (
                "v1.0.0.info",
                "{\"Version\":\"v1.0.0\",\"Time\":\"2026-01-01T00:00:00Z\"}",
            ),
        ] {
            fs::write(versions.join(name), text).expect("a new file");
        }
    };
    on_each_way("", publish, |access| {
        let mut go = access.program(
            "go",
            &["mod", "download", "-json", "content.test/module@v1.0.0"],
        );
        let settings = [("GOPROXY", access.url()), ("GOSUMDB", "off".to_owned())];
        let settings = settings.into_iter().chain([
            ("GOTOOLCHAIN", "local".to_owned()),
            // Otherwise, no test could remove its folder.
            ("GOFLAGS", "-modcacherw".to_owned()),
        ]);
        let report = output(go.envs(settings));
        let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
        let package = fs::read(report["Zip"].as_str().expect("a path")).expect("a file");
        (report["Sum"].to_string(), sha256(&package))
    });
}

/// Inside, the program's own machine does not know the name, and so the far end is asked for it.
#[test]
fn a_name_is_opened_for_a_program_of_refrain_run() {
    if !are_here(&["curl", "ip", "nft", "unshare"], &[]) {
        return;
    }
    with_name(|| {
        let world = World::start("");
        let page = letters(1, 100_000);
        fs::write(world.www().join("page"), &page).expect("the served folder");
        let nobody = world.site.repository("hosts");
        fs::write(&nobody, "127.0.0.1 localhost\n").expect("a new file");
        let url = format!("https://{}/page", authority_of(&world.site));
        let fetch = |trusted: PathBuf| {
            let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
            let socks = world.socks.to_string();
            let mut command = Command::new("unshare");
            command
                .args(["--mount", "sh", "-c", script])
                .arg(&nobody)
                .args([env!("CARGO_BIN_EXE_refrain"), "run", "--socks5", &socks])
                .args(["--", "curl", "--silent", "--show-error", "--cacert"])
                .args([&text(&trusted), &url])
                .env("XDG_RUNTIME_DIR", world.pair.near.folder())
                .output()
                .expect("it runs")
        };
        let opened = fetch(world.access(Way::Opened).trusted());
        let error = String::from_utf8_lossy(&opened.stderr);
        assert_eq!(sha256(&opened.stdout), sha256(&page), "{error}");
        // The CA alone has certified what it got: the site's own certificate is another.
        assert!(!fetch(world.access(Way::Direct).trusted()).status.success());
    });
}

/// A folder of the client, as text.
fn text(path: &Path) -> String {
    path.display().to_string()
}
