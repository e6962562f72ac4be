//! HTTPS: the client gets the server's own certificate.

use crate::{
    common::{digest, nginx::Nginx},
    place::{Needs, Place, Program, listen_lines},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Usual(&["nginx", "curl", "openssl"]),
    test,
};

fn test(place: &Place) {
    let server = place.at_origin(|| Nginx::start_with_tls_and_lines(&listen_lines("443 ssl")));
    let page = server.serve_letters("page", 1, 300_000);
    let certificate = server.certificate().display().to_string();
    for host in place.hosts() {
        let to = format!("localhost:443:{}:443", host.in_url());
        // The certificate of the server is the only one that curl trusts.
        let received = place.run(
            "curl",
            &[
                "--silent",
                "--show-error",
                "--cacert",
                &certificate,
                "--connect-to",
                &to,
                "https://localhost/page",
            ],
        );
        assert_eq!(digest(&received), digest(&page));
    }
}
