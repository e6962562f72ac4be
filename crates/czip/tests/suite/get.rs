//! Getting what is in archives from web servers, right and wrong ones.

mod cache;
mod changes;
mod hostile;
mod interruptions;
mod keys;
mod named;
mod plans;
mod planted;
mod real_servers;
mod seeds;
mod servers;
mod space;
mod stored;

use crate::{draft, server};

use std::{
    cell::Cell,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::making::{archive_of, creating, noise};
use crate::server::{File, Server};
use refrain_czip::get::{GetError, GetOptions, GetReport, get};
use refrain_http_ranges::{ProxyChoice, RemoteOptions};
use tempfile::TempDir;

/// Files of a release: some of them are other ones in each, all have another time.
fn release(number: u64) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for file in 0..40_u64 {
        let is_changed = file % 9 == number % 9;
        let content = noise(
            file * 100 + if is_changed { number } else { 0 },
            9_000 + 700 * file as usize,
        );
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000 + number * 1000 + file % 2);
        let path = format!("release-{number}/file-{file}");
        tar.append_data(&mut header, Path::new(&path), &content[..])
            .expect("memory takes it");
    }
    tar.into_inner().expect("memory takes it")
}

fn file(bytes: Vec<u8>) -> File {
    File {
        bytes,
        etag: "\"first\"",
    }
}

/// A server that has one file and ranges.
fn serve(bytes: Vec<u8>) -> Server {
    let file = file(bytes);
    Server::start(move |request| file.reply(request))
}

fn options() -> GetOptions {
    GetOptions {
        remote: RemoteOptions {
            gap_bytes: 2_000,
            retries: 2,
            pause_min: Duration::from_micros(10),
            pause_max: Duration::from_micros(100),
            seed: Some(1),
            proxy: ProxyChoice::Direct,
            ..RemoteOptions::default()
        },
        threads: 2,
        ..GetOptions::default()
    }
}

/// A place for outputs, and whether there was one.
struct Place(TempDir, Cell<bool>);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"), Cell::new(false))
    }

    fn output(&self) -> PathBuf {
        self.0.path().join("output")
    }

    fn part(&self) -> PathBuf {
        self.0.path().join("output.part")
    }

    /// A file beside the output.
    fn with(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("a new file");
        path
    }

    /// What an earlier one has brought is not there any more: it would be a seed.
    fn get(&self, server: &Server, options: &GetOptions) -> Result<GetReport, GetError> {
        if self.1.take() {
            fs::remove_file(self.output()).expect("an output");
        }
        let got = get(&server.url(), &self.output(), options, &mut |_| {
            ControlFlow::Continue(())
        });
        self.1.set(got.is_ok());
        got
    }

    /// Fails unless the output is `expected`, and nothing else is left.
    fn assert_is(&self, expected: &[u8]) {
        let output = fs::read(self.output()).expect("an output");
        assert!(output == expected, "another output");
        assert!(!self.part().exists());
    }
}
