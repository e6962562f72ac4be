//! SSH: a command, keystrokes on a terminal, and copies.

use std::{
    fs,
    io::{Read, Write},
    process::Command,
};

use crate::{
    common::{
        content::letters,
        digest,
        programs::{find, run_ok},
        terminal::terminal,
    },
    place::{Needs, Place, Program},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Usual(&["ssh", "sshd", "ssh-keygen", "scp"]),
    test,
};

fn test(place: &Place) {
    for key in ["host", "user"] {
        let words = ["-q", "-t", "ed25519", "-N", "", "-f", key];
        run_ok("ssh-keygen", place.folder(), &words);
    }
    let folder = place.folder().display().to_string();
    let configuration = place.write(
        "sshd_config",
        format!(
            "HostKey {folder}/host\nPidFile none\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\n\
             PermitRootLogin yes\nUsePAM no\nUseDNS no\nSubsystem sftp internal-sftp\n"
        ),
    );
    // It wants this folder, and its own name as a path.
    fs::create_dir_all("/run/sshd").expect("root may");
    let sshd = find("sshd").expect("its presence was tested");
    let _server = place.serve(Command::new(sshd).args(["-D", "-e", "-f", &configuration]));
    place.wait_for_port(22);

    let public = fs::read_to_string(place.path("host.pub")).expect("a key");
    let known = place
        .hosts()
        .map(|host| format!("{} {public}", host.address));
    place.write("known", known.concat());
    // The default key exchange takes a third of a second of CPU time.
    let client = place.write(
        "ssh_config",
        format!(
            "IdentityFile {folder}/user\nIdentitiesOnly yes\nBatchMode yes\nUser root\n\
             UserKnownHostsFile {folder}/known\nStrictHostKeyChecking yes\n\
             KexAlgorithms curve25519-sha256\nLogLevel ERROR\n"
        ),
    );
    let file = letters(1, 1_000_000);
    place.write("file", &file);
    for host in place.hosts() {
        let address = host.address.to_string();
        let seen = place.run("ssh", &["-F", &client, &address, "echo $SSH_CONNECTION"]);
        let seen = String::from_utf8(seen).expect("a text");
        assert_eq!(seen.split(' ').next(), Some(host.sees));

        type_keys(
            place,
            &["-F", &client, "-t", &address, "echo ready && exec cat"],
        );

        let (there, back) = (
            format!("there-{}", host.label()),
            format!("back-{}", host.label()),
        );
        let remote = format!("{}:{folder}/{there}", host.in_url());
        place.run("scp", &["-q", "-F", &client, "file", &remote]);
        place.run("scp", &["-q", "-F", &client, &remote, &back]);
        for copy in [there, back] {
            let copied = fs::read(place.path(&copy)).expect("a copy");
            assert_eq!(digest(&copied), digest(&file), "{copy}");
        }
    }
}

/// Types on a terminal. The remote one shows each key before the next is typed.
fn type_keys(place: &Place, arguments: &[&str]) {
    let (mut keyboard, terminal) = terminal();
    let mut ssh = place.program("ssh", arguments);
    ssh.env("TERM", "dumb");
    ssh.stdin(terminal.try_clone().expect("a terminal"));
    ssh.stdout(terminal);
    let mut child = ssh.spawn().expect("it starts");
    // From then on, only the remote terminal shows keys.
    let mut ready = [0; 7];
    keyboard.read_exact(&mut ready).expect("a terminal");
    assert_eq!(&ready, b"ready\r\n");
    let (line, mut shown) = ("typed line", [0]);
    for key in line.bytes() {
        keyboard.write_all(&[key]).expect("a terminal");
        keyboard.read_exact(&mut shown).expect("a terminal");
        assert_eq!(shown[0], key);
    }
    keyboard.write_all(b"\r").expect("a terminal");
    let mut answer = vec![0; line.len() + 4];
    keyboard.read_exact(&mut answer).expect("a terminal");
    assert_eq!(String::from_utf8_lossy(&answer), format!("\r\n{line}\r\n"));
    keyboard.write_all(&[4]).expect("a terminal");
    assert!(child.wait().expect("it ends").success());
}
