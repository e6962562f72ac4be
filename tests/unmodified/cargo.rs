//! cargo: the index of a registry, and a crate.

use std::{env, fs, path::Path};

use crate::{
    common::{content::letters, digest, nginx::Nginx, programs::run_ok, sha256},
    place::{Host, Needs, Place, Program, listen_lines},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Usual(&["nginx", "tar", "cargo"]),
    test,
};

fn test(place: &Place) {
    let server = place.at_origin(|| Nginx::start_with_lines(&listen_lines("80")));
    let content = publish(&server.www(), place.folder());
    for host in place.hosts() {
        let registry = format!("http://{}", host.in_url());
        let configuration = format!("{{\"dl\":\"{registry}/crates/{{crate}}-{{version}}.crate\"}}");
        fs::write(server.www().join("config.json"), configuration).expect("our own folder");
        let user = user_of(place, &host, &registry);
        let mut cargo = place.program(
            "cargo",
            &["vendor", "--quiet", "--respect-source-config", "vendored"],
        );
        // The toolchain is of the machine's own user.
        let toolchains = env::var_os("HOME").map(|home| Path::new(&home).join(".rustup"));
        let toolchains = env::var_os("RUSTUP_HOME").or(toolchains.map(Into::into));
        if let Some(toolchains) = toolchains {
            cargo.env("RUSTUP_HOME", toolchains);
        }
        cargo
            .env("CARGO_HOME", user.join("home"))
            .current_dir(&user);
        place.output(&mut cargo);
        let received = fs::read(user.join("vendored/content/src/lib.rs")).expect("a crate");
        assert_eq!(digest(&received), digest(&content));
    }
}

/// A project that needs the crate, and a user's settings with the registry. Returns their folder.
fn user_of(place: &Place, host: &Host, registry: &str) -> std::path::PathBuf {
    let folder = place.path(host.label());
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
    folder
}

/// Makes a crate and its index in the served folder. Returns the crate's source.
fn publish(www: &Path, folder: &Path) -> Vec<u8> {
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
    fs::create_dir_all(www.join("co/nt")).expect("our own folder");
    fs::write(www.join("co/nt/content"), entry).expect("our own folder");
    fs::create_dir_all(www.join("crates")).expect("our own folder");
    fs::write(www.join(format!("crates/{NAME}.crate")), &package).expect("our own folder");
    content
}
