//! Packages of languages, and the indices that list them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{content::letters, programs::run_ok, sha256};

/// The name says for which Pythons and systems the package is: all.
const WHEEL: &str = "content-1.0-py3-none-any.whl";

/// Makes a project that needs the crate, and a user's settings with the registry.
pub(crate) fn cargo_project(folder: &Path, registry: &str) {
    fs::create_dir_all(folder.join("src")).expect("our own folder");
    fs::create_dir_all(folder.join("home")).expect("our own folder");
    for (name, text) in [
        (
            "Cargo.toml",
            "[package]\nname = \"user\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n\
             [dependencies]\ncontent = \"1.0.0\"\n",
        ),
        ("src/lib.rs", ""),
        (
            "home/config.toml",
            &format!(
                "[source.crates-io]\nreplace-with = \"own\"\n\n\
                 [source.own]\nregistry = \"sparse+{registry}/\"\n"
            ),
        ),
    ] {
        fs::write(folder.join(name), text).expect("our own folder");
    }
}

/// Has cargo, which was found, fetch the project's crates. Returns where the source of the crate will be.
pub(crate) fn cargo_vendor(cargo: &mut Command, folder: &Path) -> PathBuf {
    // The toolchain is of the machine's own user.
    let toolchains = env::var_os("HOME").map(|home| Path::new(&home).join(".rustup"));
    let toolchains = env::var_os("RUSTUP_HOME").or(toolchains.map(Into::into));
    if let Some(toolchains) = toolchains {
        cargo.env("RUSTUP_HOME", toolchains);
    }
    cargo
        .args(["vendor", "--quiet", "--respect-source-config", "vendored"])
        .env("CARGO_HOME", folder.join("home"))
        .current_dir(folder);
    folder.join("vendored/content/src/lib.rs")
}

/// Makes a crate in `folder`, its sparse index in a served folder, and its file in `crates` of another. Returns the
/// crate's source.
pub(crate) fn publish_crate(folder: &Path, index: &Path, files: &Path) -> Vec<u8> {
    const NAME: &str = "content-1.0.0";
    let source = folder.join(NAME).join("src");
    fs::create_dir_all(&source).expect("our own folder");
    let content = [&b"//! "[..], &letters(1, 300_000), b"\n"].concat();
    fs::write(source.join("lib.rs"), &content).expect("our own folder");
    let manifest = "[package]\nname = \"content\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    fs::write(folder.join(NAME).join("Cargo.toml"), manifest).expect("our own folder");
    run_ok("tar", folder, &["-czf", "content.crate", NAME]);
    let package = fs::read(folder.join("content.crate")).expect("a crate");
    let sum = sha256(&package);
    let entry = format!(
        "{{\"name\":\"content\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"{sum}\",\"features\":{{}},\"yanked\":false}}\n"
    );
    // The folders of an index are the first letters of names.
    fs::create_dir_all(index.join("co/nt")).expect("our own folder");
    fs::write(index.join("co/nt/content"), entry).expect("our own folder");
    fs::create_dir_all(files.join("crates")).expect("our own folder");
    fs::write(files.join(format!("crates/{NAME}.crate")), &package).expect("our own folder");
    content
}

/// Makes a package of Python in `folder`, its page below `simple` of a served folder, and its file in `files`, which the
/// page names by `url`. Returns the content of `content.py`.
pub(crate) fn publish_wheel(folder: &Path, index: &Path, files: &Path, url: &str) -> Vec<u8> {
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
        &["-q", "-r", WHEEL, "content.py", "content-1.0.dist-info"],
    );
    let pages = index.join("simple/content");
    fs::create_dir_all(&pages).expect("our own folder");
    fs::copy(folder.join(WHEEL), files.join(WHEEL)).expect("a package");
    let link = format!("<!DOCTYPE html><a href=\"{url}{WHEEL}\">{WHEEL}</a>\n");
    fs::write(pages.join("index.html"), link).expect("our own folder");
    content
}

/// Makes a package of Debian in `folder`, and its index in a served folder. Returns the package.
pub(crate) fn publish_deb(folder: &Path, www: &Path) -> Vec<u8> {
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

/// Makes apt's folders of a machine that has this source, and returns its configuration with these further lines: nothing
/// of this machine's has a part in it.
pub(crate) fn apt_machine(machine: &Path, source: &str, lines: &str) -> String {
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
    let source = format!("deb [trusted=yes] {source}/ ./\n");
    fs::write(machine.join("etc/apt/sources.list"), source).expect("our own folder");
    let configuration = machine.join("apt.conf");
    let machine = machine.display();
    let options = format!(
        "Dir \"{machine}\"; Dir::State::status \"{machine}/var/lib/dpkg/status\";
         Dir::Etc::main \"/dev/null\"; Dir::Etc::parts \"/dev/null\"; APT::Sandbox::User \"root\";
         APT::Architecture \"amd64\"; Acquire::Languages \"none\"; Acquire::Retries \"0\";\n{lines}"
    );
    fs::write(&configuration, options).expect("our own folder");
    configuration.display().to_string()
}
