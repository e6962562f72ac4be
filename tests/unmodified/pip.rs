//! pip: the pages of an index, and a package.

use std::fs;

use crate::{
    common::{digest, nginx::Nginx, packages::publish_wheel},
    place::{Needs, Place, Program, listen_lines},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Large(&["nginx", "zip", "pip3"]),
    test,
};

fn test(place: &Place) {
    let server = place.at_origin(|| Nginx::start_with_lines(&listen_lines("80")));
    let www = server.www();
    let content = publish_wheel(place.folder(), &www, &www.join("simple/content"), "");
    for host in place.hosts() {
        let index = format!("http://{}/simple/", host.in_url());
        let (trusted, target) = (host.in_url(), host.label());
        place.run(
            "pip3",
            &[
                "--isolated",
                "--disable-pip-version-check",
                "install",
                "--quiet",
                "--no-cache-dir",
                "--index-url",
                &index,
                "--trusted-host",
                &trusted,
                "--target",
                target,
                "content",
            ],
        );
        let received = fs::read(place.path(target).join("content.py")).expect("a module");
        assert_eq!(digest(&received), digest(&content));
    }
}
