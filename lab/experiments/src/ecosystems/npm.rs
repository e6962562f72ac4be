//! npm and a registry of its own: verdaccio, filled once.

use super::{
    Ecosystem,
    bench::Bench,
    data, nginx,
    row::{Row, Title},
};

pub(super) const NPM: Ecosystem = Ecosystem {
    name: "npm",
    title: "npm, with verdaccio",
    programs: &["npm --version", "node --version", "openssl version"],
    data: &[data::NPM],
    measure,
};

const SERVE: &str = r#"
cp -r "$DATA/npm/storage" .
sed "s|^storage:.*|storage: /mnt/storage|" "$DATA/npm/config.yaml" >verdaccio.yaml
exec node "$DATA/npm/verdaccio/node_modules/.bin/verdaccio" -c verdaccio.yaml -l "http://$SERVER"
"#;

const SERVE_BY_HTTPS: &str = r#"
{ cat verdaccio.yaml; echo 'https: { key: /mnt/key.pem, cert: /mnt/cert.pem }'; } >verdaccio-tls.yaml
exec node "$DATA/npm/verdaccio/node_modules/.bin/verdaccio" -c verdaccio-tls.yaml -l "https://$SERVER"
"#;

/// Once past the pair, to have something to compare with, and once through it. Each client is new.
const INSTALL: &str = r#"
install() {
    rm -rf "$1" cache
    mkdir "$1"
    echo '{"name": "client"}' >"$1/package.json"
    npm install --loglevel error --no-audit --no-fund --ignore-scripts --no-update-notifier \
        --cache cache --prefix "$1" --registry "$REGISTRY/" "${@:2}"
}
[[ $VERSION = 1 ]] && packages=$OLD || packages=$NEW
case $SCHEME in
http) REGISTRY=http://$SERVER ;;
# By its name, and through the pair with a certificate of the near end's CA.
opened) REGISTRY=https://localhost:${SERVER##*:} ;;
*) REGISTRY=https://$SERVER ;;
esac
[[ $STEP = 3 ]] || install direct --cafile cert.pem $packages
through=(--registry "http://$SERVICE/")
[[ $SCHEME = service ]] || through=(--noproxy "" --proxy "http://$NEAR" --https-proxy "http://$NEAR")
[[ $SCHEME = opened ]] && trusted=ca/root.pem || trusted=cert.pem
install app --cafile $trusted "${through[@]}" $packages
# npm locks the address of the service.
sed -i "s|http://$SERVICE/|$REGISTRY/|" app/package-lock.json app/node_modules/.package-lock.json
diff -r direct app
[[ -e app/node_modules/${packages%%@*} ]]
"#;

struct Packages {
    name: &'static str,
    scheme: &'static str,
    old: &'static str,
    new: &'static str,
    in_the_way: &'static str,
}

const PACKAGES: [Packages; 6] = [
    Packages {
        name: "npm: typescript 5.4.2 → 5.4.3",
        scheme: "http",
        old: "typescript@5.4.2",
        new: "typescript@5.4.3",
        in_the_way: "gzip: one stream per package",
    },
    Packages {
        name: "npm: next 14.2.3 → 14.2.4 and react",
        scheme: "http",
        old: "next@14.2.3 react@18.3.1 react-dom@18.3.1",
        new: "next@14.2.4 react@18.3.1 react-dom@18.3.1",
        in_the_way: "gzip: one stream per package",
    },
    Packages {
        name: "npm: eslint 9.14 → 9.15, most dependencies unchanged",
        scheme: "http",
        old: "eslint@9.14.0",
        new: "eslint@9.15.0",
        in_the_way: "gzip, of the packages that changed",
    },
    Packages {
        name: "npm: typescript by https",
        scheme: "https",
        old: "typescript@5.4.2",
        new: "typescript@5.4.3",
        in_the_way: "TLS",
    },
    Packages {
        name: "npm: typescript by https, through a service",
        scheme: "service",
        old: "typescript@5.4.2",
        new: "typescript@5.4.3",
        in_the_way: "gzip: one stream per package",
    },
    Packages {
        name: "npm: typescript by https, as an opened name",
        scheme: "opened",
        old: "typescript@5.4.2",
        new: "typescript@5.4.3",
        in_the_way: "gzip: one stream per package",
    },
];

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    bench.run(nginx::CERTIFICATE, &[])?;
    nginx::authority(bench)?;
    let (plain, _plain) = bench.serve(SERVE)?;
    let (tls, _tls) = bench.serve(SERVE_BY_HTTPS)?;
    let rows = PACKAGES.iter().map(|packages| {
        let title = Title {
            name: packages.name,
            checked: "sha512 of the registry, by npm; all files compared with an install without the pair",
            in_the_way: packages.in_the_way,
        };
        let server = if packages.scheme == "http" { plain } else { tls };
        let variables = [
            ("SCHEME", packages.scheme),
            ("OLD", packages.old),
            ("NEW", packages.new),
        ];
        let near = nginx::near_options(packages.scheme);
        bench
            .pair(server, &[], near)?
            .row(title, INSTALL, &variables)
    });
    rows.collect()
}
