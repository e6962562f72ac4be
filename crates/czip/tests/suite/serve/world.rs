//! A folder, what is in it, and a server of it.

use std::{fs, net::SocketAddr, ops::ControlFlow, path::PathBuf, sync::Arc};

use crate::running::Running;
use refrain_czip::{
    create::{CreateOptions, CreateProgress, Input, Output, create},
    serve::{ServeOptions, Server, Status},
};
use refrain_czip_format::header::Profile;
use tempfile::TempDir;

use crate::client::{Answer, Client};

pub(crate) struct World {
    pub folder: TempDir,
    pub address: SocketAddr,
    server: Arc<Server>,
    running: Running,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(ServeOptions {
            cache_bytes: 64 << 20,
            ..ServeOptions::default()
        })
    }

    pub(crate) fn with(options: ServeOptions) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let server = Server::new(folder.path(), options).expect("a folder");
        let server = Arc::new(server);
        let running = Running::of(server.clone());
        Self {
            folder,
            address: running.address,
            server,
            running,
        }
    }

    pub(crate) fn status(&self) -> Status {
        self.server.status()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes `name` of one file with this content.
    pub(crate) fn archive(&self, name: &str, content: &[u8], options: &CreateOptions) {
        let beside = TempDir::new().expect("a temporary folder");
        let file = beside.path().join("content");
        fs::write(&file, content).expect("a new file");
        self.archive_of(name, vec![Input::Path(file)], options);
    }

    pub(crate) fn archive_of(&self, name: &str, inputs: Vec<Input>, options: &CreateOptions) {
        let output = Output::File(self.path(name));
        let progress = &mut |_: CreateProgress<'_>| ControlFlow::Continue(());
        create(inputs, output, options, progress).expect("an archive");
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut client = self.client();
        client.ask("GET", path, headers, b"");
        client.answer(false).expect("a whole answer")
    }

    pub(crate) fn head(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut client = self.client();
        client.ask("HEAD", path, headers, b"");
        client.answer(true).expect("an answer")
    }

    /// Tells the server to stop, and does not wait for it.
    pub(crate) fn stop(&mut self) {
        self.running.stop();
    }

    pub(crate) fn wait(&mut self) {
        self.running.wait();
    }
}

/// Bytes that do not repeat and compress to three quarters.
pub(crate) fn letters(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..bytes).map(|_| b'0' + (random.u8(..) & 63)).collect()
}

/// A tar archive of members of these lengths.
pub(crate) fn tar_of(seed: u64, members: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (number, bytes) in members.into_iter().enumerate() {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes as u64);
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000 + seed);
        let content = letters(seed * 1000 + number as u64, bytes);
        let name = format!("release-{seed}/file-{number}");
        tar.append_data(&mut header, name, &content[..])
            .expect("memory");
    }
    tar.into_inner().expect("memory")
}

pub(crate) fn options(profile: Profile) -> CreateOptions {
    CreateOptions {
        profile,
        ..CreateOptions::default()
    }
}
