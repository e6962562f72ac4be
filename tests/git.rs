//! git over HTTP through a pair of gateways: clones, fetches, pushes.

mod common;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use common::{
    git::{GitServer, commit_version, git, tree},
    listeners::AllListeners,
    nginx::Nginx,
    programs::are_installed,
};

/// A way from git to its server.
struct Way {
    name: &'static str,
    /// For git's `http.proxy`; nothing where the URL leads through the pair by itself.
    proxy: String,
    url: String,
}

/// Each kind of listener, and what git has to be told to take it to `path` of the server.
fn ways(world: &AllListeners, server: SocketAddr, path: &str) -> [Way; 3] {
    let way = |name, proxy, host| Way {
        name,
        proxy,
        url: format!("http://{host}/{path}"),
    };
    [
        way("forward", String::new(), world.forward),
        way("http-proxy", world.proxy(), server),
        way("socks5", format!("socks5h://{}", world.socks), server),
    ]
}

impl Way {
    /// Clones into a folder that is named as the way is, and checks all of it.
    #[track_caller]
    fn clone(&self, folder: &Path) -> PathBuf {
        self.git(folder, &["clone", "--quiet", &self.url, self.name]);
        let cloned = folder.join(self.name);
        assert_eq!(
            git(&cloned, &["status", "--porcelain"]),
            "",
            "{}",
            self.name
        );
        git(&cloned, &["fsck", "--strict"]);
        cloned
    }

    #[track_caller]
    fn git(&self, folder: &Path, arguments: &[&str]) -> String {
        let proxy = format!("http.proxy={}", self.proxy);
        git(folder, &[&["-c", &proxy], arguments].concat())
    }
}

/// A repository in `folder` with some history.
fn work(folder: &Path) -> PathBuf {
    git(
        folder,
        &["init", "--quiet", "--initial-branch=main", "work"],
    );
    let work = folder.join("work");
    for version in 0..5 {
        commit_version(&work, version);
    }
    work
}

/// Serves a packed copy of `work` there.
fn publish(work: &Path, served: &Path) {
    let (work, served) = (work.display().to_string(), served.display().to_string());
    let folder = Path::new("/");
    git(
        folder,
        &["clone", "--quiet", "--bare", "--no-local", &work, &served],
    );
}

#[test]
fn clones_over_dumb_http() {
    if !are_installed(&["nginx", "git"]) {
        return;
    }
    let nginx = Nginx::start();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let work = work(folder.path());
    let served = nginx.www().join("project.git");
    publish(&work, &served);
    git(&served, &["update-server-info"]);

    let world = AllListeners::to(nginx.http);
    let costs = ways(&world, nginx.http, "project.git").map(|way| {
        let before = world.pair.near.link_bytes();
        let cloned = way.clone(folder.path());
        assert_eq!(tree(&cloned, "HEAD"), tree(&work, "HEAD"), "{}", way.name);
        world.pair.near.link_bytes() - before
    });
    assert_later_clones_are_cheap(costs);
}

#[test]
fn clones_fetches_and_pushes_over_smart_http() {
    if !are_installed(&GitServer::PROGRAMS) {
        return;
    }
    let server = GitServer::start();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let work = work(folder.path());
    let served = server.repository("project.git");
    publish(&work, &served);

    let world = AllListeners::to(server.address());
    let ways = ways(&world, server.address(), "git/project.git");
    let costs = ways.each_ref().map(|way| {
        let before = world.pair.near.link_bytes();
        let cloned = way.clone(folder.path());
        assert_eq!(tree(&cloned, "HEAD"), tree(&work, "HEAD"), "{}", way.name);
        world.pair.near.link_bytes() - before
    });
    assert_later_clones_are_cheap(costs);

    let directly = served.display().to_string();
    for (version, way) in (10..).step_by(2).zip(&ways) {
        let cloned = folder.path().join(way.name);
        // Somebody else's commit comes with a fetch.
        git(&work, &["pull", "--quiet", "--ff-only", &directly, "main"]);
        commit_version(&work, version);
        git(&work, &["push", "--quiet", &directly, "main"]);
        way.git(&cloned, &["pull", "--quiet", "--ff-only"]);
        assert_eq!(tree(&cloned, "HEAD"), tree(&work, "HEAD"), "{}", way.name);
        // Our own goes with a push.
        commit_version(&cloned, version + 1);
        way.git(&cloned, &["push", "--quiet"]);
        assert_eq!(tree(&served, "main"), tree(&cloned, "HEAD"), "{}", way.name);
        git(&cloned, &["fsck", "--strict"]);
    }
    git(&served, &["fsck", "--strict"]);
}

#[test]
fn pushes_a_whole_repository() {
    if !are_installed(&GitServer::PROGRAMS) {
        return;
    }
    let server = GitServer::start();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let work = work(folder.path());
    let world = AllListeners::to(server.address());
    for way in ways(&world, server.address(), "git") {
        let empty = server.repository(way.name);
        git(
            &work,
            &["init", "--quiet", "--bare", &empty.display().to_string()],
        );
        let url = format!("{}/{}", way.url, way.name);
        // What is longer than this buffer goes chunked.
        way.git(
            &work,
            &[
                "-c",
                "http.postBuffer=65536",
                "push",
                "--quiet",
                &url,
                "main",
            ],
        );
        assert_eq!(tree(&empty, "main"), tree(&work, "main"), "{}", way.name);
        git(&empty, &["fsck", "--strict"]);
    }
}

/// What each clone cost on the link, of the same repository by different ways.
#[track_caller]
fn assert_later_clones_are_cheap(costs: [u64; 3]) {
    println!("bytes on the link: {costs:?}");
    let [first, later @ ..] = costs;
    // A pack is compressed as it is, and new.
    assert!(first > 150_000, "a clone does not fit into {first} bytes");
    // Smart HTTP cuts a pack into lines as the server's pipe happens to be read, and each cut
    // that was not there before costs up to some hundred bytes.
    for again in later {
        assert!(again < first / 5, "{again} bytes, {first} at first");
    }
}
