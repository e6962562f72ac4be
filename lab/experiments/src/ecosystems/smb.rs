//! A file server: Samba, and its client.

use super::{
    Ecosystem,
    bench::Bench,
    data,
    row::{Row, Title},
};

pub(super) const SMB: Ecosystem = Ecosystem {
    name: "smb",
    title: "SMB: smbclient, with Samba",
    programs: &["smbd --version", "smbclient --version"],
    data: &[data::PYTHON, data::SITE],
    measure,
};

/// Two servers, of which one encrypts. The documents: a tar, and a zip as office programs write them.
const PREPARE: &str = r#"
mkdir -p shares/{plain,encrypted} samba/{plain,encrypted}
for kind in plain encrypted; do
    cat >samba/$kind.conf <<END
[global]
server role = standalone server
interfaces = lo
bind interfaces only = yes
private dir = /mnt/samba/$kind
lock directory = /mnt/samba/$kind
state directory = /mnt/samba/$kind
cache directory = /mnt/samba/$kind
pid directory = /mnt/samba/$kind
ncalrpc dir = /mnt/samba/$kind
log file = /mnt/samba/$kind/log
disable netbios = yes
load printers = no
server smb encrypt = $([[ $kind = plain ]] && echo off || echo required)
[share]
path = /mnt/shares/$kind
read only = no
END
    printf 'password\npassword\n' | smbpasswd -c samba/$kind.conf -L -s -a root >/dev/null
done
for version in 1 2; do
    tar --sort=name --owner=0 --group=0 --mtime=2024-01-01 -cf document-$version.tar -C "$DATA/python/tree-$version" django
    (cd "$DATA/site/$version" && python3 -m zipfile -c /mnt/document-$version.zip manual console)
done
"#;

const SERVE: &str = r#"
exec smbd --foreground --no-process-group --debug-stdout --configfile="samba/@KIND@.conf" --port="$PORT"
"#;

const CLIENT: &str = r#"
client() { smbclient "//127.0.0.1/share" -p "$1" -U root%password -m SMB3 -c "$2" >smbclient.log 2>&1 || { cat smbclient.log; exit 1; }; }
"#;

const PUT: &str = r#"
client "$FORWARD_PORT" "put document-$VERSION.$KIND document.$KIND"
cmp document-$VERSION.$KIND shares/$SHARE/document.$KIND
"#;

const GET: &str = r#"
cp document-$VERSION.$KIND shares/$SHARE/document.$KIND
rm -f got
client "$FORWARD_PORT" "get document.$KIND got"
cmp document-$VERSION.$KIND got
"#;

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    bench.run(PREPARE, &[])?;
    let (plain, _plain) = bench.serve(&SERVE.replace("@KIND@", "plain"))?;
    let (encrypted, _encrypted) = bench.serve(&SERVE.replace("@KIND@", "encrypted"))?;
    let (put, get) = ([CLIENT, PUT].concat(), [CLIENT, GET].concat());
    let title = |name, in_the_way| Title {
        name,
        checked: "`cmp` with the file at the other end",
        in_the_way,
    };
    let plain_tar = [("KIND", "tar"), ("SHARE", "plain")];
    let pair = bench.pair(plain, &[], &[])?;
    Ok(vec![
        pair.row(
            title("SMB: put a tar of Django", "nothing"),
            &put,
            &plain_tar,
        )?,
        pair.row(
            title(
                "SMB: get it, by the same pair",
                "each direction has a cache of its own",
            ),
            &get,
            &plain_tar,
        )?,
        bench.row(
            plain,
            title(
                "SMB: put a zip in which most files changed",
                "deflate, of each changed file",
            ),
            &put,
            &[("KIND", "zip"), ("SHARE", "plain")],
        )?,
        bench.row(
            encrypted,
            title("SMB: put the tar, `smb encrypt = required`", "encryption"),
            &put,
            &[("KIND", "tar"), ("SHARE", "encrypted")],
        )?,
    ])
}
