//! pip and a package index: nginx with a folder for each project.

use super::{
    Ecosystem,
    bench::Bench,
    data, nginx,
    row::{Row, Title},
};

pub(super) const PIP: Ecosystem = Ecosystem {
    name: "pip",
    title: "pip, with an index that nginx serves",
    programs: &["pip3 --version", "nginx -v", "openssl version"],
    data: &[data::PYTHON],
    measure,
};

/// An index as PEP 503 has it.
const INDEX: &str = r#"
mkdir simple
for file in "$DATA"/python/{1,2,sdist-1,sdist-2}/*; do
    name=${file##*/}
    project=$(tr A-Z a-z <<<"${name%%-*}")
    mkdir -p "simple/$project"
    [[ ! -e simple/$project/$name ]] || continue
    cp "$file" "simple/$project"
    read -r digest _ < <(sha256sum "$file")
    echo "<a href=\"$name#sha256=$digest\">$name</a>" >>"simple/$project/index.html"
done
"#;

/// pip itself checks the digests that the index names.
const DOWNLOAD: &str = r#"
rm -rf out
[[ $VERSION = 1 ]] && requirement=$OLD || requirement=$NEW
case $SCHEME in
service) site=(http://$SERVICE) ;;
# By its name, and with a certificate of the near end's CA.
opened) site=(https://localhost:${SERVER##*:} --proxy "http://$NEAR" --cert ca/root.pem) ;;
*) site=($SCHEME://$SERVER --proxy "http://$NEAR" --cert cert.pem) ;;
esac
PYTHONPATH=$DATA/python/build python3 -m pip --isolated download -q --no-cache-dir -d out \
    --index-url "$site/simple/" "${site[@]:1}" $OPTIONS "$requirement"
for file in out/*; do
    cmp "$file" "$DATA/python/$FOLDER$VERSION/${file##*/}"
done
"#;

const WHEELS: &str = "--only-binary :all: --python-version 3.11 --platform manylinux2014_x86_64";
const ONE_WHEEL: &str =
    "--only-binary :all: --python-version 3.11 --platform manylinux2014_x86_64 --no-deps";
const SOURCE: &str = "--no-binary :all: --no-deps --no-build-isolation";

struct Package {
    name: &'static str,
    scheme: &'static str,
    /// Of the files, but for the version's number.
    folder: &'static str,
    options: &'static str,
    old: &'static str,
    new: &'static str,
    in_the_way: &'static str,
}

const PACKAGES: [Package; 7] = [
    Package {
        name: "pip: wheel of Django 5.1.3 → 5.1.4 with its dependencies",
        scheme: "http",
        folder: "",
        options: WHEELS,
        old: "Django==5.1.3",
        new: "Django==5.1.4",
        in_the_way: "nothing: each file is compressed separately, and unchanged files repeat",
    },
    Package {
        name: "pip: wheel of numpy 2.1.2 → 2.1.3",
        scheme: "http",
        folder: "",
        options: ONE_WHEEL,
        old: "numpy==2.1.2",
        new: "numpy==2.1.3",
        in_the_way: "deflate: a changed library is one large stream",
    },
    Package {
        name: "pip: wheel of scipy 1.14.0 → 1.14.1",
        scheme: "http",
        folder: "",
        options: ONE_WHEEL,
        old: "scipy==1.14.0",
        new: "scipy==1.14.1",
        in_the_way: "deflate: a changed library is one large stream",
    },
    Package {
        name: "pip: source of Django 5.1.3 → 5.1.4, `.tar.gz`",
        scheme: "http",
        folder: "sdist-",
        options: SOURCE,
        old: "Django==5.1.3",
        new: "Django==5.1.4",
        in_the_way: "gzip: one stream for all files",
    },
    Package {
        name: "pip: wheel of Django by https",
        scheme: "https",
        folder: "",
        options: WHEELS,
        old: "Django==5.1.3",
        new: "Django==5.1.4",
        in_the_way: "TLS",
    },
    Package {
        name: "pip: wheel of Django by https, through a service",
        scheme: "service",
        folder: "",
        options: WHEELS,
        old: "Django==5.1.3",
        new: "Django==5.1.4",
        in_the_way: "nothing",
    },
    Package {
        name: "pip: wheel of Django by https, as an opened name",
        scheme: "opened",
        folder: "",
        options: WHEELS,
        old: "Django==5.1.3",
        new: "Django==5.1.4",
        in_the_way: "nothing",
    },
];

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    bench.run(INDEX, &[])?;
    nginx::authority(bench)?;
    let (plain, _plain) = nginx::start(bench, "root /mnt;")?;
    let (tls, _tls) = nginx::start_with_tls(bench, "root /mnt;")?;
    let rows = PACKAGES.iter().map(|package| {
        let title = Title {
            name: package.name,
            checked: "sha256 in the index, by pip; `cmp`",
            in_the_way: package.in_the_way,
        };
        let server = match package.scheme {
            "http" => plain,
            _ => tls,
        };
        let variables = [
            ("SCHEME", package.scheme),
            ("FOLDER", package.folder),
            ("OPTIONS", package.options),
            ("OLD", package.old),
            ("NEW", package.new),
        ];
        let near = nginx::near_options(package.scheme);
        bench
            .pair(server, &[], near)?
            .row(title, DOWNLOAD, &variables)
    });
    rows.collect()
}
