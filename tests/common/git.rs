//! git, and a server for it: nginx in front of `git http-backend`, by way of fcgiwrap.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::{
    content::letters,
    eventually,
    nginx::Nginx,
    programs::{find, run_ok},
};

/// Runs git with a user's name, and without anybody's settings.
#[track_caller]
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let who = [
        "-c",
        "user.name=Tester",
        "-c",
        "user.email=tester@example.org",
    ];
    let written = run_ok("git", folder, &[&who, arguments].concat());
    String::from_utf8(written).expect("text").trim().to_owned()
}

/// The tree of a revision: equal when all of its files are.
#[track_caller]
pub(crate) fn tree(repository: &Path, revision: &str) -> String {
    git(repository, &["rev-parse", &format!("{revision}^{{tree}}")])
}

/// Changes each of twenty files and commits that, a version of its own for each number.
pub(crate) fn commit_version(repository: &Path, version: u64) {
    for file in 0..20 {
        let mut text = letters(file, 20_000);
        text.extend(letters(1000 + version, 100));
        fs::write(repository.join(format!("file-{file}")), text).expect("a new file");
    }
    git(repository, &["add", "--all"]);
    let message = format!("version {version}");
    git(repository, &["commit", "--quiet", "--message", &message]);
}

/// Serves the repositories in a folder of its own under `/git/`, over smart HTTP; anybody may
/// push.
pub(crate) struct GitServer {
    nginx: Nginx,
    fcgiwrap: Child,
    dir: TempDir,
}

impl GitServer {
    pub(crate) const PROGRAMS: [&str; 3] = ["nginx", "git", "fcgiwrap"];

    pub(crate) fn start() -> GitServer {
        GitServer::start_with_lines("")
    }

    /// The same with further lines for its server in nginx's configuration.
    pub(crate) fn start_with_lines(lines: &str) -> GitServer {
        GitServer::start_by(lines, Nginx::start_with_lines)
    }

    /// The same with nginx over HTTPS too, and HTTP/2.
    pub(crate) fn start_with_tls_and_lines(lines: &str) -> GitServer {
        GitServer::start_by(lines, |lines| {
            Nginx::start_with_tls_and_http2_and_lines(true, lines)
        })
    }

    fn start_by(lines: &str, start: impl FnOnce(&str) -> Nginx) -> GitServer {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let folder = dir.path();
        let socket = folder.join("socket");
        let fcgiwrap = Command::new(find("fcgiwrap").expect("its presence was tested"))
            .arg("-s")
            .arg(format!("unix:{}", socket.display()))
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("fcgiwrap starts");
        let backend = Path::new(&git(folder, &["--exec-path"])).join("git-http-backend");
        let locations = format!(
            "location ~ ^/git(/.*)$ {{
                 fastcgi_pass unix:{socket};
                 fastcgi_param SCRIPT_FILENAME {backend};
                 fastcgi_param GIT_PROJECT_ROOT {folder};
                 fastcgi_param GIT_HTTP_EXPORT_ALL 1;
                 fastcgi_param GIT_PROTOCOL $http_git_protocol;
                 fastcgi_param REMOTE_USER tester;
                 fastcgi_param PATH_INFO $1;
                 fastcgi_param QUERY_STRING $query_string;
                 fastcgi_param REQUEST_METHOD $request_method;
                 fastcgi_param CONTENT_TYPE $content_type;
                 fastcgi_param CONTENT_LENGTH $content_length;
             }}
             {lines}",
            socket = socket.display(),
            backend = backend.display(),
            folder = folder.display(),
        );
        eventually("fcgiwrap listens", || socket.exists().then_some(()));
        GitServer {
            nginx: start(&locations),
            fcgiwrap,
            dir,
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.nginx.http
    }

    pub(crate) fn nginx(&self) -> &Nginx {
        &self.nginx
    }

    /// The path of a repository, for those who need no server.
    pub(crate) fn repository(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.fcgiwrap.kill();
        let _ = self.fcgiwrap.wait();
    }
}
