//! Ways to bring a file to the near end that has the version before it: rsync and zstd.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use refrain_link::End;

use super::{super::content::Object, Stage};
use crate::processes::Running;

/// rsync's daemon at the far end, and a folder at the near end.
pub(in crate::peers) struct Rsync<'a> {
    stage: Stage<'a>,
    url: String,
    folder: tempfile::TempDir,
    _daemon: Running,
}

impl<'a> Rsync<'a> {
    pub(super) fn start(stage: Stage<'a>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("rsyncd.conf");
        let text = format!(
            "use chroot = no\nlog file = {}\n[files]\npath = {}\nread only = yes\n",
            folder.path().join("log").display(),
            stage.web.root().display(),
        );
        fs::write(&config, text)?;
        let address = stage.place.address(End::Far);
        let mut command = stage.place.command(End::Far, "rsync");
        command
            .args(["--daemon", "--no-detach"])
            .arg(format!("--address={}", address.ip()))
            .arg(format!("--port={}", address.port()))
            .arg(format!("--config={}", config.display()));
        Ok(Self {
            stage,
            url: format!("rsync://{address}/files"),
            _daemon: stage.place.serve(End::Far, &mut command, address)?,
            folder,
        })
    }

    /// Onto the object before, if there was one.
    pub(super) fn transfer(&self, object: &Object) -> anyhow::Result<Duration> {
        let here = self.folder.path().join("here");
        let began = Instant::now();
        let mut command = self.stage.place.command(End::Near, "rsync");
        command
            .args(["--times", "--compress"])
            .arg(format!("{}/{}", self.url, object.path))
            .arg(&here);
        run(&mut command)?;
        let took = began.elapsed();
        ensure!(fs::read(&here)? == object.bytes, "{} differs", object.path);
        Ok(took)
    }
}

/// A server that sends what `zstd --patch-from` makes of an object and the one before it.
pub(in crate::peers) struct ZstdPatch<'a> {
    stage: Stage<'a>,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl<'a> ZstdPatch<'a> {
    pub(super) fn start(stage: Stage<'a>) -> anyhow::Result<Self> {
        let address = stage.place.address(End::Far);
        let listener = stage
            .place
            .at(End::Far, || Ok(TcpListener::bind(address)?))?;
        let root = stage.web.root().to_owned();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client notices what fails: it decodes and compares.
                match send_patch(stream, &root) {
                    Ok(is_over) if is_over => return,
                    Ok(_) => (),
                    Err(error) => eprintln!("zstd: {error:#}"),
                }
            }
        });
        Ok(Self {
            stage,
            address,
            folder: tempfile::tempdir()?,
        })
    }

    pub(super) fn transfer(&self, object: &Object) -> anyhow::Result<Duration> {
        // The object that both ends have. It is a file of its own: zstd makes no patch from a file to itself.
        let here = self.folder.path().join("here");
        let before = here.exists().then_some(here.as_path());
        let began = Instant::now();
        let body = self.stage.place.at(End::Near, || {
            let mut stream = TcpStream::connect(self.address)?;
            let name = before.unwrap_or(Path::new("")).display();
            writeln!(stream, "{name}\t{}", object.file.display())?;
            let mut command = zstd(before);
            command.arg("-d").stdin(OwnedFd::from(stream));
            run(&mut command)
        })?;
        let took = began.elapsed();
        ensure!(body == object.bytes, "{} differs", object.path);
        fs::write(here, body)?;
        Ok(took)
    }
}

impl Drop for ZstdPatch<'_> {
    fn drop(&mut self) {
        // An empty request ends the server.
        let _ = self.stage.place.at(End::Near, || {
            Ok(writeln!(TcpStream::connect(self.address)?)?)
        });
    }
}

/// Answers a request: the object that the client has, a tab, the object that it wants. Says whether that was
/// the last one.
fn send_patch(stream: TcpStream, root: &Path) -> anyhow::Result<bool> {
    let mut request = String::new();
    BufReader::new(&stream).read_line(&mut request)?;
    let Some((before, object)) = request.trim_end_matches('\n').split_once('\t') else {
        return Ok(true);
    };
    ensure!(Path::new(object).starts_with(root), "not a served file");
    let before = (!before.is_empty()).then_some(Path::new(before));
    let mut command = zstd(before);
    command.arg("-3").arg(object).stdout(OwnedFd::from(stream));
    run(&mut command)?;
    Ok(false)
}

fn zstd(before: Option<&Path>) -> Command {
    let mut command = Command::new("zstd");
    command.args(["-q", "-c"]);
    if let Some(before) = before {
        command.arg(format!("--patch-from={}", before.display()));
    }
    command
}

/// Runs a program to its end, and gives what it wrote.
fn run(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stderr(Stdio::piped()).output()?;
    ensure!(
        output.status.success(),
        "{:?}: {}",
        command.get_program(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output.stdout)
}
