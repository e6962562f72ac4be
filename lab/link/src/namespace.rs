//! An end of a link: a network namespace with one TUN device.

use std::{
    fs::File,
    os::fd::AsFd,
    path::Path,
    process::{Command, id},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use anyhow::{Context, bail};
use rustix::{
    process::geteuid,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::End;

/// Bytes of a packet on the link.
const MTU: u16 = 1500;

#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
    end: End,
}

impl Namespace {
    pub(crate) fn new(end: End) -> anyhow::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{number}", name_prefix(id()));
        ip(&["netns", "add", &name])?;
        let namespace = Self { name, end };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its device, which joins it to the other end.
    pub(crate) fn open_tun(&self) -> anyhow::Result<Arc<SyncDevice>> {
        let (own, other) = (self.end.address(), self.end.other().address());
        let device = self.enter(|| {
            DeviceBuilder::new()
                .name("link0")
                .mtu(MTU)
                .ipv4(own, 32, Some(other))
                .offload(true)
                .build_sync()
                .context("cannot create a TUN device")
        })?;
        Ok(Arc::new(device))
    }

    /// Runs `call` on a thread of its own that is in the namespace.
    pub(crate) fn enter<R: Send>(
        &self,
        call: impl FnOnce() -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        let path = format!("/run/netns/{}", self.name);
        let namespace = File::open(&path).with_context(|| path.clone())?;
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), network).context(path)?;
                call()
            });
            thread.join().expect("a thread at an end does not panic")
        })
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// By the route to the other end: root alone may make some kernels' algorithms a namespace's default.
    pub(crate) fn set_congestion(&self, name: &str) -> anyhow::Result<()> {
        let (own, other) = (self.end.address(), self.end.other().address());
        let (own, other) = (own.to_string(), other.to_string());
        self.ip(&[
            "route", "replace", &other, "dev", "link0", "src", &own, "congctl", name,
        ])
    }

    /// Ends what reads from its device.
    pub(crate) fn remove_device(&self) {
        let _ = self.ip(&["link", "delete", "link0"]);
    }

    fn ip(&self, arguments: &[&str]) -> anyhow::Result<()> {
        ip(&[&["-netns", &self.name], arguments].concat()).map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// What links need and this system lacks.
pub(crate) fn missing() -> Option<&'static str> {
    if !geteuid().is_root() {
        return Some("root");
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("/dev/net/tun");
    }
    ip(&["-V"]).is_err().then_some("ip (package iproute2)")
}

/// What the names of a process's namespaces begin with.
pub(crate) fn name_prefix(process: u32) -> String {
    format!("refrain-link-{process}-")
}

/// Runs `ip` and gives what it prints.
pub(crate) fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.context("cannot run ip (package iproute2)")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("ip {}: {}", arguments.join(" "), error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
