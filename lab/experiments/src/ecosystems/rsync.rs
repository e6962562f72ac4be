//! rsync and its daemon.

use super::{
    Ecosystem,
    bench::Bench,
    data,
    row::{Row, Title},
};

pub(super) const RSYNC: Ecosystem = Ecosystem {
    name: "rsync",
    title: "rsync, with its daemon",
    programs: &["rsync --version"],
    data: &[data::PYTHON],
    measure,
};

const SERVE: &str = r#"
mkdir backup
cat >rsyncd.conf <<END
use chroot = no
uid = root
gid = root
[backup]
path = /mnt/backup
read only = no
END
exec rsync --daemon --no-detach --config=rsyncd.conf --address="${SERVER%:*}" --port="$PORT"
"#;

/// The source's times say that files of another version are other files. The third time another
/// machine's backup goes to a folder of its own.
const PUSH: &str = r#"
[[ $STEP != 1 ]] || find backup -mindepth 1 -delete
[[ $STEP = 3 ]] && directory=other || directory=machine
rm -rf source && cp -a "$DATA/python/tree-$VERSION" source
[[ $STEP = 1 ]] || find source -type f -exec touch -d 2024-02-02 {} +
rsync -a $OPTIONS --delete source/ "rsync://$FORWARD/backup/$directory/"
diff -r source backup/$directory
"#;

/// To a machine that has lost all, of what a backup past the pair has put there.
const PULL: &str = r#"
find backup -mindepth 1 -delete
rm -rf restored
cp -a "$DATA/python/tree-$VERSION" backup/machine
rsync -a $OPTIONS "rsync://$FORWARD/backup/machine/" restored
diff -r backup/machine restored
"#;

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let (server, _server) = bench.serve(SERVE)?;
    let title = |name, in_the_way| Title {
        name,
        checked: "`diff -r`",
        in_the_way,
    };
    let plain = [("OPTIONS", "")];
    let compressed = [("OPTIONS", "-z")];
    let pair = bench.pair(server, &[], &[])?;
    Ok(vec![
        pair.row(
            title(
                "rsync: `-a`, push; *again* is another machine",
                "nothing: rsync itself sends only changed data",
            ),
            PUSH,
            &plain,
        )?,
        pair.row(
            title(
                "rsync: `-a`, restore, by the same pair",
                "each direction has a cache of its own",
            ),
            PULL,
            &plain,
        )?,
        bench.row(
            server,
            title(
                "rsync: `-az`, push; *again* is another machine",
                "compression by rsync",
            ),
            PUSH,
            &compressed,
        )?,
        bench.row(
            server,
            title("rsync: `-az`, restore", "compression by rsync"),
            PULL,
            &compressed,
        )?,
    ])
}
