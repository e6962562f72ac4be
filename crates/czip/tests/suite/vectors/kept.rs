//! Vectors are read for ever, and an archive depends on nothing but input and options.

use std::{env, fs, ops::ControlFlow, path::PathBuf};

use refrain_czip::{
    archive::{Archive, CacheBytes},
    verify::{verify, verify_content, verify_names},
};
use refrain_czip_format::header::Profile;

use crate::vectors::{features, listing::listing};

pub(crate) fn testdata(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "testdata", name]
        .iter()
        .collect()
}

/// An archive, unlocked if it is encrypted.
pub(crate) fn open(bytes: Vec<u8>) -> Archive<Vec<u8>> {
    let mut archive = Archive::open(bytes, CacheBytes::default()).unwrap();
    let (identities, secret) = (features::identities(), features::secret());
    archive
        .unlock(&identities, Some(&secret), &mut |_| None)
        .unwrap();
    archive.check_group_secret().unwrap();
    archive
}

/// An archive and its listing; made first if they are missing and that is wanted.
pub(crate) fn vector(feature: &features::Feature) -> (Vec<u8>, String) {
    let name = feature.name;
    let archive_path = testdata(&format!("{name}.czip"));
    let listing_path = testdata(&format!("{name}.listing"));
    let is_blessed = env::var("REFRAIN_BLESS").is_ok_and(|value| value == "1");
    if is_blessed && !archive_path.exists() {
        let bytes = feature.make();
        let archive = open(bytes.clone());
        fs::write(&listing_path, listing(&archive).unwrap()).unwrap();
        fs::write(&archive_path, bytes).unwrap();
    }
    let missing = "REFRAIN_BLESS=1 makes the vectors that are missing";
    let bytes = fs::read(&archive_path).expect(missing);
    (bytes, fs::read_to_string(&listing_path).expect(missing))
}

#[test]
fn every_vector_is_read_and_has_what_went_into_it() {
    for feature in features::all() {
        let name = feature.name;
        let (bytes, expected) = vector(&feature);
        let archive = open(bytes);
        assert_eq!(listing(&archive).unwrap(), expected, "{name}");
        let verified = verify(&archive, 2, &|_| ControlFlow::Continue(())).unwrap();
        assert!(verified.is_some(), "{name}");
        let names = verify_names(&archive, 2, &|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(names, Some(archive.header().chunks), "{name}");
        let mut content = Vec::new();
        verify_content(&archive, 2, &mut |piece| {
            content.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
        if let Some(plain) = feature.plain() {
            assert!(content == plain, "{name}: other bytes come back");
        }
    }
}

#[test]
fn the_same_input_gives_the_same_archive_by_any_number_of_threads() {
    for feature in features::all().iter().filter(|it| !it.is_encrypted()) {
        let name = feature.name;
        let first = feature.make_with(1);
        for threads in [1, 2, 5] {
            assert!(
                first == feature.make_with(threads),
                "{name}, {threads} threads"
            );
        }
    }
}

#[test]
fn encrypted_vectors_are_what_they_are_called() {
    for (name, is_padded, has_group_secret, profile) in [
        ("encrypted", false, false, Profile::Small),
        ("encrypted-shared", true, true, Profile::Shared),
    ] {
        let bytes = fs::read(testdata(&format!("{name}.czip"))).unwrap();
        let archive = Archive::open(bytes, CacheBytes::default()).unwrap();
        assert!(archive.is_locked(), "{name}");
        assert_eq!(archive.header().profile, profile);
        let how = archive.header().encryption.unwrap();
        assert_eq!(
            (how.is_padded, how.has_group_secret),
            (is_padded, has_group_secret)
        );
    }
}

#[test]
fn a_byte_of_another_value_in_an_encrypted_vector_is_found_without_a_key() {
    for name in ["encrypted", "encrypted-shared"] {
        let sound = fs::read(testdata(&format!("{name}.czip"))).unwrap();
        for at in 0..sound.len() {
            let mut damaged = sound.clone();
            damaged[at] ^= 0x40;
            let opened = Archive::open(damaged, CacheBytes::default());
            let found = opened.and_then(|it| verify(&it, 1, &|_| ControlFlow::Continue(())));
            assert!(found.is_err(), "{name}: byte {at}");
        }
    }
}

#[test]
fn the_vector_of_bases_has_bases() {
    let all = features::all();
    let feature = all.iter().find(|one| one.name == "bases").unwrap();
    let (bytes, _) = vector(feature);
    let mut options = feature.options.clone();
    options.has_bases = false;
    let without = features::Feature {
        name: feature.name,
        content: features::Content::Bytes(feature.plain().unwrap().to_vec()),
        options,
        is_piped: false,
    };
    assert!(bytes.len() < without.make().len());
}
