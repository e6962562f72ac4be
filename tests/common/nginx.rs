//! nginx as an origin.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::{
    addresses::{free_address, has_ipv6},
    content::letters,
    digest, eventually, http,
    programs::{find, run_ok},
};

/// nginx, serving a folder of its own, over HTTP and HTTPS, on both kinds of loopback.
///
/// `POST /post` keeps the body in a file, and answers with the file's path.
pub(crate) struct Nginx {
    child: Child,
    dir: TempDir,
    pub http: SocketAddr,
    pub https: Option<SocketAddr>,
}

impl Nginx {
    /// Starts it over HTTP.
    pub(crate) fn start() -> Nginx {
        Nginx::start_with(None, "", "")
    }

    /// Starts it over HTTP and, with a certificate that nobody signed, HTTPS.
    pub(crate) fn start_with_tls() -> Nginx {
        Nginx::start_with_tls_and_lines("")
    }

    /// Starts it over HTTP, with further lines for its server in its configuration.
    pub(crate) fn start_with_lines(lines: &str) -> Nginx {
        Nginx::start_with(None, "", lines)
    }

    /// The same over HTTPS too.
    pub(crate) fn start_with_tls_and_lines(lines: &str) -> Nginx {
        Nginx::start_with(Some(free_address()), "", lines)
    }

    /// Starts it over HTTP and HTTPS, with or without HTTP/2 inside TLS.
    pub(crate) fn start_with_tls_and_http2(has_http2: bool) -> Nginx {
        Nginx::start_with_tls_and_http2_and_lines(has_http2, "")
    }

    /// The same with further lines for its server in its configuration.
    pub(crate) fn start_with_tls_and_http2_and_lines(has_http2: bool, lines: &str) -> Nginx {
        let version = if has_http2 { " http2" } else { "" };
        Nginx::start_with(Some(free_address()), version, lines)
    }

    fn start_with(https: Option<SocketAddr>, version: &str, lines: &str) -> Nginx {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let folder = dir.path();
        fs::create_dir(folder.join("www")).expect("a new directory");
        if https.is_some() {
            let request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost";
            let mut arguments: Vec<&str> = request.split(' ').collect();
            arguments.extend(["-keyout", "tls.key", "-out", "tls.crt"]);
            // Who trusts it as it is wants it to name its server, and to be nobody's authority.
            arguments.extend(["-addext", "subjectAltName=DNS:localhost,DNS:site.test"]);
            arguments.extend(["-addext", "basicConstraints=critical,CA:FALSE"]);
            run_ok("openssl", folder, &arguments);
        }
        let http = free_address();
        let config = folder.join("nginx.conf");
        fs::write(
            &config,
            configuration(folder, http, https.map(|https| (https, version)), lines),
        )
        .expect("a new file");
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
        eventually("nginx answers", || http::get(nginx.http, "/", None).ok());
        nginx
    }

    /// Puts a file into the served folder.
    pub(crate) fn serve(&self, name: &str, bytes: &[u8]) {
        fs::write(self.www().join(name), bytes).expect("the served folder can be written to");
    }

    /// Serves a page of letters, and returns it.
    pub(crate) fn serve_letters(&self, name: &str, seed: u64, bytes: usize) -> Vec<u8> {
        let page = letters(seed, bytes);
        self.serve(name, &page);
        page
    }

    /// The URL of a page.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.http)
    }

    /// The certificate that nobody signed.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.dir.path().join("tls.crt")
    }

    /// The served folder.
    pub(crate) fn www(&self) -> PathBuf {
        self.dir.path().join("www")
    }
}

/// Holds what nginx kept of a `POST /post` against what was sent; `answer` is its answer.
#[track_caller]
pub(crate) fn assert_kept(answer: &[u8], body: &[u8]) {
    let path = String::from_utf8_lossy(answer);
    let kept = fs::read(&*path).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(digest(&kept), digest(body));
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

fn configuration(
    folder: &Path,
    http: SocketAddr,
    https: Option<(SocketAddr, &str)>,
    lines: &str,
) -> String {
    let folder = folder.display();
    let mut listen = format!("listen {http};");
    if has_ipv6() {
        listen += &format!(" listen [::1]:{};", http.port());
    }
    if let Some((https, version)) = https {
        listen += &format!(
            " listen {https} ssl{version}; ssl_certificate tls.crt; ssl_certificate_key tls.key;"
        );
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
                 {lines}
             }}
         }}"
    )
}
