//! borg, whose server is reached by socat.

use super::{
    Ecosystem,
    bench::Bench,
    data,
    row::{Row, Title},
};

pub(super) const BORG: Ecosystem = Ecosystem {
    name: "borg",
    title: "borg, over TCP by socat",
    programs: &["borg --version", "socat -V"],
    data: &[data::PYTHON],
    measure,
};

const SERVE: &str = r#"
exec socat "TCP-LISTEN:$PORT,bind=${SERVER%:*},reuseaddr,fork" EXEC:'borg serve'
"#;

/// borg calls a program that connects it to the server, and gives it words of ssh's.
const CLIENT: &str = r#"
export BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes BORG_RELOCATED_REPO_ACCESS_IS_OK=yes
connect() {
    printf '#!/bin/sh\nexec socat - TCP:%s\n' "$1" >connect
    chmod 755 connect
    export BORG_RSH=/mnt/connect
}
"#;

const INIT: &str = r#"
connect "$SERVER"
borg init --encryption none ssh://server/mnt/repository
"#;

const CREATE: &str = r#"
connect "$FORWARD"
rm -rf source && cp -a "$DATA/python/tree-$VERSION" source
borg create --compression $COMPRESSION ssh://server/mnt/repository::$COMPRESSION-$STEP source
rm -rf direct && mkdir direct
(cd direct && borg extract /mnt/repository::$COMPRESSION-$STEP)
diff -r source direct/source
"#;

const EXTRACT: &str = r#"
connect "$FORWARD"
rm -rf restored && mkdir restored
(cd restored && borg extract ssh://server/mnt/repository::$COMPRESSION-$VERSION)
diff -r "$DATA/python/tree-$VERSION" restored/source
"#;

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let (server, _server) = bench.serve(SERVE)?;
    let init = [CLIENT, INIT].concat();
    bench.run(&init, &[("SERVER", &server.to_string())])?;
    let pair = bench.pair(server, &[], &[])?;
    let title = |name, in_the_way| Title {
        name,
        checked: "`diff -r` of the extracted files",
        in_the_way,
    };
    let variables = [("COMPRESSION", "lz4")];
    Ok(vec![
        pair.row(
            title(
                "borg: create, lz4, no encryption",
                "borg itself sends only new data",
            ),
            &[CLIENT, CREATE].concat(),
            &variables,
        )?,
        pair.row(
            title(
                "borg: extract, by the same pair",
                "each direction has a cache of its own",
            ),
            &[CLIENT, EXTRACT].concat(),
            &variables,
        )?,
    ])
}
