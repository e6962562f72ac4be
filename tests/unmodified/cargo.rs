//! cargo: the index of a registry, and a crate.

use std::fs;

use crate::{
    common::{
        digest,
        nginx::Nginx,
        packages::{cargo_project, cargo_vendor, publish_crate},
    },
    place::{Needs, Place, Program, listen_lines},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Usual(&["nginx", "tar", "cargo"]),
    test,
};

fn test(place: &Place) {
    let server = place.at_origin(|| Nginx::start_with_lines(&listen_lines("80")));
    let content = publish_crate(place.folder(), &server.www(), &server.www());
    for host in place.hosts() {
        let registry = format!("http://{}", host.in_url());
        let configuration = format!("{{\"dl\":\"{registry}/crates/{{crate}}-{{version}}.crate\"}}");
        fs::write(server.www().join("config.json"), configuration).expect("our own folder");
        let user = place.path(host.label());
        cargo_project(&user, &registry);
        let mut cargo = place.program("cargo", &[]);
        let source = cargo_vendor(&mut cargo, &user);
        place.output(&mut cargo);
        let received = fs::read(source).expect("a crate");
        assert_eq!(digest(&received), digest(&content));
    }
}
