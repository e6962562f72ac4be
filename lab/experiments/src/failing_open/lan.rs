//! Networks of a machine, for which a gateway's machine is the router: one of clients, and one of servers.

use std::{fs, net::Ipv4Addr, path::PathBuf, process::Command};

use refrain_link::{End, Link};

use crate::processes::{Running, ok, wait};

/// The router's interface.
pub(super) const INTERFACE: &str = "lan0";

pub(super) struct Network {
    /// Of the router.
    end: End,
    pub range: &'static str,
    router: Ipv4Addr,
    pub machine: Ipv4Addr,
}

pub(super) const CLIENTS: Network = Network {
    end: End::Near,
    range: "10.99.1.0/24",
    router: Ipv4Addr::new(10, 99, 1, 1),
    machine: Ipv4Addr::new(10, 99, 1, 2),
};

pub(super) const SERVERS: Network = Network {
    end: End::Far,
    range: "10.99.2.0/24",
    router: Ipv4Addr::new(10, 99, 2, 1),
    machine: Ipv4Addr::new(10, 99, 2, 2),
};

/// The machine's namespace, which stands until it is dropped.
pub(super) struct Lan {
    /// A process that does nothing, in there.
    holder: Running,
}

impl Lan {
    pub(super) fn start(link: &Link, network: &Network) -> anyhow::Result<Lan> {
        let mut command = Command::new("unshare");
        let holder = Running::start(command.args(["--net", "sleep", "1d"]))?;
        let lan = Lan { holder };
        let own = fs::read_link("/proc/self/ns/net")?;
        let is_other = || Ok(fs::read_link(lan.namespace())? != own);
        wait(is_other, "a network namespace")?;
        let holder = lan.holder.pid();
        let (router, other) = match network.end {
            End::Near => (End::Near, End::Far),
            End::Far => (End::Far, End::Near),
        };
        let Network {
            range,
            router: address,
            machine,
            ..
        } = network;
        let of_router = format!(
            "ip link add {INTERFACE} type veth peer name {INTERFACE} netns {holder} &&
             ip address add {address}/24 dev {INTERFACE} && ip link set {INTERFACE} up &&
             echo 1 >/proc/sys/net/ipv4/ip_forward"
        );
        let of_machine = format!(
            "ip address add {machine}/24 dev {INTERFACE} && ip link set {INTERFACE} up &&
             ip route add default via {address}"
        );
        let of_other = format!("ip route add {range} dev link0");
        ok(link.command(router, "sh").args(["-c", &of_router]))?;
        let mut command = Command::new("nsenter");
        command.args(["--target", &holder.to_string(), "--net"]);
        ok(command.args(["sh", "-c", &of_machine]))?;
        ok(link.command(other, "sh").args(["-c", &of_other]))?;
        Ok(lan)
    }

    pub(super) fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.pid()).into()
    }
}
