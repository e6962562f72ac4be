//! PostgreSQL: psql and pgbench.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::{
    common::{
        digest,
        origin_machine::{ORIGIN, ORIGIN_6},
        programs::find,
        world::ok,
    },
    place::{Needs, Place, Program},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Large(&["initdb", "postgres", "psql", "pgbench", "setpriv"]),
    test,
};

fn test(place: &Place) {
    // It refuses to run as root.
    let anybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(place.folder(), anybody).expect("our own folder");
    let database = place.path("database").display().to_string();
    ok(Command::new("install").args(["-d", "-o", "postgres", "-m", "700", &database]));
    let as_postgres = |program: &str| {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid",
                "postgres",
                "--regid",
                "postgres",
                "--clear-groups",
            ])
            .arg(find(program).expect("its presence was tested"))
            .args(["-D", &database]);
        command
    };
    ok(as_postgres("initdb")
        .args(["--no-sync", "--auth", "trust", "--encoding", "UTF8"])
        .current_dir(place.folder()));
    let rules = "host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n";
    fs::write(place.path("database/pg_hba.conf"), rules).expect("root may");
    let addresses = format!("listen_addresses={ORIGIN},{ORIGIN_6}");
    let options = [
        &addresses,
        "unix_socket_directories=",
        "fsync=off",
        "autovacuum=off",
    ];
    let options = options.into_iter().flat_map(|option| ["-c", option]);
    let _server = place.serve(as_postgres("postgres").args(options));
    place.wait_for_port(5432);

    let lines = "COPY (SELECT id, md5(id::text) FROM generate_series(1, 20000) id) TO STDOUT";
    for host in place.hosts() {
        let address = host.address.to_string();
        let server = ["-h", &address, "-U", "postgres"];
        let psql = |query: &str| {
            let query = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", query];
            place.run("psql", &[&server[..], &query, &["postgres"]].concat())
        };
        let seen = String::from_utf8(psql("SELECT host(inet_client_addr())")).expect("a text");
        assert_eq!(seen.trim(), host.sees);
        let direct = place.at_origin(|| {
            let mut direct = Command::new(find("psql").expect("its presence was tested"));
            direct
                .args(server)
                .args(["-X", "-q", "-c", lines, "postgres"]);
            direct.output().expect("it runs").stdout
        });
        assert!(direct.len() > 500_000);
        assert_eq!(digest(&psql(lines)), digest(&direct));
        for arguments in [
            &["-i", "-q"][..],
            &["-n", "-c", "4", "-t", "20"],
            &["-n", "-M", "prepared", "-t", "20"],
        ] {
            place.run("pgbench", &[&server[..], arguments, &["postgres"]].concat());
        }
        let histories = String::from_utf8(psql("SELECT count(*) FROM pgbench_history"));
        assert_eq!(histories.expect("a text").trim(), "100");
    }
}
