use super::*;
use proptest::prelude::*;
use std::env;
use std::os::unix::fs::chown;
use tempfile::TempDir;

fn write(dir: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    set_mode(&path, 0o600);
    path
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn public() -> PublicKey {
    PrivateKey::generate().unwrap().public()
}

#[test]
fn a_written_key_loads_as_itself_and_is_never_overwritten() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("near.key");
    let key = PrivateKey::generate().unwrap();
    key.write_new(&path).unwrap();
    assert_eq!(PrivateKey::load(&path).unwrap().public(), key.public());
    assert!(matches!(key.write_new(&path), Err(KeyError::Exists(_))));
    let empty = write(&dir, "empty.key", "");
    assert!(matches!(key.write_new(&empty), Err(KeyError::Empty(_))));
    assert_eq!(fs::read(&empty).unwrap(), b"");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 3, "nothing else");
    assert_eq!(PrivateKey::load(&path).unwrap().public(), key.public());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&dir.path().join("near.key.pub")), 0o644);
}

#[test]
fn the_public_half_is_written_next_to_it_or_neither_is() {
    let dir = TempDir::new().unwrap();
    let (path, public_path) = (dir.path().join("a"), dir.path().join("a.pub"));
    let key = PrivateKey::generate().unwrap();
    for other in ["of another key", ""] {
        fs::write(&public_path, other).unwrap();
        assert!(key.write_new(&path).is_err());
        assert!(!path.exists(), "nothing was made");
        assert_eq!(fs::read_to_string(&public_path).unwrap(), other);
    }
    fs::remove_file(&public_path).unwrap();
    std::os::unix::fs::symlink("elsewhere", &public_path).unwrap();
    assert!(matches!(key.write_new(&path), Err(KeyError::Exists(_))));
    fs::remove_file(&public_path).unwrap();
    let nowhere = key.write_new(&dir.path().join("nowhere/a")).unwrap_err();
    let text = nowhere.to_string();
    assert!(
        text.contains("nowhere/a\": ") && text.ends_with("directory does not exist"),
        "{nowhere}"
    );
    let in_proc = key.write_new(Path::new("/proc/a.key")).unwrap_err();
    let text = in_proc.to_string();
    assert!(
        text.contains("/proc/a.key\": ") && text.ends_with("not accept new files"),
        "{in_proc}"
    );
    key.write_new(&path).unwrap();
    let below = key.write_new(&path.join("b")).unwrap_err().to_string();
    assert!(
        below.ends_with("/a/b\": Not a directory (os error 20)"),
        "{below}"
    );
    let text = fs::read_to_string(&public_path).unwrap();
    assert_eq!(text, format!("{}\n", key.public()));
    let peers = PeerKeys::load(&[public_path.to_str().unwrap()]).unwrap();
    assert!(peers.contains(&key.public()));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "nothing else");
}

#[test]
fn a_key_that_openssl_made_loads() {
    // openssl genpkey -algorithm ed25519; PKCS#8 version 1. The key of RFC 8410, section 10.3.
    let pem = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";
    let dir = TempDir::new().unwrap();
    let key = PrivateKey::load(&write(&dir, "openssl.key", pem)).unwrap();
    let public = "Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
    assert_eq!(key.public().to_string(), public);
}

#[test]
fn a_byte_order_mark_is_part_of_no_key() {
    let dir = TempDir::new().unwrap();
    let key = PrivateKey::generate().unwrap();
    let path = write(&dir, "near.key", &format!("\u{feff}{}", key.to_pem()));
    assert_eq!(PrivateKey::load(&path).unwrap().public(), key.public());
    let peers = write(&dir, "peers", &format!("\u{feff}{} near\r\n", key.public()));
    let peers = PeerKeys::load(&[peers.display().to_string()]).unwrap();
    assert_eq!(peers.name(&key.public()), Some("near"));
    let token = write(&dir, "token", "\u{feff}secret");
    let token = read_secret_file(&token, |text| Ok::<_, KeyError>(text.to_owned()));
    assert_eq!(token.unwrap(), "secret");
    let empty = PrivateKey::load(&write(&dir, "empty", "\u{feff}"));
    assert!(matches!(empty, Err(KeyError::Empty(_))));
}

#[test]
fn a_key_of_another_user_names_both() {
    let dir = TempDir::new().unwrap();
    let file = write(&dir, "near.key", "");
    // Only root can give a file away.
    if chown(&file, Some(1), None).is_err() {
        return;
    }
    let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
    let error = io_error(&file)(denied()).to_string();
    let advice = format!("chown {} {}", geteuid().as_raw(), file.display());
    assert!(error.contains(&advice), "{error}");
    let own = write(&dir, "own.key", "");
    let error = io_error(&own)(denied());
    assert!(matches!(error, KeyError::Io { .. }), "{error}");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("near.key");
    PrivateKey::generate().unwrap().write_new(&path).unwrap();
    set_mode(&path, 0o640);
    let error = PrivateKey::load(&path).unwrap_err();
    assert!(matches!(error, KeyError::Exposed { mode: 0o640, .. }));
    assert!(error.to_string().contains("chmod 600"));
}

#[test]
fn what_is_no_private_key_is_told_apart() {
    let dir = TempDir::new().unwrap();
    let missing = PrivateKey::load(&dir.path().join("missing"));
    let missing = missing.unwrap_err().to_string();
    assert!(missing.contains("refrain keygen"), "{missing}");
    assert!(!missing.contains("relative"), "{missing}");
    let relative = PrivateKey::load(Path::new("no/such.key")).unwrap_err();
    let here = format!(
        "no such file in \"{}\"",
        env::current_dir().unwrap().display()
    );
    assert!(relative.to_string().contains(&here), "{relative}");
    let empty = PrivateKey::load(&write(&dir, "empty", ""));
    assert!(matches!(empty, Err(KeyError::Empty(_))));
    let path = write(&dir, "near.key.pub", &format!("{} near\n", public()));
    let by_mistake = PrivateKey::load(&path).unwrap_err();
    assert!(matches!(by_mistake, KeyError::IsPublic(_)));
    let hint = format!("give \"{}\"; ", dir.path().join("near.key").display());
    assert!(!by_mistake.to_string().contains(&hint), "it is not there");
    write(&dir, "near.key", "");
    assert!(by_mistake.to_string().contains(&hint), "{by_mistake}");
    let key = public().to_string();
    let by_mistake = PrivateKey::load(Path::new(&key)).unwrap_err();
    assert!(matches!(by_mistake, KeyError::IsPublic(_)));
    let other = PrivateKey::load(&write(&dir, "other", "hello"));
    assert!(matches!(other, Err(KeyError::NotPrivate(_))));
    let large = write(&dir, "large", &"a".repeat(1 << 20));
    assert!(matches!(PrivateKey::load(&large), Err(KeyError::Io { .. })));
}

#[test]
fn what_is_no_secret_is_said_before_its_mode() {
    let dir = TempDir::new().unwrap();
    let other = write(&dir, "other", "hello");
    set_mode(&other, 0o644);
    let fault = |path: &Path| PrivateKey::load(path).unwrap_err();
    assert!(matches!(fault(&other), KeyError::NotPrivate(_)));
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo is there").success());
    // Nobody writes to the pipe, and opening it would wait for that.
    set_mode(&pipe, 0o644);
    for path in [dir.path(), Path::new("/dev/null"), pipe.as_path()] {
        let error = fault(path);
        assert!(matches!(error, KeyError::NotFile { .. }), "{error}");
        assert!(!error.to_string().contains("chmod"), "{error}");
        let error = read_secret_file(path, |_| Ok::<_, KeyError>(())).unwrap_err();
        assert!(matches!(error, KeyError::NotFile { .. }), "{error}");
    }
}

#[test]
fn a_private_key_of_another_kind_is_no_public_key() {
    let dir = TempDir::new().unwrap();
    // The last line of an OpenSSH key may be as long as a public key.
    let line = public();
    for (label, is_ssh) in [("OPENSSH ", true), ("RSA ", false)] {
        let text = format!(
            "-----BEGIN {label}PRIVATE KEY-----\n{line}\n-----END {label}PRIVATE KEY-----\n"
        );
        let path = write(&dir, "key", &text);
        let error = PrivateKey::load(&path).unwrap_err();
        match is_ssh {
            true => assert!(matches!(error, KeyError::OpenSsh(_)), "{error}"),
            false => assert!(matches!(error, KeyError::NotPrivate(_)), "{error}"),
        }
        let error = PeerKeys::load(&[path.display().to_string()]).unwrap_err();
        assert!(matches!(error, KeyError::IsPrivate(_)), "{error}");
        assert!(!error.to_string().contains("key.pub\""), "{error}");
    }
}

#[test]
fn debug_hides_the_private_half() {
    let key = PrivateKey::generate().unwrap();
    let shown = format!("{key:?}");
    let public = key.public().to_string();
    assert!(shown.contains(&public));
    // A random key may contain any three letters.
    assert!(!shown.replace(&public, "").contains("der"));
}

#[test]
fn a_public_key_round_trips_and_faults_are_named() {
    let key = public();
    assert_eq!(key.to_string().len(), 44);
    assert_eq!(key.to_string().parse(), Ok(key));
    let fault = |text: &str| text.parse::<PublicKey>().unwrap_err();
    assert_eq!(fault("near.key"), PublicKeyError::NotBase64);
    assert_eq!(fault("AAAA"), PublicKeyError::WrongLength(3));
}

proptest! {
    #[test]
    fn any_text_is_a_key_or_an_error(text in any::<String>()) {
        let _ = text.parse::<PublicKey>();
        let _ = pem_body(&text, "PRIVATE KEY");
    }

    #[test]
    fn a_flipped_or_truncated_key_never_panics(at in 0usize..83, bit in 0u8..8, keep in 0usize..84) {
        let mut der = PrivateKey::generate().unwrap().der;
        let _ = PrivateKey::from_der(der[..keep.min(der.len())].to_vec());
        let at = at % der.len();
        der[at] ^= 1 << bit;
        let _ = PrivateKey::from_der(der);
    }
}
