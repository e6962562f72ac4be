//! Caches that know nothing, in front of a server that knows chunks (the paper's section 6.2): what leaves
//! the server when many clients fetch a file, and then one that is much like it.
//!
//! Four edges are nginx. Clients are processes of their own, some at a time, which keep nothing from file
//! to file; what each wrote is compared and removed. The same edges and as many clients with the plain
//! files, each client at one of the edges, are what it is held against.

mod edge;

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::{
    Setup,
    data::{DataSet, bytes_of},
    origin::Origin,
    ways::are_installed,
};
use crate::{
    chapters::Figures,
    targets::{Target, at_most},
};
use edge::Edge;

const EDGES: usize = 4;
const CLIENTS: usize = 100;
/// Clients at a time: as many as two processors and a disk have any use for.
const CLIENTS_AT_A_TIME: usize = 12;

/// What left the server.
#[derive(Serialize, Deserialize)]
pub(super) struct Cdn {
    /// `None` where data or programs are not there.
    passes: Option<Vec<Pass>>,
}

/// What clients fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum WhatItIs {
    /// What is in an archive, by chunks.
    Chunks,
    /// An archive, as any file.
    Archive,
    /// The file as it is.
    Plain,
}

impl WhatItIs {
    fn in_words(self) -> &'static str {
        match self {
            Self::Chunks => "by chunks",
            Self::Archive => "the archive as an ordinary file",
            Self::Plain => "the plain tar",
        }
    }
}

/// All clients fetching a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pass {
    what: String,
    what_it_is: WhatItIs,
    is_second: bool,
    is_one_killed: bool,
    /// Of the file that is fetched: the archive, or the plain one.
    file_bytes: u64,
    plain_bytes: u64,
    origin_bytes: u64,
    origin_requests: u64,
    /// What edges and origin sent to clients.
    edges_bytes: u64,
    wall_s: f64,
}

impl Pass {
    fn of_files(&self) -> f64 {
        self.origin_bytes as f64 / (CLIENTS as u64 * self.file_bytes) as f64
    }

    fn of_plain(&self) -> f64 {
        self.origin_bytes as f64 / (CLIENTS as u64 * self.plain_bytes) as f64
    }
}

impl Figures<Setup<'_>> for Cdn {
    const NAME: &'static str = "cdn";
    const TITLE: &'static str = "Caches in front of a server that knows chunks";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let files = || {
            let file = |name| setup.data.file(DataSet::Django, name);
            anyhow::Ok([file("d10.tar")?, file("d11.tar")?])
        };
        let files = match files() {
            Ok(files) if are_installed(&["nginx", "curl"]) => files,
            Ok(_) => {
                eprintln!("cdn: skipped: nginx or curl is not installed");
                return Ok(Self { passes: None });
            }
            Err(error) => {
                eprintln!("cdn: not available: {error:#}");
                return Ok(Self { passes: None });
            }
        };
        let mut passes = of_chunks(setup, &files)?;
        passes.extend(of_whole_files(setup, &files, WhatItIs::Archive)?);
        passes.extend(of_whole_files(setup, &files, WhatItIs::Plain)?);
        let passes = Some(passes);
        Ok(Self { passes })
    }

    fn targets(&self) -> Vec<Target> {
        let second = |what_it_is: WhatItIs| {
            let passes = self.passes.as_ref()?;
            let mut seconds = passes.iter().filter(|pass| pass.is_second);
            seconds.find(|pass| pass.what_it_is == what_it_is && !pass.is_one_killed)
        };
        let over_plain = || {
            let (ours, plain) = (second(WhatItIs::Chunks)?, second(WhatItIs::Plain)?);
            let ratio = ours.origin_bytes as f64 / plain.origin_bytes as f64;
            let (ours, plain) = (
                ours.origin_bytes as f64 / 1e6,
                plain.origin_bytes as f64 / 1e6,
            );
            let text = format!("{ratio:.3} ({ours:.1} of {plain:.1} MB)");
            Some(at_most(ratio, 0.3, text))
        };
        vec![
            Target {
                what: "a second file for 100 clients of 4 caches: bytes from the server, share of the archives fetched",
                asked: "≤ 1 %",
                measured: second(WhatItIs::Chunks).map(|pass| {
                    let percent = 100.0 * pass.of_files();
                    let plain = 100.0 * pass.of_plain();
                    let text = format!("{percent:.2} % (of the plain files: {plain:.2} %)");
                    at_most(percent, 1.0, text)
                }),
            },
            Target {
                what: "the same bytes, over those for the plain file",
                asked: "≤ 0.3",
                measured: over_plain(),
            },
        ]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        let Some(passes) = &self.passes else {
            *page += "Not available.\n";
            return Ok(());
        };
        write!(
            page,
            "{EDGES} caches (nginx, `proxy_cache`, `proxy_cache_lock on`) are in front of one `refrain czip serve`.\n\
             {CLIENTS} clients, {CLIENTS_AT_A_TIME} at a time, fetch Django 4.2.10 and then 4.2.11\n\
             (`--profile shared`) with `refrain czip get URL --edge …` and all caches. They keep no data between\n\
             the files. Then the same number of clients fetch the archives and the plain tars with `curl`, as ordinary files.\n\
             The caches are empty again, and client *i* uses cache *i* mod {EDGES}. Each output was compared. *Left\n\
             the server*: all bytes on its connections, with HTTP headers. *Delivered*: bytes from caches to\n\
             clients, with HTTP headers. They are unknown for a cache that was killed.\n\n\
             | | left the server, MB | requests | delivered, MB | of the files fetched | of the plain files | s |\n\
             |---|--:|--:|--:|--:|--:|--:|\n",
        )?;
        for pass in passes {
            writeln!(
                page,
                "| {} | {:.2} | {} | {:.0} | {:.2} % | {:.2} % | {:.0} |",
                pass.what,
                pass.origin_bytes as f64 / 1e6,
                pass.origin_requests,
                pass.edges_bytes as f64 / 1e6,
                100.0 * pass.of_files(),
                100.0 * pass.of_plain(),
                pass.wall_s,
            )?;
        }
        *page += "\nThe paper's figures are from other machines and other data: CZIP (Park et al., USENIX ATC 2007,\n\
                  section 6.2). About 100 clients fetch the first 100 MB of a DVD of Fedora. Then they fetch\n\
                  its first 50 MB through the same caches.\n\n\
                  | the paper's second file | MB | left the server, MB | of the files fetched |\n\
                  |---|--:|--:|--:|\n\
                  | by chunks | 28.9 | 24 | 0.8 % |\n\
                  | the plain file | 50 | 92 | |\n";
        Ok(())
    }
}

/// Server, caches, and a folder for them, until dropped.
struct World {
    origin: Origin,
    edges: Vec<Mutex<Option<Edge>>>,
    urls: Vec<String>,
    folder: tempfile::TempDir,
}

impl World {
    fn start(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir_in(setup.data.folder())?;
        let served = folder.path().join("served");
        fs::create_dir(&served)?;
        let origin = Origin::start(setup.refrain, &served, Duration::ZERO)?;
        let mut edges = Vec::new();
        for number in 0..EDGES {
            let at = folder.path().join(format!("edge-{number}"));
            edges.push(Edge::start(origin.address(), &at)?);
        }
        Ok(Self {
            urls: edges.iter().map(Edge::url).collect(),
            edges: edges
                .into_iter()
                .map(|edge| Mutex::new(Some(edge)))
                .collect(),
            origin,
            folder,
        })
    }

    fn served(&self, name: &str) -> PathBuf {
        self.folder.path().join("served").join(name)
    }

    /// What all caches sent. One that was killed has no say.
    fn sent_bytes(&self) -> anyhow::Result<u64> {
        let sent = self
            .edges
            .iter()
            .map(|edge| match &*edge.lock().expect("no panic") {
                Some(edge) => edge.sent_bytes(),
                None => Ok(0),
            });
        sent.sum()
    }

    /// Has all clients fetch, and says what that took. `fetch` makes the command of a client that writes a
    /// file. One cache is killed when half of the clients are done, if that `is_one_killed`.
    fn pass(
        &self,
        plain: &Path,
        fetched: &Path,
        is_one_killed: bool,
        fetch: &(dyn Fn(usize, &Path) -> Command + Sync),
    ) -> anyhow::Result<Pass> {
        let (before, sent_before) = (self.origin.left()?, self.sent_bytes()?);
        let began = Instant::now();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let client = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= CLIENTS {
                    return anyhow::Ok(());
                }
                let out = self.folder.path().join(format!("out-{number}"));
                let output = fetch(number, &out).stdin(Stdio::null()).output()?;
                ensure!(
                    output.status.success(),
                    "client {number}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                ensure!(is_same(&out, plain)?, "client {number}: the file differs");
                fs::remove_file(&out)?;
                if done.fetch_add(1, Ordering::Relaxed) + 1 == CLIENTS / 2 && is_one_killed {
                    drop(self.edges[1].lock().expect("no panic").take());
                }
            }
        };
        thread::scope(|threads| {
            let clients: Vec<_> = (0..CLIENTS_AT_A_TIME)
                .map(|_| threads.spawn(client))
                .collect();
            let mut ends = clients
                .into_iter()
                .map(|client| client.join().expect("no panic"));
            ends.try_for_each(|end| end)
        })?;
        let left = self.origin.left()?.since(before);
        Ok(Pass {
            what: String::new(),
            what_it_is: WhatItIs::Chunks,
            is_second: false,
            is_one_killed,
            file_bytes: bytes_of(fetched)?,
            plain_bytes: bytes_of(plain)?,
            origin_bytes: left.bytes,
            origin_requests: left.requests,
            edges_bytes: self.sent_bytes()?.saturating_sub(sent_before),
            wall_s: began.elapsed().as_secs_f64(),
        })
    }
}

fn of_chunks(setup: &Setup<'_>, files: &[PathBuf; 2]) -> anyhow::Result<Vec<Pass>> {
    let world = World::start(setup)?;
    let mut passes = Vec::new();
    let names = ["Django 4.2.10", "4.2.11, mostly the same as 4.2.10"];
    for (number, (file, what)) in files.iter().zip(names).enumerate() {
        // The second is there when it is published, not before.
        let archive = world.served(&format!("{number}.czip"));
        create(setup, file, &archive)?;
        let url = format!("http://{}/{number}.czip", world.origin.address());
        let get = |_, out: &Path| get(setup, &world, &url, out);
        let pass = world.pass(file, &archive, false, &get)?;
        eprintln!("{what}: {pass:?}");
        passes.push(Pass {
            what: format!("{what}, by chunks"),
            is_second: number == 1,
            ..pass
        });
    }
    drop(world);
    // The same again, and a cache dies while the second file is fetched.
    let world = World::start(setup)?;
    let archives = ["0.czip", "1.czip"].map(|name| world.served(name));
    for (file, archive) in files.iter().zip(&archives) {
        create(setup, file, archive)?;
    }
    let url = |number: usize| format!("http://{}/{number}.czip", world.origin.address());
    let first = world.folder.path().join("first");
    let output = get(setup, &world, &url(0), &first).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let get = |_, out: &Path| get(setup, &world, &url(1), out);
    let pass = world.pass(&files[1], &archives[1], true, &get)?;
    eprintln!("one killed: {pass:?}");
    passes.push(Pass {
        what: "4.2.11 again, 4.2.10 in the caches, and one cache killed when 50 clients are done"
            .to_owned(),
        is_second: true,
        ..pass
    });
    Ok(passes)
}

/// Files that caches know by their URLs alone: the plain tars, and whole archives.
fn of_whole_files(
    setup: &Setup<'_>,
    files: &[PathBuf; 2],
    what_it_is: WhatItIs,
) -> anyhow::Result<Vec<Pass>> {
    let world = World::start(setup)?;
    let mut passes = Vec::new();
    for (number, (file, what)) in files.iter().zip(["Django 4.2.10", "4.2.11"]).enumerate() {
        let served = world.served(&format!("{number}.whole"));
        match what_it_is {
            WhatItIs::Archive => create(setup, file, &served)?,
            _ => {
                fs::copy(file, &served)?;
            }
        }
        let fetch = |client: usize, out: &Path| {
            let mut curl = Command::new("curl");
            let url = format!("{}/{number}.whole", world.urls[client % EDGES]);
            curl.args(["-s", "-S", "-f", "--noproxy", "*", "-o"])
                .arg(out)
                .arg(url);
            curl
        };
        let pass = world.pass(&served, &served, false, &fetch)?;
        let what = format!("{what}, {}", what_it_is.in_words());
        eprintln!("{what}: {pass:?}");
        passes.push(Pass {
            what,
            what_it_is,
            is_second: number == 1,
            plain_bytes: bytes_of(file)?,
            ..pass
        });
    }
    Ok(passes)
}

fn create(setup: &Setup<'_>, file: &Path, archive: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(setup.refrain);
    command.args(["czip", "create", "--profile", "shared", "-o"]);
    let output = command.arg(archive).arg(file).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The command of a client.
fn get(setup: &Setup<'_>, world: &World, url: &str, out: &Path) -> Command {
    let mut command = Command::new(setup.refrain);
    command
        .args(["czip", "get", url, "--threads", "1", "-o"])
        .arg(out);
    for edge in &world.urls {
        command.args(["--edge", edge]);
    }
    command.env_remove("http_proxy").env_remove("all_proxy");
    command
}

fn is_same(one: &Path, other: &Path) -> anyhow::Result<bool> {
    let status = Command::new("cmp").arg("-s").arg(one).arg(other).status();
    Ok(status.context("cannot run cmp")?.success())
}
