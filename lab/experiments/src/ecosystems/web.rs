//! Web pages with their scripts and styles, from nginx to curl.

use super::{
    Ecosystem,
    bench::Bench,
    data, nginx,
    row::{Row, Title},
};

pub(super) const WEB: Ecosystem = Ecosystem {
    name: "web",
    title: "web pages: curl, with nginx",
    programs: &["curl --version", "nginx -v", "openssl version"],
    data: &[data::SITE],
    measure,
};

/// Without `gzip_proxied`, nginx sends to proxies what it has.
const GZIP: &str =
    "root /mnt/site; gzip on; gzip_types text/css application/javascript; gzip_proxied any;";

/// Every file of the site, or of a folder of it, over connections that stay open.
const CRAWL: &str = r#"
ln -sfn "$DATA/site/$VERSION/$PART" site
rm -rf out
case $SCHEME in
service) site=(http://$SERVICE) ;;
# By its name, and with a certificate of the near end's CA.
opened) site=(https://localhost:${SERVER##*:} -x "http://$NEAR" --cacert ca/root.pem) ;;
*) site=($SCHEME://$SERVER -x "http://$NEAR" --cacert cert.pem) ;;
esac
find -L site -type f -printf '%P\n' | sort | while read -r file; do
    printf 'url = "%s/%s"\noutput = "out/%s"\n' "$site" "$file" "$file"
done >urls
curl -sf --noproxy '' "${site[@]:1}" $OPTIONS --create-dirs -K urls
diff -r site/ out
"#;

/// Scripts and styles are for all clients, pages are not.
const PUBLIC: &str =
    r#"root /mnt/site; location ~ \\.(js|css)\$ { add_header Cache-Control public; }"#;

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    nginx::authority(bench)?;
    let (plain, _plain) = nginx::start(bench, "root /mnt/site;")?;
    let (gzip, _gzip) = nginx::start(bench, GZIP)?;
    let (tls, _tls) = nginx::start_with_tls(bench, "root /mnt/site;")?;
    let (public, _public) = nginx::start_with_tls(bench, PUBLIC)?;
    let crawl = |name, part, server, scheme, near: &[&str], in_the_way| {
        let title = Title {
            name,
            checked: "`diff -r`",
            in_the_way,
        };
        let options = if server == gzip { "--compressed" } else { "" };
        let variables = [("PART", part), ("SCHEME", scheme), ("OPTIONS", options)];
        bench.pair(server, &[], near)?.row(title, CRAWL, &variables)
    };
    Ok(vec![
        crawl(
            "web: 87 pages, scripts and styles, uncompressed",
            ".",
            plain,
            "http",
            &[],
            "nothing",
        )?,
        crawl(
            "web: the same, `gzip_proxied any` in nginx",
            ".",
            gzip,
            "http",
            &[],
            "nothing",
        )?,
        crawl(
            "web: the same, with `--accept-encoding keep`",
            ".",
            gzip,
            "http",
            &["--accept-encoding", "keep"],
            "gzip",
        )?,
        crawl("web: the same by https", ".", tls, "https", &[], "TLS")?,
        crawl(
            "web: the same by https, through a service",
            ".",
            tls,
            "service",
            &[],
            "nothing",
        )?,
        crawl(
            "web: the same by https, as an opened name",
            ".",
            tls,
            "opened",
            nginx::near_options("opened"),
            "nothing",
        )?,
        crawl(
            "web: the same through a service, with `--secret-safe`",
            ".",
            tls,
            "service",
            &["--secret-safe"],
            "all answers are secret, as none is marked as public",
        )?,
        crawl(
            "web: the same, with scripts and styles marked as public",
            ".",
            public,
            "service",
            &["--secret-safe"],
            "pages are secret",
        )?,
        // The generator writes the version into each page.
        crawl(
            "web: 85 pages of a manual, `gzip_proxied any` in nginx",
            "manual",
            gzip,
            "http",
            &[],
            "nothing",
        )?,
        crawl(
            "web: the 85 pages, with `--accept-encoding keep`",
            "manual",
            gzip,
            "http",
            &["--accept-encoding", "keep"],
            "gzip",
        )?,
    ])
}
