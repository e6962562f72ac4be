//! Archives that are encrypted to the keys that people have.

use std::{fs, sync::atomic::Ordering::SeqCst};

use super::{
    World,
    common::{
        command::{command, keygen},
        programs::{are_installed, run_ok},
    },
    gets::Server,
    noise,
};

const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

const RECIPIENT: &str = "age18x9npz5grrssnqcn3q7jczj74m57w0km58xhh6f9xg8znvqad9ys99mrhc";

/// An age identity in `name`; its recipient.
fn age_key(world: &World, name: &str) -> String {
    run_ok("age-keygen", &world.path(""), &["-o", name]);
    let recipient = run_ok("age-keygen", &world.path(""), &["-y", name]);
    String::from_utf8(recipient)
        .expect("text")
        .trim()
        .to_owned()
}

fn ssh_key(world: &World, kind: &str, name: &str) {
    let arguments = ["-q", "-t", kind, "-N", "", "-f", name];
    run_ok("ssh-keygen", &world.path(""), &arguments);
}

#[test]
fn each_recipient_reads_it_with_the_key_he_has() {
    if !are_installed(&["age-keygen", "ssh-keygen"]) {
        return;
    }
    let world = World::new();
    let recipient = age_key(&world, "age.key");
    ssh_key(&world, "ed25519", "id_ed25519");
    ssh_key(&world, "rsa", "id_rsa");
    age_key(&world, "stranger.key");
    let (one, two) = (noise(1, 200_000), noise(2, 100_000));
    world.write("d/one", &one);
    world.write("d/two", &two);
    world.write("secret", SECRET.as_bytes());
    let to = [
        "--encrypt-to",
        &recipient,
        "--encrypt-to",
        "id_ed25519.pub",
        "--encrypt-to",
        "id_rsa.pub",
    ];
    let how = ["--group-secret", "secret", "--pad"];
    let create = ["create", "d", "-o", "d.czip"];
    let report = world.json(&[&create[..], &to, &how].concat());
    assert_eq!(report["plain_bytes"], 300_000);

    for key in ["age.key", "id_ed25519", "id_rsa"] {
        assert_eq!(world.run(&["cat", "d.czip", "d/two", "-i", key]), two);
    }
    world.run(&[
        "extract",
        "d.czip",
        "-o",
        "out",
        "-i",
        "age.key",
        "--group-secret",
        "secret",
    ]);
    assert_eq!(fs::read(world.path("out/d/one")).expect("extracted"), one);
    assert_eq!(
        world.json(&["list", "d.czip", "-i", "id_rsa"])["entries"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );

    let (_, error) = world.fails(&["cat", "d.czip"]);
    assert!(error.contains("--identity"), "{error}");
    let (_, error) = world.fails(&["cat", "d.czip", "-i", "stranger.key"]);
    assert!(error.contains("d.czip"), "{error}");
    // Whoever keeps it can check that it is sound.
    world.run(&["verify", "d.czip"]);
    let stat = world.json(&["stat", "d.czip"]);
    assert_eq!(stat["encrypted"], true);
    let unlocked = world.json(&["stat", "d.czip", "-i", "age.key"]);
    assert_eq!(unlocked["plain_bytes"], 300_000);
    let known_to_all = ["archive_bytes", "stored_bytes", "chunks", "references"];
    let known_to_some = [
        "entries",
        "plain_bytes",
        "unique_bytes",
        "redundancy",
        "table_bytes",
        "table_bytes_per_chunk",
        "table_bytes_per_reference",
        "digest",
    ];
    for (name, value) in unlocked.as_object().expect("an object") {
        if known_to_some.contains(&name.as_str()) {
            assert!(!value.is_null() && stat[name].is_null(), "{name}");
        } else if name != "streams" {
            assert_eq!(&stat[name], value, "{name}");
        }
    }
    for name in known_to_all {
        assert!(stat[name].as_u64().expect("a number") > 0, "{name}");
    }
    let (locked, open) = (&stat["streams"][0], &unlocked["streams"][0]);
    for name in ["stored_bytes", "frames", "chunks"] {
        assert!(
            locked[name].as_u64() > Some(0) && locked[name] == open[name],
            "{name}"
        );
    }
    for name in ["bytes", "unique_bytes", "references"] {
        assert!(
            locked[name].is_null() && open[name].as_u64() > Some(0),
            "{name}"
        );
    }
    let output = world.run_with(&["stat", "d.czip"], b"");
    let lines = String::from_utf8(output.stdout).expect("text");
    let first = lines.lines().next().unwrap_or_default();
    assert!(first.starts_with("archive of "), "{lines}");
    assert!(first.ends_with(", content encrypted"), "{lines}");
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.contains("--identity"), "{error}");
    let (_, error) = world.fails(&["list", "d.czip"]);
    assert!(
        error.contains("d.czip") && error.contains("--identity"),
        "{error}"
    );
}

#[test]
fn keys_that_are_none_are_named() {
    let world = World::new();
    world.write("file", b"content");
    world.write("none", b"no key\n");
    world.write("short", b"0123\n");
    world.write("key", b"-----BEGIN OPENSSH PRIVATE KEY-----\n");
    world.write("key.pub", RECIPIENT.as_bytes());
    let create = ["create", "file", "-o", "out.czip", "--encrypt-to"];
    let refused = |arguments: &[&str], expected: i32, said: &str| {
        let (code, error) = world.fails(&[&create[..], arguments].concat());
        assert_eq!(code, Some(expected), "{error}");
        assert!(error.contains(said), "{error}");
    };
    let unread = "cannot read keys from \"none\": line 1: not a ";
    refused(&["none"], 1, unread);
    refused(&["key"], 1, "(give key.pub)");
    // What is wrong on the command line is wrong usage.
    refused(&["missing.pub"], 2, "\"missing.pub\" is neither ");
    refused(&["age1xyz"], 2, "invalid key \"age1xyz\": ");
    let short = [RECIPIENT, "--group-secret", "short"];
    refused(&short, 1, "cannot use group secret \"short\": ");
    assert!(!world.path("out.czip").exists());
}

#[test]
fn what_an_encrypted_archive_shares_with_another_is_not_fetched() {
    if !are_installed(&["age-keygen"]) {
        return;
    }
    let world = World::new();
    let recipient = age_key(&world, "age.key");
    let old = noise(1, 3 << 20);
    let mut new = old.clone();
    new[1 << 20..][..8].copy_from_slice(b"8 others");
    world.write("secret", SECRET.as_bytes());
    let how = ["--encrypt-to", &recipient, "--group-secret", "secret"];
    for (content, archive) in [(&old, "old.czip"), (&new, "new.czip")] {
        world.write("content", content);
        world.run(&[&["create", "content", "-o", archive][..], &how].concat());
    }
    let archive = fs::read(world.path("new.czip")).expect("an archive");
    let server = Server::start(archive.clone(), u64::MAX);
    let get = ["get", &server.url(), "-o", "out"];
    let few = |report: &serde_json::Value, came: u64| {
        assert_eq!(report["fetched"]["bytes"], came);
        assert!(came < 700_000, "{report}");
    };
    let mut sent = 0;
    let mut came = || {
        let before = std::mem::replace(&mut sent, server.sent.load(SeqCst));
        sent - before
    };

    let (code, error) = world.fails(&get);
    assert_eq!(code, Some(1));
    assert!(error.contains("--identity"), "{error}");
    came();
    let keys = ["--identity", "age.key", "--seed", "old.czip"];
    let report = world.json(&[&get[..], &keys].concat());
    assert_eq!(fs::read(world.path("out")).expect("there"), new);
    assert_eq!(report["plain_bytes"], new.len());
    few(&report, came());

    // A file is as good a seed for who knows the secret; who does not is told so.
    world.write("plain", &old);
    let plain = ["--identity", "age.key", "--seed", "plain"];
    let secret = ["--group-secret", "secret"];
    let report = world.json(&[&get[..], &plain, &secret].concat());
    few(&report, came());
    let output = world.run_with(&[&get[..], &plain].concat(), b"");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && error.contains("cannot use seed \"plain\": "),
        "{error}"
    );
    assert!(error.contains("group secret"), "{error}");
    assert!(came() > 2 << 20);

    // Nobody needs a key for the archive as it is.
    let kept = ["--archive", "--seed", "old.czip"];
    let report = world.json(&[&get[..], &kept].concat());
    assert_eq!(fs::read(world.path("out")).expect("there"), archive);
    assert!(report["plain_bytes"].is_null(), "{report}");
    let from_seeds = &report["stored"]["from_seeds"]["bytes"];
    assert!(from_seeds.as_u64() > Some(2 << 20), "{report}");
    few(&report, came());
    let text = world.run(&[&get[..], &kept].concat());
    let text = String::from_utf8(text).expect("text");
    assert!(!text.contains("of the plain file"), "{text}");
}

#[test]
fn a_group_secret_without_a_recipient_makes_no_plain_archive_unseen() {
    let world = World::new();
    world.write("file", b"content");
    world.write("secret", SECRET.as_bytes());
    let create = ["create", "file", "-o", "out.czip"];
    let (code, error) = world.fails(&[&create[..], &["--group-secret", "secret"]].concat());
    assert_eq!(code, Some(2));
    assert!(
        error.contains("--group-secret needs --encrypt-to"),
        "{error}"
    );
    assert!(!world.path("out.czip").exists());
    // A variable may be meant for other archives.
    let output = command(&["czip"])
        .args(create)
        .current_dir(world.path(""))
        .env("REFRAIN_CZIP_GROUP_SECRET", "secret")
        .output()
        .expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(error.contains("REFRAIN_CZIP_GROUP_SECRET"), "{error}");
    assert!(error.contains("--encrypt-to"), "{error}");
    assert_eq!(world.json(&["stat", "out.czip"])["encrypted"], false);
}

#[test]
fn mistakes_with_keys_are_called_what_they_are() {
    if !are_installed(&["age-keygen", "ssh-keygen"]) {
        return;
    }
    let world = World::new();
    let recipient = age_key(&world, "age.key");
    world.write("recipient", recipient.as_bytes());
    keygen(&world.path("link.key"));
    // A file whose name begins as a key does.
    ssh_key(&world, "ed25519", "ssh-team");
    world.write("file", &noise(1, 50_000));
    world.write("secret", SECRET.as_bytes());
    world.write("other", SECRET.replace('0', "f").as_bytes());
    let secret = ["--group-secret", "secret", "--encrypt-to", &recipient];
    let to_team = ["--encrypt-to", "ssh-team.pub"];
    let create = ["create", "file", "-o", "out.czip"];
    world.run(&[&create[..], &secret, &to_team].concat());
    world.run(&["verify", "out.czip", "--content", "-i", "ssh-team"]);

    let how = &world.json(&["stat", "out.czip"])["encryption"];
    assert_eq!(
        how["recipients"],
        serde_json::json!(["X25519", "ssh-ed25519"])
    );
    assert_eq!(
        (&how["group_secret"], &how["padded"]),
        (&true.into(), &false.into())
    );

    let verify = ["verify", "out.czip"];
    for (arguments, expected) in [
        (&["--content"][..], "--identity"),
        (&["-i", "ssh-team.pub"], "public key"),
        (&["-i", "recipient"], "public key"),
        (&["-i", "link.key"], "a key of `refrain keygen`"),
        (
            &["-i", "age.key", "--group-secret", "other"],
            "group secret",
        ),
    ] {
        let (_, error) = world.fails(&[&verify[..], arguments].concat());
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(!error.contains("damaged"), "{arguments:?}: {error}");
    }

    // A test has no terminal on which its passphrase could be asked for.
    let key = ["-q", "-t", "ed25519", "-N", "secret words", "-f", "locked"];
    run_ok("ssh-keygen", &world.path(""), &key);
    let to_locked = ["create", "file", "-o", "locked.czip", "--encrypt-to"];
    world.run(&[&to_locked[..], &["locked.pub"]].concat());
    let (code, error) = world.fails(&["cat", "locked.czip", "-i", "locked"]);
    assert_eq!(code, Some(1));
    for words in ["passphrase of \"locked\"", "terminal", "a key without"] {
        assert!(error.contains(words), "{error}");
    }

    let mut archive = fs::read(world.path("out.czip")).expect("made");
    let keys = archive
        .windows(21)
        .position(|it| it == b"age-encryption.org/v1");
    archive[keys.expect("its keys") + 60] ^= 1;
    world.write("damaged.czip", &archive);
    for arguments in [&[][..], &["-i", "age.key"]] {
        let verify = [&["verify", "damaged.czip"], arguments].concat();
        let text = String::from_utf8(world.run_with(&verify, b"").stdout).expect("text");
        assert!(text.contains("keys section"), "{arguments:?}: {text}");
    }
}

#[test]
fn a_byte_order_mark_is_part_of_no_key() {
    const IDENTITY: &str =
        "AGE-SECRET-KEY-13FRM9VGUH6XJ3AYLZ5VZDFH576C77QH98GK5PFVGUNNX5QYC0SQSLEAYVE";
    let world = World::new();
    world.write("file", b"content");
    for (name, content) in [("to", RECIPIENT), ("key", IDENTITY), ("secret", SECRET)] {
        world.write(name, format!("\u{feff}{content}\r\n").as_bytes());
    }
    let how = ["--encrypt-to", "to", "--group-secret", "secret"];
    world.run(&[&["create", "file", "-o", "file.czip"][..], &how].concat());
    let keys = ["-i", "key", "--group-secret", "secret"];
    let content = world.run(&[&["cat", "file.czip"][..], &keys].concat());
    assert_eq!(content, b"content");
}
