//! A pair with all the ways in that a near end has.

use std::{net::SocketAddr, process::Output};

use tempfile::TempDir;

use super::{addresses, programs::run, site::Pair};

/// A pair with all three kinds of listener; the forward leads to one target.
pub(crate) struct AllListeners {
    pub pair: Pair,
    pub forward: SocketAddr,
    pub socks: SocketAddr,
    pub http: SocketAddr,
    /// Where programs run.
    pub scratch: TempDir,
}

impl AllListeners {
    /// Starts the pair, with a forward to `target`.
    pub(crate) fn to(target: SocketAddr) -> AllListeners {
        let (forward, forward_option) = addresses::forward(target);
        let [socks, http] = [(); 2].map(|()| addresses::free_address());
        let pair = Pair::start(
            &[],
            &[
                "--forward",
                &forward_option,
                "--socks5",
                &socks.to_string(),
                "--http-proxy",
                &http.to_string(),
            ],
        );
        AllListeners {
            pair,
            forward,
            socks,
            http,
            scratch: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// The URL of the HTTP proxy.
    pub(crate) fn proxy(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Runs curl, which must succeed; gives what it wrote.
    #[track_caller]
    pub(crate) fn curl(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.curl_output(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "curl {arguments:?}: {error}");
        output.stdout
    }

    /// Runs curl.
    pub(crate) fn curl_output(&self, arguments: &[&str]) -> Output {
        let quiet = ["--disable", "--silent", "--show-error", "--max-time", "30"];
        run("curl", self.scratch.path(), &[&quiet, arguments].concat())
    }
}
