//! Package managers that use an index at a plain address: what its links lead to crosses the pair too.

use std::{fs, net::SocketAddr, path::PathBuf, process::Command};

use super::common::{
    addresses::free_address,
    content::letters,
    digest,
    git::{GitServer, git},
    nginx::Nginx,
    packages::{cargo_project, cargo_vendor, publish_crate, publish_wheel},
    programs::{are_installed, are_large_ones_installed, find, run_ok},
    sha256,
    site::Pair,
};

/// A site and another host, which serve a request only if it came through the pair.
struct Mirror {
    site: Nginx,
    files: Nginx,
    listen: SocketAddr,
    pair: Pair,
}

impl Mirror {
    fn start() -> Mirror {
        let only_by_pair = "if ($http_via = \"\") { return 403; }
             location = /content { default_type application/json; }";
        let [site, files] = [(); 2].map(|()| Nginx::start_with_tls_and_lines(only_by_pair));
        let listen = free_address();
        let service = format!("{listen}={},{}", url_of(&site), authority_of(&files));
        let [first, second] =
            [&site, &files].map(|nginx| nginx.certificate().display().to_string());
        let pair = Pair::start(
            &["--origin-ca", &first, "--origin-ca", &second],
            &["--service", &service],
        );
        Mirror {
            site,
            files,
            listen,
            pair,
        }
    }

    /// An empty folder of a client.
    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.pair.site.path(name);
        fs::create_dir(&folder).expect("a new folder");
        folder
    }
}

fn authority_of(nginx: &Nginx) -> String {
    format!("localhost:{}", nginx.https.expect("it has TLS").port())
}

fn url_of(nginx: &Nginx) -> String {
    format!("https://{}", authority_of(nginx))
}

#[test]
fn cargo_gets_crates_of_another_host_by_a_sparse_index() {
    if !are_installed(&["nginx", "openssl", "tar", "cargo"]) {
        return;
    }
    let mirror = Mirror::start();
    let (site, files) = (&mirror.site, &mirror.files);
    let published = publish_crate(&mirror.folder("made"), &site.www(), &files.www());
    let configuration = format!(
        "{{\"dl\":\"{}/crates/{{crate}}-{{version}}.crate\",\"api\":\"{}\"}}",
        url_of(files),
        url_of(files)
    );
    site.serve("config.json", configuration.as_bytes());
    let user = mirror.folder("user");
    cargo_project(&user, &format!("http://{}", mirror.listen));
    let mut cargo = Command::new(find("cargo").expect("its presence was tested"));
    let source = cargo_vendor(&mut cargo, &user);
    let vendored = cargo.env_remove("http_proxy").output().expect("it runs");
    let error = String::from_utf8_lossy(&vendored.stderr);
    assert!(vendored.status.success(), "{error}");
    assert_eq!(
        digest(&fs::read(source).expect("a crate")),
        digest(&published)
    );
}

#[test]
fn pip_gets_files_of_another_host_by_pages() {
    if !are_large_ones_installed(&["nginx", "openssl", "zip", "pip3"]) {
        return;
    }
    let mirror = Mirror::start();
    let (site, files) = (&mirror.site, &mirror.files);
    let url = format!("{}/", url_of(files));
    let content = publish_wheel(&mirror.folder("made"), &site.www(), &files.www(), &url);
    let index = format!("http://{}/simple/", mirror.listen);
    let user = mirror.folder("user");
    run_ok(
        "pip3",
        &user,
        &[
            "--isolated",
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--no-cache-dir",
            "--index-url",
            &index,
            "--target",
            "there",
            "content",
        ],
    );
    let received = fs::read(user.join("there/content.py")).expect("a module");
    assert_eq!(digest(&received), digest(&content));
}

#[test]
fn npm_gets_packages_of_the_site_and_checks_their_sums() {
    if !are_large_ones_installed(&["nginx", "openssl", "tar", "npm"]) {
        return;
    }
    let mirror = Mirror::start();
    let made = mirror.folder("made");
    fs::create_dir(made.join("package")).expect("a new folder");
    let manifest = "{\"name\":\"content\",\"version\":\"1.0.0\"}";
    fs::write(made.join("package/package.json"), manifest).expect("a new file");
    let text = letters(1, 300_000);
    fs::write(made.join("package/text"), &text).expect("a new file");
    run_ok("tar", &made, &["-czf", "content.tgz", "package"]);
    let package = fs::read(made.join("content.tgz")).expect("a package");
    fs::create_dir(mirror.site.www().join("files")).expect("a new folder");
    mirror.site.serve("files/content.tgz", &package);
    let sum = run_ok(
        "openssl",
        &made,
        &["dgst", "-sha512", "-binary", "content.tgz"],
    );
    fs::write(made.join("sum"), sum).expect("a new file");
    let sum = run_ok("openssl", &made, &["base64", "-A", "-in", "sum"]);
    let sum = String::from_utf8(sum).expect("text");
    let site = url_of(&mirror.site);
    let versions = format!(
        "{{\"name\":\"content\",\"dist-tags\":{{\"latest\":\"1.0.0\"}},\"versions\":{{\"1.0.0\":{{\"name\":\"content\",\
         \"version\":\"1.0.0\",\"dist\":{{\"tarball\":\"{site}/files/content.tgz\",\"integrity\":\"sha512-{sum}\"}}}}}}}}"
    );
    mirror.site.serve("content", versions.as_bytes());

    let user = mirror.folder("user");
    fs::write(user.join("package.json"), "{}").expect("a new file");
    let registry = format!("http://{}/", mirror.listen);
    let install = ["install", "--no-audit", "--no-fund", "--loglevel=error"];
    run_ok(
        "npm",
        &user,
        &[&install[..], &["--registry", &registry, "content"]].concat(),
    );
    let received = fs::read(user.join("node_modules/content/text")).expect("a package");
    assert_eq!(digest(&received), digest(&text));
}

#[test]
fn git_gets_large_files_of_the_site() {
    if !are_installed(&GitServer::PROGRAMS) || !are_large_ones_installed(&["git-lfs"]) {
        return;
    }
    let content = letters(1, 300_000);
    let (sum, size) = (sha256(&content), content.len());
    let batch = format!(
        "{{\"transfer\":\"basic\",\"objects\":[{{\"oid\":\"{sum}\",\"size\":{size},\"actions\":\
         {{\"download\":{{\"href\":\"http://$http_host/large\"}}}}}}]}}"
    );
    let server = GitServer::start_with_lines(&format!(
        "location = /git/repository.git/info/lfs/objects/batch {{
             default_type application/vnd.git-lfs+json;
             return 200 '{batch}';
         }}
         location = /large {{ if ($http_via = \"\") {{ return 403; }} }}"
    ));
    server.nginx().serve("large", &content);
    let repository = server.repository("repository.git");
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{sum}\nsize {size}\n");
    fs::create_dir(&repository).expect("a new folder");
    git(&repository, &["init", "--quiet"]);
    fs::write(repository.join(".gitattributes"), "large filter=lfs\n").expect("a new file");
    fs::write(repository.join("large"), pointer).expect("a new file");
    git(&repository, &["add", "--all"]);
    git(
        &repository,
        &["commit", "--quiet", "--message", "a pointer"],
    );

    let listen = free_address();
    let service = format!("{listen}=http://{}", server.address());
    let pair = Pair::start(&[], &["--service", &service]);
    let user = pair.site.path("user");
    fs::create_dir(&user).expect("a new folder");
    // Its settings are in HOME, which is this folder.
    run_ok("git", &user, &["lfs", "install", "--skip-repo"]);
    let url = format!("http://{listen}/git/repository.git");
    run_ok("git", &user, &["clone", "--quiet", &url, "clone"]);
    let received = fs::read(user.join("clone/large")).expect("a file");
    assert_eq!(digest(&received), digest(&content));
}
