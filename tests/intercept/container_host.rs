//! A machine whose containers are intercepted, with the rules that docker has for them.
//!
//! ```text
//! container 172.30.0.2 ── br-test 172.30.0.1, masquerading, near end 10.77.0.1 ── 10.77.0.2 service
//! ```

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
};

use crate::{
    common::eventually,
    world::{ORIGIN, Outcome, SITE, World, ask, forward, make, ok, outcome, within},
};

/// As docker writes them by iptables, for a network and a port that is published.
const RULES_OF_DOCKER: &str = "
table ip nat {
  chain DOCKER {
    iifname \"br-test\" return
    iifname != \"br-test\" tcp dport 8888 dnat to 172.30.0.2:80
  }
  chain PREROUTING {
    type nat hook prerouting priority dstnat; policy accept;
    fib daddr type local jump DOCKER
  }
  chain OUTPUT {
    type nat hook output priority -100; policy accept;
    ip daddr != 127.0.0.0/8 fib daddr type local jump DOCKER
  }
  chain POSTROUTING {
    type nat hook postrouting priority srcnat; policy accept;
    oifname != \"br-test\" ip saddr 172.30.0.0/16 masquerade
  }
}
table ip filter {
  chain DOCKER {
    iifname != \"br-test\" oifname \"br-test\" ip daddr 172.30.0.2 tcp dport 80 accept
  }
  chain FORWARD {
    type filter hook forward priority filter; policy drop;
    oifname \"br-test\" ct state established,related accept
    oifname \"br-test\" jump DOCKER
    iifname \"br-test\" oifname != \"br-test\" accept
  }
}
";

/// A near end for other machines, on a host with a container.
fn container_host() -> Option<World> {
    let world = World::with("transparent = \"*:15001\"\nclients = [\"172.30.0.0/16\"]\n")?;
    let (host, container) = (&world.site, &world.behind);
    make(container);
    forward(host);
    let network = format!(
        "ip -n {host} link add br-test type bridge
         ip -n {host} address add 172.30.0.1/16 dev br-test
         ip -n {host} link add veth-test type veth peer name eth0 netns {container}
         ip -n {host} link set veth-test master br-test up
         ip -n {host} link set br-test up
         ip -n {container} address add 172.30.0.2/16 dev eth0
         ip -n {container} link set eth0 up
         ip -n {container} route add default via 172.30.0.1"
    );
    ok(Command::new("sh").args(["-ec", &network]));
    let load = || {
        let mut nft = Command::new("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut rules = nft.stdin.take().expect("it is piped");
        rules.write_all(RULES_OF_DOCKER.as_bytes()).expect("a pipe");
        drop(rules);
        assert!(nft.wait().expect("it ends").success());
    };
    within(host, load);
    Some(world)
}

/// Connects to the origin, which sees the host's address of direct connections.
fn connect(namespace: &str) -> Outcome {
    within(namespace, || match TcpStream::connect(ORIGIN) {
        Ok(mut stream) => ask(&mut stream, SITE),
        Err(error) => outcome(error.kind()),
    })
}

#[test]
fn containers_are_intercepted_and_the_rules_of_their_host_stay() {
    let Some(world) = container_host() else {
        return;
    };
    let before = world.ruleset();
    assert_eq!(connect(&world.behind), Outcome::Direct);
    let published = within(&world.behind, || TcpListener::bind("172.30.0.2:80")).expect("a port");
    let reaches_container = || {
        let client = within(&world.service, || TcpStream::connect((SITE, 8888)));
        let client = client.expect("a port that is published");
        let (_, from) = published.accept().expect("a client");
        assert_eq!(Ok(from), client.local_addr().map_err(|_| ()));
    };
    reaches_container();

    world.intercept_with(&["--rule", "in=br-test port=8080-8099"]);
    eventually("a container's connection that is carried", || {
        (connect(&world.behind) == Outcome::Carried).then_some(())
    });
    // Programs of the host, and connections to the container, are left alone.
    assert_eq!(connect(&world.site), Outcome::Direct);
    reaches_container();
    let shown = world.refrain_ok(&["intercept", "show"]);
    assert!(shown.contains("in=br-test"), "{shown}");

    world.refrain_ok(&["intercept", "off"]);
    assert_eq!(connect(&world.behind), Outcome::Direct);
    reaches_container();
    assert_eq!(world.ruleset(), before);
}
