//! apt: the index of a repository, and a package.

use std::fs;

use crate::{
    common::{
        digest,
        nginx::Nginx,
        packages::{apt_machine, publish_deb},
    },
    place::{Needs, Place, Program, listen_lines},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Usual(&["nginx", "apt-get", "dpkg-deb"]),
    test,
};

fn test(place: &Place) {
    let server = place.at_origin(|| Nginx::start_with_lines(&listen_lines("80")));
    let package = publish_deb(place.folder(), &server.www());
    for host in place.hosts() {
        let machine = place.path(host.label());
        let configuration = apt_machine(&machine, &format!("http://{}", host.in_url()), "");
        for arguments in [&["update"][..], &["download", "content"]] {
            let mut apt = place.program("apt-get", &[&["-qq"], arguments].concat());
            apt.env("APT_CONFIG", &configuration).current_dir(&machine);
            place.output(&mut apt);
        }
        let received = fs::read(machine.join("content_1.0_all.deb")).expect("a package");
        assert_eq!(digest(&received), digest(&package));
    }
}
