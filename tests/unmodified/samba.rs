//! Files of Samba, by smbclient.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

use crate::{
    common::{content::letters, digest, programs::find},
    place::{Needs, Place, Program},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Large(&["smbd", "smbpasswd", "smbclient"]),
    test,
};

fn test(place: &Place) {
    fs::create_dir(place.path("share")).expect("our own folder");
    let folder = place.folder().display().to_string();
    let configuration = place.write(
        "smb.conf",
        format!(
            "[global]
             server role = standalone server
             private dir = {folder}
             lock directory = {folder}
             state directory = {folder}
             cache directory = {folder}
             pid directory = {folder}
             ncalrpc dir = {folder}/ncalrpc
             log file = {folder}/smbd.log
             disable netbios = yes
             load printers = no
             [share]
             path = {folder}/share
             read only = no\n"
        ),
    );
    let mut password = Command::new(find("smbpasswd").expect("its presence was tested"))
        .args(["-c", &configuration, "-L", "-s", "-a", "root"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut typed = password.stdin.take().expect("it is piped");
    typed.write_all(b"password\npassword\n").expect("it reads");
    drop(typed);
    assert!(password.wait().expect("it ends").success());
    let mut smbd = Command::new(find("smbd").expect("its presence was tested"));
    smbd.args(["--foreground", "--no-process-group", "--debug-stdout"]);
    let _server = place.serve(smbd.arg(format!("--configfile={configuration}")));
    place.wait_for_port(445);

    let file = letters(1, 3_000_000);
    place.write("file", &file);
    for host in place.hosts() {
        let address = host.address.to_string();
        let name = host.label();
        let commands = format!("put file {name}; get {name} back-{name}");
        let client = [
            "//origin/share",
            "-I",
            &address,
            "-U",
            "root%password",
            "-m",
            "SMB3",
        ];
        let settings = ["-s", &configuration, "-c", &commands];
        place.run("smbclient", &[&client[..], &settings].concat());
        for copy in [format!("share/{name}"), format!("back-{name}")] {
            let copied = fs::read(place.path(&copy)).expect("a copy");
            assert_eq!(digest(&copied), digest(&file), "{copy}");
        }
    }
}
