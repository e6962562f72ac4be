//! apt and a repository of its own, by nginx.

use super::{
    Ecosystem,
    bench::Bench,
    data, nginx,
    row::{Row, Title},
};

pub(super) const APT: Ecosystem = Ecosystem {
    name: "apt",
    title: "apt, with a repository that nginx serves",
    programs: &[
        "apt-get --version",
        "apt-ftparchive --version",
        "dpkg-scanpackages --version",
        "gpg --version",
        "nginx -v",
    ],
    data: &[data::PYTHON, data::DEBS, data::INDEX],
    measure,
};

/// An index that is as long as a distribution's: 60 of its packages are other ones in the next version.
const PUBLISH: &str = r#"
mkdir -m 700 keys
export GNUPGHOME=/mnt/keys
gpg --batch --quiet --passphrase '' --quick-generate-key archive@example.org ed25519 sign never
gpg --export archive@example.org >archive.gpg
publish() {
    cp -r "$1" "$1-$2"
    (
        cd "$1-$2"
        mkdir -p dists/stable/main/binary-amd64
        index=dists/stable/main/binary-amd64/Packages
        { cat packages; cat stanzas; } >$index
        [[ $2 = plain ]] || xz --keep $index
        cd dists/stable
        apt-ftparchive -o APT::FTPArchive::Release::Codename=stable -o APT::FTPArchive::Release::Components=main \
            -o APT::FTPArchive::Release::Architectures=amd64 release . >../release
        mv ../release Release
        # apt needs its digest anyway.
        [[ $2 = plain ]] || rm main/binary-amd64/Packages
        gpg --batch --quiet --clearsign -o InRelease Release
    )
}
for version in 1 2; do
    mkdir $version
    cp -r "$DATA/debs/$version" $version/pool
    (cd $version && dpkg-scanpackages --multiversion pool >packages 2>/dev/null)
    # As a security update changes some packages.
    awk -v version=$version '/^Package:/ { number++ }
        version == 2 && number % 217 == 0 && /^Version:/ { $0 = $0 "+deb1" }
        version == 2 && number % 217 == 0 && /^SHA256:/ {
            command = "echo " $2 " | sha256sum"; command | getline digest; close(command); $0 = "SHA256: " substr(digest, 1, 64)
        }
        { print }' "$DATA/index/stanzas" >$version/stanzas
    publish $version plain
    publish $version xz
done
"#;

/// A machine of its own: `$1` is its folder.
const MACHINE: &str = r#"
machine() {
    rm -rf "$1"
    mkdir -p "$1"/{etc/apt/{apt.conf.d,preferences.d,sources.list.d,trusted.gpg.d},var/{lib/{apt/lists/partial,dpkg},cache/apt/archives/partial}}
    touch "$1/var/lib/dpkg/status"
    echo "deb [signed-by=/mnt/archive.gpg arch=amd64] http://$SERVER stable main" >"$1/etc/apt/sources.list"
}
export APT_CONFIG=/mnt/apt.conf
echo 'Dir::Etc::main "/dev/null"; Dir::Etc::parts "/dev/null";' >apt.conf
apt() { apt-get -qq -o "Dir=/mnt/$1" -o Dir::State::status=/mnt/$1/var/lib/dpkg/status -o APT::Sandbox::User=root \
    -o APT::Architecture=amd64 -o Acquire::Languages=none -o Acquire::Retries=0 "${@:2}"; }
proxy=(-o "Acquire::http::Proxy=http://$NEAR")
"#;

/// apt checks the signature, and by it all digests.
const UPDATE: &str = r#"
ln -sfn $VERSION-$KIND repository
[[ $STEP = 2 ]] || machine machine-$STEP
[[ $STEP = 2 ]] && machine=machine-1 || machine=machine-$STEP
apt $machine "${proxy[@]}" update
index=(/mnt/$machine/var/lib/apt/lists/*_Packages)
cmp "${index[0]}" <(xz -dcf repository/dists/stable/main/binary-amd64/Packages*)
"#;

const DOWNLOAD: &str = r#"
ln -sfn $VERSION-plain repository
machine machine
apt machine update
rm -rf packages && mkdir packages
(cd packages && apt machine "${proxy[@]}" download python3-django-$KIND python3-numpy-$KIND)
for package in python3-django-$KIND python3-numpy-$KIND; do
    cmp packages/${package}_${VERSION}_amd64.deb repository/pool/${package}_${VERSION}_amd64.deb
done
"#;

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    bench.run(PUBLISH, &[])?;
    let (server, _server) = nginx::start(bench, "root /mnt/repository;")?;
    let rows = [
        (
            "apt: update, `Packages.xz` with 60 of 13,000 packages changed",
            UPDATE,
            "xz",
            "xz: one stream for all packages",
        ),
        (
            "apt: update, `Packages` published without compression",
            UPDATE,
            "plain",
            "nothing",
        ),
        (
            "apt: `.deb` of Django and numpy, xz as Debian has it",
            DOWNLOAD,
            "xz",
            "xz",
        ),
        (
            "apt: `.deb` of Django and numpy, zstd as Ubuntu has it",
            DOWNLOAD,
            "zstd",
            "zstd",
        ),
    ];
    let rows = rows.into_iter().map(|(name, script, kind, in_the_way)| {
        let title = Title {
            name,
            checked: "signature of `InRelease` and SHA-256 of each file, by apt; `cmp`",
            in_the_way,
        };
        bench.row(
            server,
            title,
            &[MACHINE, script].concat(),
            &[("KIND", kind)],
        )
    });
    rows.collect()
}
