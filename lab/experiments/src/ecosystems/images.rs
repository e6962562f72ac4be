//! Container images: a registry, and skopeo, which pulls as engines do.

use std::net::SocketAddr;

use super::{
    Ecosystem,
    bench::Bench,
    data, nginx,
    row::{Row, Title},
};
use crate::processes::Running;

pub(super) const IMAGES: Ecosystem = Ecosystem {
    name: "images",
    title: "container images: skopeo, with docker-registry",
    programs: &[
        "skopeo --version",
        "docker-registry --version",
        "openssl version",
    ],
    data: &[data::PYTHON],
    measure,
};

const REGISTRY: &str = r#"
cat >"registry-$PORT.yml" <<END
version: 0.1
log: { level: error }
storage: { filesystem: { rootdirectory: /mnt/registry } }
http: { addr: "$SERVER" @TLS@ }
@PASSWORD@
END
exec docker-registry serve "registry-$PORT.yml"
"#;

/// For the user `user`, with the password `secret`.
const PASSWORD: &str = "auth: { htpasswd: { realm: private, path: /mnt/registry-passwords } }";
const PASSWORDS: &str = "htpasswd -Bbn user secret >registry-passwords";

const TLS: &str = ", tls: { certificate: /mnt/cert.pem, key: /mnt/key.pem }";

/// One layer an image: others would be the same to the byte, and are not pulled again. A build gives
/// its files the time at which it ran; one that is reproducible keeps that of the packages.
const BUILD: &str = r#"
digest() { sha256sum "$1" | cut -d ' ' -f 1; }
blob() { cp "$1" "image/blobs/sha256/$(digest "$1")"; echo "\"digest\": \"sha256:$(digest "$1")\", \"size\": $(stat -c %s "$1")"; }
build() {
    rm -rf image
    mkdir -p image/blobs/sha256
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="$3" -cf layer -C "$DATA/python/tree-$2" .
    layer=$(blob layer)
    printf '{"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
        "$(digest layer)" >config
    printf '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", %s},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", %s}]}' "$(blob config)" "$layer" >manifest
    printf '{"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json",
        "annotations": {"org.opencontainers.image.ref.name": "v"}, %s}]}' "$(blob manifest)" >image/index.json
    echo '{"imageLayoutVersion": "1.0.0"}' >image/oci-layout
    # skopeo remembers layers, and would send one that is compressed otherwise.
    push() { rm -rf /var/lib/containers; skopeo --insecure-policy copy -q --dest-tls-verify=false "${@:2}" oci:image:v "docker://$SERVER/$1"; }
    push "$1-gzip:v$2" --dest-compress-format gzip
    push "$1-zstd:v$2" --dest-compress-format zstd
    push "$1-plain:v$2" --preserve-digests
}
for version in 1 2; do
    build same $version 2024-01-01T00:00:00Z
    build build $version 2024-01-0${version}T12:34:56Z
done
rm -r image layer
"#;

/// skopeo checks all digests.
const PULL: &str = r#"
rm -rf direct image
HTTPS_PROXY=
[[ $TLS = false ]] && verify=false || verify=true
creds=()
[[ $TLS != password ]] || creds=(--src-creds user:secret)
skopeo --insecure-policy copy -q "${creds[@]}" --src-cert-dir certificates --src-tls-verify=$verify "docker://$SERVER/$IMAGE:v$VERSION" dir:direct
case $TLS in
service | password) near=(false $SERVICE certificates) ;;
opened) near=(true site.test:${SERVER##*:} ca-certificates) HTTPS_PROXY=http://$NEAR ;;
*) near=($TLS $FORWARD certificates) ;;
esac
export HTTPS_PROXY
skopeo --insecure-policy copy -q "${creds[@]}" --src-cert-dir "${near[2]}" --src-tls-verify=$near \
    "docker://${near[1]}/$IMAGE:v$VERSION" dir:image
diff -r direct image
"#;

struct Image {
    name: &'static str,
    image: &'static str,
    /// For skopeo, or `service`, `password` (a service, of a private registry) or `opened` for the way.
    tls: &'static str,
    /// Of both ends.
    options: &'static [&'static str],
    in_the_way: &'static str,
}

const PULLS: [Image; 10] = [
    Image {
        name: "image: layer as gzip, files with the time of the build",
        image: "build-gzip",
        tls: "false",
        options: &[],
        in_the_way: "gzip: all data after the first change is compressed differently",
    },
    Image {
        name: "image: layer as gzip, files with the same time in both builds",
        image: "same-gzip",
        tls: "false",
        options: &[],
        in_the_way: "gzip",
    },
    Image {
        name: "image: layer as zstd, files with the time of the build",
        image: "build-zstd",
        tls: "false",
        options: &[],
        in_the_way: "zstd",
    },
    Image {
        name: "image: layer as zstd, files with the same time in both builds",
        image: "same-zstd",
        tls: "false",
        options: &[],
        in_the_way: "zstd",
    },
    Image {
        name: "image: layer without compression, files with the time of the build",
        image: "build-plain",
        tls: "false",
        options: &[],
        in_the_way: "nothing, if the cache holds the layer",
    },
    Image {
        name: "image: the same with `--cache-size 512MiB`",
        image: "build-plain",
        tls: "false",
        options: &["--cache-size", "512MiB"],
        in_the_way: "nothing",
    },
    Image {
        name: "image: layer without compression, by https",
        image: "same-plain",
        tls: "true",
        options: &["--cache-size", "512MiB"],
        in_the_way: "TLS",
    },
    Image {
        name: "image: layer without compression, by https, through a service",
        image: "same-plain",
        tls: "service",
        options: &["--cache-size", "512MiB"],
        in_the_way: "nothing",
    },
    Image {
        name: "image: layer without compression, by https, through a service, with a password",
        image: "same-plain",
        tls: "password",
        options: &["--cache-size", "512MiB"],
        in_the_way: "nothing: paths of layers have digests",
    },
    Image {
        name: "image: layer without compression, by https, as an opened name",
        image: "same-plain",
        tls: "opened",
        options: &["--cache-size", "512MiB"],
        in_the_way: "nothing",
    },
];

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    bench.run(nginx::CERTIFICATE, &[])?;
    nginx::authority(bench)?;
    let trust = "mkdir certificates ca-certificates; cp cert.pem certificates/ca.crt; cp ca/root.pem ca-certificates/ca.crt";
    bench.run(trust, &[])?;
    bench.run(PASSWORDS, &[])?;
    let (plain, _plain) = registry(bench, "", "")?;
    let (tls, _tls) = registry(bench, TLS, "")?;
    let (private, _private) = registry(bench, TLS, PASSWORD)?;
    bench.run(BUILD, &[("SERVER", &plain.to_string())])?;
    let rows = PULLS.iter().map(|pull| {
        let title = Title {
            name: pull.name,
            checked: "sha256 of layer and configuration, by skopeo; `diff -r`",
            in_the_way: pull.in_the_way,
        };
        let server = match pull.tls {
            "false" => plain,
            "password" => private,
            _ => tls,
        };
        let variables = [("IMAGE", pull.image), ("TLS", pull.tls)];
        bench
            .pair(server, pull.options, nginx::near_options(pull.tls))?
            .row(title, PULL, &variables)
    });
    rows.collect()
}

fn registry(bench: &Bench, tls: &str, password: &str) -> anyhow::Result<(SocketAddr, Running)> {
    let script = REGISTRY.replace("@TLS@", tls);
    bench.serve(&script.replace("@PASSWORD@", password))
}
