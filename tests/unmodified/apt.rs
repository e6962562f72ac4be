//! apt: the index of a repository, and a package.

use std::{fs, path::Path};

use crate::{
    common::{content::letters, digest, nginx::Nginx, programs::run_ok, sha256},
    place::{Needs, Place, Program, listen_lines},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Usual(&["nginx", "apt-get", "dpkg-deb"]),
    test,
};

fn test(place: &Place) {
    let server = place.at_origin(|| Nginx::start_with_lines(&listen_lines("80")));
    let package = publish(&server.www(), place.folder());
    for host in place.hosts() {
        let machine = place.path(host.label());
        let configuration = machine_of_its_own(&machine, &host.in_url());
        for arguments in [&["update"][..], &["download", "content"]] {
            let mut apt = place.program("apt-get", &[&["-qq"], arguments].concat());
            apt.env("APT_CONFIG", &configuration).current_dir(&machine);
            place.output(&mut apt);
        }
        let received = fs::read(machine.join("content_1.0_all.deb")).expect("a package");
        assert_eq!(digest(&received), digest(&package));
    }
}

/// Makes a package and its index in the served folder.
fn publish(www: &Path, folder: &Path) -> Vec<u8> {
    let tree = folder.join("content");
    fs::create_dir_all(tree.join("DEBIAN")).expect("our own folder");
    let control = "Package: content\nVersion: 1.0\nArchitecture: all\n\
                   Maintainer: Tester <tester@example.org>\nDescription: content\n";
    fs::write(tree.join("DEBIAN/control"), control).expect("our own folder");
    fs::write(tree.join("letters"), letters(1, 300_000)).expect("our own folder");
    run_ok(
        "dpkg-deb",
        folder,
        &["--root-owner-group", "--build", "content", "built.deb"],
    );
    let package = fs::read(folder.join("built.deb")).expect("a package");
    let sum = sha256(&package);
    let bytes = package.len();
    let index =
        format!("{control}Filename: ./content_1.0_all.deb\nSize: {bytes}\nSHA256: {sum}\n\n");
    fs::write(www.join("Packages"), index).expect("our own folder");
    fs::write(www.join("content_1.0_all.deb"), &package).expect("our own folder");
    package
}

/// Makes apt's folders of a machine, and returns its configuration: nothing of this machine's has a part in it.
fn machine_of_its_own(machine: &Path, host: &str) -> String {
    for folder in [
        "etc/apt/preferences.d",
        "etc/apt/sources.list.d",
        "etc/apt/trusted.gpg.d",
        "var/lib/apt/lists/partial",
        "var/lib/dpkg",
        "var/cache/apt/archives/partial",
    ] {
        fs::create_dir_all(machine.join(folder)).expect("our own folder");
    }
    fs::write(machine.join("var/lib/dpkg/status"), "").expect("our own folder");
    let source = format!("deb [trusted=yes] http://{host}/ ./\n");
    fs::write(machine.join("etc/apt/sources.list"), source).expect("our own folder");
    let configuration = machine.join("apt.conf");
    let machine = machine.display();
    let options = format!(
        "Dir \"{machine}\"; Dir::State::status \"{machine}/var/lib/dpkg/status\";
         Dir::Etc::main \"/dev/null\"; Dir::Etc::parts \"/dev/null\"; APT::Sandbox::User \"root\";
         APT::Architecture \"amd64\"; Acquire::Languages \"none\"; Acquire::Retries \"0\";\n"
    );
    fs::write(&configuration, options).expect("our own folder");
    configuration.display().to_string()
}
