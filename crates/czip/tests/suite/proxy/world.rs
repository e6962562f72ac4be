//! An origin that has files, and a proxy before it.

pub(crate) use crate::making::{archive, archive_of, creating, noise};

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::running::Running;
use refrain_czip::{
    get::CacheOptions,
    serve::proxy::{Proxy, ProxyOptions, ProxyStatus},
};
use tempfile::TempDir;

use super::{
    client::{Answer, Client},
    server::{File, Reply, Request, Server},
};

/// What becomes of a right answer.
pub(crate) type Change = Box<dyn Fn(&Request, Reply) -> Reply + Send + Sync>;

/// A web server with files, by path.
pub(crate) struct Origin {
    files: Arc<Mutex<HashMap<String, File>>>,
    change: Arc<Mutex<Change>>,
    pub server: Server,
}

impl Origin {
    pub(crate) fn new() -> Self {
        let files: Arc<Mutex<HashMap<String, File>>> = Arc::default();
        let change: Arc<Mutex<Change>> = Arc::new(Mutex::new(Box::new(|_, reply| reply)));
        let (all, how) = (files.clone(), change.clone());
        let server = Server::start(move |request| {
            let file = all.lock().unwrap().get(&request.path).cloned();
            let reply = match file {
                Some(file) => file.reply(request),
                None => Reply::new(404, "there is no such file\n"),
            };
            how.lock().unwrap()(request, reply)
        });
        Self {
            files,
            change,
            server,
        }
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8], etag: &'static str) {
        let bytes = bytes.to_vec();
        let file = File { bytes, etag };
        self.files.lock().unwrap().insert(path.to_owned(), file);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.files.lock().unwrap().remove(path);
    }

    pub(crate) fn change(&self, change: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) {
        *self.change.lock().unwrap() = Box::new(change);
    }

    /// From now on sends all of a file, whatever of it is asked for.
    pub(crate) fn send_wholes(&self) {
        let files = self.files.clone();
        self.change(move |request, reply| {
            let file = files.lock().unwrap().get(&request.path).cloned();
            file.map_or(reply, |file| file.whole())
        });
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// Requests for a path.
    pub(crate) fn requests_for(&self, path: &str) -> Vec<Request> {
        let all = self.server.requests().into_iter();
        all.filter(|request| request.path == path).collect()
    }
}

/// A proxy.
pub(crate) struct World {
    pub origin: Arc<Origin>,
    pub folder: Arc<TempDir>,
    pub address: SocketAddr,
    proxy: Arc<Proxy>,
    running: Running,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ProxyOptions)) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        Self::before(Arc::new(Origin::new()), Arc::new(folder), change)
    }

    /// Another proxy with this one's folder and origin.
    pub(crate) fn again(&self) -> Self {
        Self::before(self.origin.clone(), self.folder.clone(), |_| {})
    }

    fn before(
        origin: Arc<Origin>,
        folder: Arc<TempDir>,
        change: impl FnOnce(&mut ProxyOptions),
    ) -> Self {
        let mut options = ProxyOptions::new(&origin.url(), folder.path().join("cache"));
        options.remembered = Duration::from_secs(600);
        change(&mut options);
        let proxy = Arc::new(Proxy::new(&options).expect("an address"));
        let server = proxy.clone();
        let running = Running::start(async move |listener, stopped| {
            server.run(listener, stopped, std::future::pending()).await
        });
        Self {
            origin,
            folder,
            address: running.address,
            proxy,
            running,
        }
    }

    pub(crate) fn status(&self) -> ProxyStatus {
        self.proxy.status()
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// An answer, if it is whole.
    pub(crate) fn try_get(&self, path: &str, headers: &[(&str, &str)]) -> Option<Answer> {
        let mut client = self.client();
        client.ask("GET", path, headers, b"");
        client.answer(false)
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.try_get(path, headers).expect("a whole answer")
    }

    #[track_caller]
    pub(crate) fn head(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut client = self.client();
        client.ask("HEAD", path, headers, b"");
        client.answer(true).expect("an answer")
    }

    /// Tells the proxy to stop, and does not wait for it.
    pub(crate) fn stop(&mut self) {
        self.running.stop();
    }

    pub(crate) fn wait(&mut self) {
        self.running.wait();
    }
}

/// Files of a release: some of them are other ones in each, all have another time.
pub(crate) fn release(number: u64) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for file in 0..40_u64 {
        let is_changed = file % 9 == number % 9;
        let seed = file * 100 + if is_changed { number } else { 0 };
        let content = noise(seed, 19_000 + 1700 * file as usize);
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000 + number * 1000 + file);
        let path = format!("release-{number}/file-{file}");
        tar.append_data(&mut header, Path::new(&path), &content[..])
            .expect("memory takes it");
    }
    tar.into_inner().expect("memory takes it")
}

/// The bound on disk of a proxy.
pub(crate) fn bound(options: &mut ProxyOptions, bytes_max: u64) {
    options.cache = CacheOptions {
        bytes_max,
        ..options.cache.clone()
    };
}
