use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::opening::authority::{init, revoke, root_file};

fn permit(domains: &[&str]) -> Vec<String> {
    domains.iter().map(|&domain| domain.to_owned()).collect()
}

#[test]
fn names_are_listed_with_a_port_or_without() {
    let name = |text: &str| text.parse::<OpenName>().map(|name| name.0.to_string());
    assert_eq!(name("a.example").unwrap(), "a.example:443");
    assert_eq!(name("*.a.example").unwrap(), "*.a.example:443");
    assert_eq!(name("a.example:8443").unwrap(), "a.example:8443");
    for text in [
        "*",
        "*:443",
        "",
        "10.0.0.1",
        "10.0.0.0/8:443",
        "[::1]:443",
        "https://a.example",
        "a.*.example",
    ] {
        assert!(name(text).is_err(), "{text}");
    }
}

#[test]
fn a_ca_certifies_permitted_domains_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("ca");
    init(&folder, &permit(&["a.example", "b.test"]), None).unwrap();
    let key = std::fs::metadata(folder.join("intermediate.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    let authority = Authority::load(&folder).unwrap();
    for name in ["a.example", "x.a.example", "x.y.b.test"] {
        authority.permits(name).expect(name);
    }
    for name in [
        "example",
        "xa.example",
        "a.example.org",
        "c.test",
        "10.0.0.1",
        "::1",
    ] {
        let error = authority.permits(name).unwrap_err().to_string();
        assert!(error.contains("does not permit"), "{name}: {error}");
    }
    // A leaf is made once.
    let config = authority.config("a.example").unwrap();
    assert!(Arc::ptr_eq(
        &config,
        &authority.config("a.example").unwrap()
    ));
}

#[test]
fn a_ca_is_not_overwritten_and_a_revoked_one_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, kept) = (dir.path().join("ca"), dir.path().join("root.key"));
    init(&folder, &permit(&["a.example"]), Some(&kept)).unwrap();
    assert!(
        std::fs::read_to_string(&kept)
            .unwrap()
            .contains("PRIVATE KEY")
    );
    let root = std::fs::read(root_file(&folder)).unwrap();
    assert!(init(&folder, &permit(&["b.example"]), None).is_err());
    assert_eq!(std::fs::read(root_file(&folder)).unwrap(), root);
    revoke(&folder).unwrap();
    assert!(revoke(&folder).is_err());
    assert!(Authority::load(&folder).is_err());
    init(&folder, &permit(&["b.example"]), None).unwrap();
    assert_ne!(std::fs::read(root_file(&folder)).unwrap(), root);
}

#[test]
fn damaged_files_of_a_ca_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| dir.path().join(name);
    for name in ["ca", "other"] {
        init(&folder(name), &permit(&["a.example"]), None).unwrap();
    }
    let error = |name: &str| {
        Authority::load(&folder(name))
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert!(error("missing").contains("refrain ca init"));
    let key = folder("ca").join("intermediate.key");
    let own = std::fs::read(&key).unwrap();
    std::fs::copy(folder("other").join("intermediate.key"), &key).unwrap();
    assert!(error("ca").contains("is not the key of"));
    std::fs::write(&key, "nothing").unwrap();
    assert!(error("ca").contains("is not the key of"));
    std::fs::write(&key, own).unwrap();
    std::fs::write(folder("ca").join("intermediate.pem"), "nothing").unwrap();
    assert!(error("ca").contains("is not a certificate"));
    // The intermediate of another root certifies nothing for clients of this one.
    std::fs::copy(root_file(&folder("ca")), root_file(&folder("other"))).unwrap();
    let authority = Authority::load(&folder("other")).unwrap();
    assert!(authority.permits("a.example").is_err());
}

#[test]
fn a_domain_is_a_name() {
    let dir = tempfile::tempdir().unwrap();
    for domain in [
        "",
        "*.a.example",
        "10.0.0.1",
        "a example",
        "https://a.example",
        "300.1.1.1",
    ] {
        let made = init(&dir.path().join("ca"), &permit(&[domain]), None);
        assert!(made.is_err(), "{domain}");
        assert!(!dir.path().join("ca").exists(), "{domain}");
    }
}
