//! A network of clients for which the near end's machine is the router.

use std::{fs, net::Ipv4Addr, path::PathBuf, process::Command};

use refrain_link::{End, Link};

use crate::processes::{Running, ok, wait};

/// The router's interface.
pub(super) const INTERFACE: &str = "lan0";
pub(super) const NETWORK: &str = "10.99.1.0/24";
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 99, 1, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 99, 1, 1);

/// A namespace that stands until it is dropped.
pub(super) struct Lan {
    /// A process that does nothing, in there.
    holder: Running,
}

impl Lan {
    pub(super) fn start(link: &Link) -> anyhow::Result<Lan> {
        let mut command = Command::new("unshare");
        let holder = Running::start(command.args(["--net", "sleep", "1d"]))?;
        let lan = Lan { holder };
        let own = fs::read_link("/proc/self/ns/net")?;
        let is_other = || Ok(fs::read_link(lan.namespace())? != own);
        wait(is_other, "a network namespace")?;
        let holder = lan.holder.pid();
        let router = format!(
            "ip link add {INTERFACE} type veth peer name {INTERFACE} netns {holder} &&
             ip address add {ROUTER}/24 dev {INTERFACE} && ip link set {INTERFACE} up &&
             echo 1 >/proc/sys/net/ipv4/ip_forward"
        );
        let clients = format!(
            "ip address add {CLIENT}/24 dev {INTERFACE} && ip link set {INTERFACE} up &&
             ip route add default via {ROUTER}"
        );
        let route = format!("ip route add {NETWORK} dev link0");
        ok(link.command(End::Near, "sh").args(["-c", &router]))?;
        let mut command = Command::new("nsenter");
        command.args(["--target", &holder.to_string(), "--net"]);
        ok(command.args(["sh", "-c", &clients]))?;
        ok(link.command(End::Far, "sh").args(["-c", &route]))?;
        Ok(lan)
    }

    pub(super) fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.pid()).into()
    }
}
