//! Real clients that do not know the CA of opened names: they lose two connections at most, and pass then.

use super::{Access, Way, World, apt_machine, are_here, publish_deb, with_name};
use crate::common::{eventually, programs::are_large_ones_installed};

/// More than a client needs that ends its connections without a reason.
const ATTEMPTS: usize = 3;

/// Runs a client until it succeeds. It trusts the site's own certificate, and goes through the proxy that opens the site.
#[track_caller]
fn passes(world: &World, name: &str, attempt: impl Fn(&Access) -> bool) {
    let mut access = world.access(Way::Opened);
    access.trusted = Some(world.site.nginx().certificate());
    let lost = (0..ATTEMPTS).find(|_| attempt(&access));
    let log = world.pair.near.log();
    assert!(lost.is_some(), "{name} does not get through: {log}");
    assert!(lost > Some(0), "{name} lost no connection: {log}");
    let opening = world.pair.near.status().opening.expect("names");
    assert_eq!(opening.refused_clients, 1, "{name}: {log}");
    let reloads = log.matches("reload").count();
    world.pair.near.signal("HUP");
    eventually("a reload", || {
        (world.pair.near.log().matches("reload").count() > reloads).then_some(())
    });
    std::fs::remove_dir_all(access.folder).expect("a folder");
}

#[test]
fn clients_that_end_connections_without_a_reason_pass_the_third_time() {
    if !are_here(&["apt-get", "dpkg-deb"], &[]) {
        return;
    }
    with_name(|| {
        let world = World::start("");
        publish_deb(&world.site.repository(""), &world.www());
        // GnuTLS ends the handshake and then the connection. What is served is no repository, which is another error.
        passes(&world, "git", |access| {
            let trusted = format!("http.sslCAInfo={}", access.trusted().display());
            let proxy = format!("http.proxy={}", access.proxy().expect("it has one"));
            let url = format!("{}/none.git", access.url());
            let settings = ["-c", &trusted, "-c", &proxy, "ls-remote", &url];
            let output = access.program("git", &settings).output().expect("it runs");
            String::from_utf8_lossy(&output.stderr).contains("not found")
        });
        passes(&world, "apt", |access| {
            let lines = format!(
                "Acquire::https::CaInfo \"{}\"; Acquire::https::Proxy \"{}\"; Acquire::Retries \"0\";\n",
                access.trusted().display(),
                access.proxy().expect("it has one")
            );
            let configuration = apt_machine(&access.folder, &access.url(), &lines);
            let mut apt = access.program("apt-get", &["-qq", "update", "--error-on=any"]);
            let apt = apt.env("APT_CONFIG", &configuration);
            apt.status().expect("it runs").success()
        });
        if are_large_ones_installed(&["node"]) {
            passes(&world, "node", |access| {
                // It has no setting for a proxy: the tunnel is made by hand.
                let script = format!(
                    "const ca = require('fs').readFileSync('{}');
                     const [host, port] = '{}'.split('//')[1].split(':');
                     require('http').request({{ host, port, method: 'CONNECT', path: '{}' }})
                         .on('connect', (_, socket) => require('https').get(
                             {{ socket, agent: false, servername: 'site.test', ca, path: '/' }}, answer => process.exit(0))
                             .on('error', () => process.exit(1)))
                         .end();",
                    access.trusted().display(),
                    access.proxy().expect("it has one"),
                    super::authority_of(&access.world.site),
                );
                let mut node = access.program("node", &["-e", &script]);
                node.output().expect("it runs").status.success()
            });
        }
    });
}
