//! nginx, as the server of several ecosystems.

use std::net::SocketAddr;

use super::bench::Bench;
use crate::processes::Running;

/// A key and a certificate for this machine, which clients and far ends trust as it is: so it is no CA's.
pub(super) const CERTIFICATE: &str = "\
[[ -e cert.pem ]] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:site.test \
    -addext basicConstraints=critical,CA:FALSE 2>/dev/null
";

/// Options of a near end that opens TLS to servers of this machine, by their names, with a CA of [`authority`]. Programs in
/// Go use no proxy for `localhost`: they have `site.test`.
const OPENED: [&str; 6] = [
    "--open",
    "localhost:*",
    "--open",
    "site.test:*",
    "--ca",
    "/mnt/ca",
];

/// What a near end needs for clients that use this scheme, which is `opened` for opened names.
pub(super) fn near_options(scheme: &str) -> &'static [&'static str] {
    match scheme {
        "opened" => &OPENED,
        _ => &[],
    }
}

/// Makes the CA. Clients trust `ca/root.pem`.
pub(super) fn authority(bench: &Bench) -> anyhow::Result<()> {
    const MAKE: &str = r#"[[ -e ca ]] || "$REFRAIN" ca init ca --permit localhost --permit site.test >/dev/null 2>&1"#;
    bench.run(MAKE, &[("REFRAIN", bench.refrain())]).map(drop)
}

/// All files are below the folder that the server is started in.
const SERVE: &str = r#"
mkdir -p nginx
cat >"nginx/$PORT.conf" <<END
user root;
daemon off;
pid /mnt/nginx/$PORT.pid;
error_log stderr;
events {}
http {
    include /etc/nginx/mime.types;
    access_log off;
    client_body_temp_path /mnt/nginx/body;
    fastcgi_temp_path /mnt/nginx/fastcgi;
    proxy_temp_path /mnt/nginx/proxy;
    scgi_temp_path /mnt/nginx/scgi;
    uwsgi_temp_path /mnt/nginx/uwsgi;
    server {
        listen $SERVER @TLS@;
        @SETTINGS@
    }
}
END
exec nginx -c "/mnt/nginx/$PORT.conf"
"#;

const TLS: &str = "ssl; ssl_certificate /mnt/cert.pem; ssl_certificate_key /mnt/key.pem";

/// Serves by http. A `$` in the settings has a backslash in front.
pub(super) fn start(bench: &Bench, settings: &str) -> anyhow::Result<(SocketAddr, Running)> {
    let script = SERVE.replace("@TLS@", "").replace("@SETTINGS@", settings);
    bench.serve(&script)
}

/// Serves by https, with `cert.pem`.
pub(super) fn start_with_tls(
    bench: &Bench,
    settings: &str,
) -> anyhow::Result<(SocketAddr, Running)> {
    bench.run(CERTIFICATE, &[])?;
    let script = SERVE.replace("@TLS@", TLS).replace("@SETTINGS@", settings);
    bench.serve(&script)
}
