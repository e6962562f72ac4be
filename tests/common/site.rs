//! A pair of gateways and what belongs to it: keys, configurations, logs, addresses.

use std::{fs, net::SocketAddr, path::PathBuf, process::Stdio};

use refrain_gateway::keys::PublicKey;
use tempfile::TempDir;

use super::{addresses::free_address, command::keygen, gateway::Gateway};

/// Both ends, with keys of their own, and a link between them.
pub(crate) struct Pair {
    pub near: Gateway,
    pub far: Gateway,
    pub site: Site,
}

/// Where a pair's keys, configurations and logs lie, and where its far end listens.
pub(crate) struct Site {
    dir: TempDir,
    pub far_listen: SocketAddr,
    pub near_key: String,
    pub far_key: String,
}

impl Pair {
    /// Starts both ends with these options and the necessary ones.
    pub(crate) fn start(far_options: &[&str], near_options: &[&str]) -> Pair {
        let site = Site::new();
        let far = site.far(far_options);
        let near = site.near(site.far_listen, near_options);
        near.wait_until_up();
        Pair { near, far, site }
    }

    /// Both ends, by name.
    pub(crate) fn ends(&self) -> [(&'static str, &Gateway); 2] {
        [("near", &self.near), ("far", &self.far)]
    }
}

impl Site {
    pub(crate) fn new() -> Site {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let near_key = keygen(&dir.path().join("near.key"));
        let far_key = keygen(&dir.path().join("far.key"));
        Site {
            dir,
            far_listen: free_address(),
            near_key,
            far_key,
        }
    }

    /// The path of a file of the site.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What the far end's log and tables call a near end without a name.
    pub(crate) fn near_label(&self) -> String {
        let key: PublicKey = self.near_key.parse().expect("a public key");
        key.fingerprint()
    }

    /// Writes a file of the site, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("the site's directory can be written to");
        path.display().to_string()
    }

    /// Starts a far end that accepts the near key.
    pub(crate) fn far(&self, options: &[&str]) -> Gateway {
        self.far_gateway(options, Gateway::start)
    }

    /// The same with a limit on its open files.
    pub(crate) fn far_with_files(&self, files: u32, options: &[&str]) -> Gateway {
        self.far_gateway(options, |command, log, admin| {
            Gateway::start_with_files(command, log, admin, files)
        })
    }

    /// The same with another standard error than its log.
    pub(crate) fn far_with_stderr(&self, stderr: Stdio, options: &[&str]) -> Gateway {
        self.far_gateway(options, |command, log, admin| {
            Gateway::start_with_stderr(command, log, stderr, admin)
        })
    }

    fn far_gateway(
        &self,
        options: &[&str],
        start: impl FnOnce(Vec<String>, PathBuf, SocketAddr) -> Gateway,
    ) -> Gateway {
        let listen = self.far_listen.to_string();
        let mut all = vec!["--listen", &listen];
        if !options.contains(&"--peer-key") && !options.contains(&"--config") {
            all.extend(["--peer-key", &self.near_key]);
        }
        all.extend(options);
        self.gateway("far", "far.key", &all, start)
    }

    /// Starts a near end that dials `peer`.
    pub(crate) fn near(&self, peer: SocketAddr, options: &[&str]) -> Gateway {
        self.near_with_key("near.key", peer, options)
    }

    /// Starts a near end with a limit on its open files.
    pub(crate) fn near_with_files(
        &self,
        peer: SocketAddr,
        files: u32,
        options: &[&str],
    ) -> Gateway {
        let peer = peer.to_string();
        let all = [&["--peer", &peer, "--peer-key", &self.far_key], options].concat();
        self.gateway("near", "near.key", &all, |command, log, admin| {
            Gateway::start_with_files(command, log, admin, files)
        })
    }

    /// Starts a near end that has another key than the far end expects, or a further one.
    pub(crate) fn near_with_key(&self, key: &str, peer: SocketAddr, options: &[&str]) -> Gateway {
        let peer = peer.to_string();
        let mut all = vec!["--peer", &peer];
        if !options.contains(&"--peer-key") {
            all.extend(["--peer-key", &self.far_key]);
        }
        all.extend(options);
        self.gateway("near", key, &all, Gateway::start)
    }

    /// Starts a further far end, with this key of the site.
    pub(crate) fn further_far(&self, key: &str, listen: SocketAddr, options: &[&str]) -> Gateway {
        let listen = listen.to_string();
        let needed = ["--listen", &listen, "--peer-key", &self.near_key];
        let all = [&needed, options].concat();
        self.gateway("far", key, &all, Gateway::start)
    }

    /// Starts a near end of these far ends: what each is called, where it is, and its key.
    pub(crate) fn near_of(&self, peers: &[(&str, SocketAddr, &str)], options: &[&str]) -> Gateway {
        let words = peers.iter().flat_map(|(name, address, key)| {
            let (peer, key) = (format!("{name}={address}"), format!("{name}={key}"));
            ["--peer".to_owned(), peer, "--peer-key".to_owned(), key]
        });
        let words: Vec<String> = words.collect();
        let words = words.iter().map(String::as_str);
        let all: Vec<&str> = words.chain(options.iter().copied()).collect();
        self.gateway("near", "near.key", &all, Gateway::start)
    }

    /// The command that checks the way to `peer` with this key of the site.
    pub(crate) fn check_of(&self, peer: SocketAddr, key: &str, peer_key: &str) -> [String; 7] {
        let (peer, key) = (peer.to_string(), self.path(key).display().to_string());
        let words = [
            "check",
            "--peer",
            &peer,
            "--key",
            &key,
            "--peer-key",
            peer_key,
        ];
        words.map(str::to_owned)
    }

    /// The command that checks the way to the far end, as the near end would go it.
    pub(crate) fn check(&self) -> [String; 7] {
        self.check_of(self.far_listen, "near.key", &self.far_key)
    }

    fn gateway(
        &self,
        role: &str,
        key: &str,
        options: &[&str],
        start: impl FnOnce(Vec<String>, PathBuf, SocketAddr) -> Gateway,
    ) -> Gateway {
        let key = self.path(key).display().to_string();
        let admin = free_address();
        let admin_text = admin.to_string();
        let own = [role, "--key", &key, "--admin", &admin_text];
        let command = own.iter().chain(options).map(|&word| word.to_owned());
        let log = self.path(&format!("{role}-{}.log", admin.port()));
        start(command.collect(), log, admin)
    }
}
