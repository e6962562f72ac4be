//! Servers that others wrote: skipped where they are not installed, unless
//! `REFRAIN_REQUIRE_PROGRAMS=1`.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use refrain_czip::get::get;
use refrain_czip_format::header::Profile;

use crate::get::{Place, archive_of, creating, options, release};

pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.find(|folder| folder.join(program).is_file());
    if found.is_none() {
        let required = env::var("REFRAIN_REQUIRE_PROGRAMS").is_ok_and(|value| value == "1");
        assert!(
            !required,
            "{program} is not installed (lab/setup installs it)"
        );
        eprintln!("skipped: {program} is not installed (lab/setup installs it)");
    }
    found.map(|folder| folder.join(program))
}

/// A server's process, which ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fetches release 2 with release 1 here, in both profiles, and says how many requests it took.
fn fetch_all(www: &Place, port: u16) -> Vec<u64> {
    let profiles = [Profile::Shared, Profile::Small].into_iter();
    let fetched = profiles.map(|profile| {
        let place = Place::new();
        let mut options = options();
        options.seeds = vec![place.with("seed", &release(1))];
        www.with("file", &archive_of(&release(2), &creating(profile), false));
        let url = format!("http://127.0.0.1:{port}/file");
        let go_on = &mut |_| ControlFlow::Continue(());
        let report = get(&url, &place.output(), &options, go_on).expect("a file");
        place.assert_is(&release(2));
        report.transferred().requests
    });
    fetched.collect()
}

/// nginx, until dropped: one process, without a master, so that it needs no other user's rights, and
/// dies when killed.
pub(crate) struct Nginx {
    port: u16,
    _process: Process,
    _folder: Place,
}

impl Nginx {
    /// With `http` in its block for all servers, where `{folder}` stands for its own folder, and `server`
    /// in that of its server.
    pub(crate) fn start(program: &Path, http: &str, server: &str) -> Self {
        let folder = Place::new();
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            listener.local_addr().expect("it is bound").port()
        };
        let at = folder.0.path().display().to_string();
        let http = http.replace("{folder}", &at);
        let configuration = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
            events {{}}
            http {{
                access_log off;
                client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
                uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
                {http}
                server {{ listen 127.0.0.1:{port}; {server} }}
            }}"
        );
        let configuration = folder.with("nginx.conf", configuration.as_bytes());
        let mut command = Command::new(program);
        command.arg("-p").arg(folder.0.path());
        command.arg("-c").arg(configuration);
        command.arg("-e").arg(folder.0.path().join("error.log"));
        let process = Process(command.stdin(Stdio::null()).spawn().expect("nginx starts"));
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        Self {
            port,
            _process: process,
            _folder: folder,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

#[test]
fn nginx_sends_the_news_alone() {
    let Some(program) = installed("nginx") else {
        return;
    };
    let www = Place::new();
    let root = format!("root {};", www.0.path().display());
    let nginx = Nginx::start(&program, "", &root);
    for requests in fetch_all(&www, nginx.port) {
        assert!((2..=20).contains(&requests), "{requests}");
    }
}

#[test]
fn python_sends_all_and_it_is_used_as_it_comes() {
    let Some(python) = installed("python3") else {
        return;
    };
    let www = Place::new();
    let mut command = Command::new(python);
    command.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]);
    command.current_dir(www.0.path()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Process(command.spawn().expect("python starts"));
    let mut said = String::new();
    let out = process.0.stdout.take().expect("it is piped");
    BufReader::new(out).read_line(&mut said).expect("a line");
    let port = said
        .split("port ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let port = port.and_then(|port| port.parse().ok()).expect("a port");
    for requests in fetch_all(&www, port) {
        assert_eq!(requests, 1);
    }
    fs::remove_file(www.0.path().join("file")).expect("it is there");
}
