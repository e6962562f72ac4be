//! Debian's programs, which `lab/setup` installs: found, run with a time limit, or skipped.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use tempfile::TempDir;

use super::{eventually, free_address, gateway::http_get, has_ipv6};

/// Whether all of `programs` are here. If not, the test is to return; where
/// `REFRAIN_REQUIRE_PROGRAMS=1`, it fails.
pub fn are_installed(programs: &[&str]) -> bool {
    let Some(missing) = programs.iter().find(|program| find(program).is_none()) else {
        return true;
    };
    let message = format!("{missing} is not installed (lab/setup installs it)");
    let required = env::var("REFRAIN_REQUIRE_PROGRAMS").is_ok_and(|value| value == "1");
    assert!(!required, "{message}");
    eprintln!("skipped: {message}");
    false
}

/// A program's path. Servers live in sbin, which is not on every user's path.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Runs a program in `folder`, without its user's own settings, for at most a minute.
pub fn run(program: &str, folder: &Path, arguments: &[&str]) -> Output {
    let path = find(program).expect("its presence was tested");
    Command::new("timeout")
        .args(["--kill-after=5", "60"])
        .arg(path)
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .stdin(Stdio::null())
        .output()
        .expect("timeout(1) runs")
}

/// Runs a program that must succeed; gives its standard output.
#[track_caller]
pub fn run_ok(program: &str, folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = run(program, folder, arguments);
    let (status, error) = (output.status, String::from_utf8_lossy(&output.stderr));
    assert!(
        status.success(),
        "{program} {arguments:?}: {status}: {error}"
    );
    output.stdout
}

/// nginx, serving a folder of its own, over HTTP and HTTPS, on both kinds of loopback.
///
/// `POST /post` keeps the body in a file, and answers with the file's path.
pub struct Nginx {
    child: Child,
    dir: TempDir,
    pub http: SocketAddr,
    pub https: Option<SocketAddr>,
}

impl Nginx {
    /// Starts it over HTTP.
    pub fn start() -> Nginx {
        Nginx::start_with(None)
    }

    /// Starts it over HTTP and, with a certificate that nobody signed, HTTPS.
    pub fn start_with_tls() -> Nginx {
        Nginx::start_with(Some(free_address()))
    }

    fn start_with(https: Option<SocketAddr>) -> Nginx {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let folder = dir.path();
        fs::create_dir(folder.join("www")).expect("a new directory");
        if https.is_some() {
            let request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost";
            let mut arguments: Vec<&str> = request.split(' ').collect();
            arguments.extend(["-keyout", "tls.key", "-out", "tls.crt"]);
            run_ok("openssl", folder, &arguments);
        }
        let http = free_address();
        let config = folder.join("nginx.conf");
        fs::write(&config, configuration(folder, http, https)).expect("a new file");
        let child = Command::new(find("nginx").expect("its presence was tested"))
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(&config)
            .arg("-e")
            .arg(folder.join("error.log"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx starts");
        let nginx = Nginx {
            child,
            dir,
            http,
            https,
        };
        eventually("nginx answers", || http_get(nginx.http, "/", None).ok());
        nginx
    }

    /// Puts a file into the served folder.
    pub fn serve(&self, name: &str, bytes: &[u8]) {
        fs::write(self.www().join(name), bytes).expect("the served folder can be written to");
    }

    /// The served folder.
    pub fn www(&self) -> PathBuf {
        self.dir.path().join("www")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.path().join("error.log"));
            eprintln!("--- log of nginx:\n{}---", log.unwrap_or_default());
        }
    }
}

fn configuration(folder: &Path, http: SocketAddr, https: Option<SocketAddr>) -> String {
    let folder = folder.display();
    let mut listen = format!("listen {http};");
    if has_ipv6() {
        listen += &format!(" listen [::1]:{};", http.port());
    }
    if let Some(https) = https {
        listen +=
            &format!(" listen {https} ssl; ssl_certificate tls.crt; ssl_certificate_key tls.key;");
    }
    // One process, without a master: it needs no other user's rights, and dies when killed.
    format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
         events {{ }}
         http {{
             access_log off; default_type application/octet-stream; types {{ text/html html; }}
             client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/proxied;
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
             scgi_temp_path {folder}/scgi; client_max_body_size 20m;
             server {{
                 {listen}
                 root {folder}/www;
                 location = /post {{
                     client_body_in_file_only on;
                     proxy_pass http://{http}/kept;
                     proxy_pass_request_body off;
                     proxy_set_header Content-Length \"\";
                     proxy_set_header X-Kept-In $request_body_file;
                 }}
                 location = /kept {{ return 200 $http_x_kept_in; }}
             }}
         }}"
    )
}
