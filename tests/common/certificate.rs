//! A certificate that openssl makes.

use super::programs::run_ok;

/// A folder with the certificate of `localhost`, `tls.crt`, which is trusted as it is, and its key, `tls.key`.
pub(crate) fn certificate() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a directory");
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
                   -keyout tls.key -out tls.crt -addext subjectAltName=DNS:localhost \
                   -addext basicConstraints=critical,CA:FALSE";
    let arguments: Vec<&str> = request.split_whitespace().collect();
    run_ok("openssl", folder.path(), &arguments);
    folder
}
