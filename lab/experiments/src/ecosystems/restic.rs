//! restic, and `rclone serve restic` as its server.

use super::{
    Ecosystem,
    bench::Bench,
    data,
    row::{Row, Title},
};

pub(super) const RESTIC: Ecosystem = Ecosystem {
    name: "restic",
    title: "restic, with a REST server by rclone",
    programs: &["restic version", "rclone version"],
    data: &[data::PYTHON],
    measure,
};

const SERVE: &str = r#"
mkdir repository
exec rclone serve restic --addr "$SERVER" repository
"#;

const INIT: &str = r#"
export RESTIC_PASSWORD=password
restic -q --no-cache -r "rest:http://$SERVER/" init
"#;

/// The third time, another machine with the same files.
const BACKUP: &str = r#"
export RESTIC_PASSWORD=password
[[ $STEP = 3 ]] && host=other || host=machine
rm -rf source && cp -a "$DATA/python/tree-$VERSION" source
restic -q --no-cache -r "rest:http://$FORWARD/" backup --host $host source
rm -rf direct
restic -q --no-cache -r "rest:http://$SERVER/" restore latest --host $host --target direct
diff -r source direct/source
"#;

/// Steps restore the first backup, the second, and that for another machine.
const RESTORE: &str = r#"
export RESTIC_PASSWORD=password
rm -rf restored
snapshot=$(restic --no-cache -r "rest:http://$SERVER/" snapshots --host machine --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)[int(sys.argv[1]) - 1]["id"])' $VERSION)
restic -q --no-cache -r "rest:http://$FORWARD/" restore $snapshot --target restored
diff -r "$DATA/python/tree-$VERSION" restored/source
"#;

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let (server, _server) = bench.serve(SERVE)?;
    bench.run(INIT, &[("SERVER", &server.to_string())])?;
    let pair = bench.pair(server, &[], &[])?;
    let title = |name, in_the_way| Title {
        name,
        checked: "`diff -r` of the restored files; restic's own hashes",
        in_the_way,
    };
    Ok(vec![
        pair.row(
            title(
                "restic: backup; *again* is another machine",
                "encryption; restic itself sends only new data",
            ),
            BACKUP,
            &[],
        )?,
        pair.row(
            title(
                "restic: restore, by the same pair",
                "encryption, and each direction has a cache of its own",
            ),
            RESTORE,
            &[],
        )?,
    ])
}
