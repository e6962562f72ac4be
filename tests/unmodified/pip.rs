//! pip: the pages of an index, and a package.

use std::{fs, path::Path};

use crate::{
    common::{content::letters, digest, nginx::Nginx, programs::run_ok},
    place::{Needs, Place, Program, listen_lines},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Large(&["nginx", "zip", "pip3"]),
    test,
};

/// The name says for which Pythons and systems the package is: all.
const PACKAGE: &str = "content-1.0-py3-none-any.whl";

fn test(place: &Place) {
    let server = place.at_origin(|| Nginx::start_with_lines(&listen_lines("80")));
    let content = publish(&server.www(), place.folder());
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

/// Makes a package and its index in the served folder. Returns the content.
fn publish(www: &Path, folder: &Path) -> Vec<u8> {
    let information = folder.join("content-1.0.dist-info");
    fs::create_dir_all(&information).expect("our own folder");
    let content = [&b"TEXT = '"[..], &letters(1, 300_000), b"'\n"].concat();
    fs::write(folder.join("content.py"), &content).expect("our own folder");
    for (name, text) in [
        (
            "METADATA",
            "Metadata-Version: 2.1\nName: content\nVersion: 1.0\n",
        ),
        (
            "WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
        (
            "RECORD",
            "content.py,,\ncontent-1.0.dist-info/METADATA,,\ncontent-1.0.dist-info/WHEEL,,\n\
             content-1.0.dist-info/RECORD,,\n",
        ),
    ] {
        fs::write(information.join(name), text).expect("our own folder");
    }
    run_ok(
        "zip",
        folder,
        &["-q", "-r", PACKAGE, "content.py", "content-1.0.dist-info"],
    );
    let pages = www.join("simple/content");
    fs::create_dir_all(&pages).expect("our own folder");
    fs::copy(folder.join(PACKAGE), pages.join(PACKAGE)).expect("a package");
    let link = format!("<!DOCTYPE html><a href=\"{PACKAGE}\">{PACKAGE}</a>\n");
    fs::write(pages.join("index.html"), link).expect("our own folder");
    content
}
