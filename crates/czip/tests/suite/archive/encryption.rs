use std::sync::Arc;

use age::secrecy::ExposeSecret;
use refrain_czip::{
    archive::ReadError,
    create::{CreateOptions, EncryptOptions},
    crypt::{GroupSecret, Identities, PrivateKey, Recipients, unwrap},
    verify::verify,
};
use refrain_czip_format::{FormatError, Stream, Violation, header::Profile};

use crate::archive::{archive_of, noise, open, options, piped_archive_of, read_all, tar_of};

const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

pub(crate) fn secret() -> GroupSecret {
    GroupSecret::parse(SECRET.as_bytes()).expect("32 bytes")
}

/// A recipient, and the identity that it is of.
pub(crate) fn pair() -> (String, Identities) {
    let identity = age::x25519::Identity::generate();
    let mut identities = Identities::new();
    let file = identity.to_string();
    let file = file.expose_secret().as_bytes();
    identities.add("identity", file).expect("an identity");
    (identity.to_public().to_string(), identities)
}

pub(crate) fn encrypted(recipient: &str, is_padded: bool, has_secret: bool) -> CreateOptions {
    CreateOptions {
        encryption: Some(Arc::new(EncryptOptions {
            recipients: Recipients::parse(&[recipient]).expect("a recipient"),
            group_secret: has_secret.then(secret),
            is_padded,
        })),
        ..options()
    }
}

pub(crate) fn release() -> Vec<u8> {
    let files: Vec<_> = (0..200)
        .map(|file| (format!("release/{file}.txt"), noise(file, 9_000)))
        .collect();
    let first = tar_of(&files, 1_700_000_000);
    [first.clone(), tar_of(&files, 1_700_009_999)].concat()
}

#[test]
fn a_recipient_reads_it_with_or_without_the_group_secret() {
    let content = release();
    let (recipient, identities) = pair();
    for (is_padded, has_secret, profile) in [
        (false, false, Profile::Small),
        (true, false, Profile::Shared),
        (false, true, Profile::Shared),
        (true, true, Profile::Small),
    ] {
        let options = CreateOptions {
            profile,
            ..encrypted(&recipient, is_padded, has_secret)
        };
        for archive in [
            archive_of(&content, &options),
            piped_archive_of(&content, &options),
        ] {
            for secret in [None, Some(secret())] {
                let mut archive = open(archive.clone());
                archive
                    .unlock(&identities, secret.as_ref(), &mut |_| None)
                    .expect("a recipient");
                assert_eq!(read_all(&archive).expect("sound"), content);
                assert_eq!(archive.entries().expect("sound").len(), 1);
            }
        }
    }
}

#[test]
fn nobody_else_reads_it_and_all_can_check_its_frames() {
    let content = release();
    let (recipient, _) = pair();
    let (_, stranger) = pair();
    let mut archive = open(archive_of(&content, &encrypted(&recipient, false, false)));
    assert!(archive.is_locked());
    assert!(matches!(archive.entries(), Err(ReadError::Locked)));
    assert!(matches!(
        archive.content(0).map(|_| ()),
        Err(ReadError::Locked)
    ));
    assert!(matches!(
        archive.unlock(&stranger, None, &mut |_| None),
        Err(ReadError::Unwrap(_))
    ));
    let header = archive.header();
    assert_eq!(
        header.summary,
        Default::default(),
        "says nothing of what is in it"
    );
    let frames = archive.root().stream(Stream::Content).frames.items();
    assert!(frames > 0);
    let verified = verify(&archive, 2, &|_| std::ops::ControlFlow::Continue(()));
    assert!(verified.expect("sound").expect("whole").frames >= frames);
}

/// The archive with another number in its header, by somebody who may seal it.
fn resealed(archive: &[u8], identities: &Identities, at: usize, number: u64) -> Vec<u8> {
    let header = open(archive.to_vec()).header().clone();
    let (place, keys) = (header.root, header.keys);
    let slice = |at: u64, bytes: u32| &archive[at as usize..][..bytes as usize];
    let public = slice(place.offset, place.stored_bytes);
    let private_at = place.offset + u64::from(place.stored_bytes);
    let private = slice(private_at, place.private_stored_bytes);
    let key =
        unwrap(slice(keys.offset, keys.bytes), identities, &mut |_| None).expect("a recipient");
    let key = PrivateKey::new(&key);
    let mut header = *archive.first_chunk::<256>().expect("a header");
    let opened = key.open_private_root(&header, public, private.to_vec());
    header[at..at + 8].copy_from_slice(&number.to_le_bytes());
    let sealed = key.seal_private_root(&header, public, opened.expect("sound"));
    let digest = blake3::hash(&[public, &sealed].concat());
    header[152..184].copy_from_slice(digest.as_bytes());
    let check = blake3::hash(&header[..240]);
    header[240..].copy_from_slice(&check.as_bytes()[..16]);
    let mut changed = archive.to_vec();
    changed[..256].copy_from_slice(&header);
    changed[private_at as usize..][..sealed.len()].copy_from_slice(&sealed);
    changed
}

#[test]
fn a_header_that_contradicts_the_table_is_refused_when_it_is_unlocked() {
    let (recipient, identities) = pair();
    let archive = archive_of(&release(), &encrypted(&recipient, false, false));
    let header = open(archive.clone()).header().clone();
    for (at, number) in [(80, header.chunks), (88, header.references)] {
        for (number, is_right) in [(number, true), (number + 1, false), (0, false)] {
            let mut archive = open(resealed(&archive, &identities, at, number));
            let unlocked = archive.unlock(&identities, None, &mut |_| None);
            match is_right {
                true => unlocked.expect("nothing changed"),
                false => assert!(
                    matches!(
                        unlocked,
                        Err(ReadError::Format(FormatError::Invalid(
                            Violation::HeaderAndTable
                        )))
                    ),
                    "{number} at {at}"
                ),
            }
        }
    }
}

#[test]
fn archives_of_one_group_share_chunks_and_those_of_others_do_not() {
    let content = noise(1, 3 << 20);
    let (one, _) = pair();
    let (other, _) = pair();
    let frames = |recipient: &str, has_secret| {
        let options = CreateOptions {
            profile: Profile::Shared,
            ..encrypted(recipient, false, has_secret)
        };
        let archive = open(archive_of(&content, &options));
        let frame = archive.frame_row(Stream::Content, 0);
        let names = archive.chunk_names(Stream::Content, 0);
        (
            frame.expect("a first frame").digest,
            names.expect("a first part"),
        )
    };
    assert_eq!(frames(&one, true), frames(&other, true));
    let (with, without) = (frames(&one, true), frames(&one, false));
    assert_ne!(with.0, without.0);
    assert_ne!(with.1, without.1);
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    let content = noise(1, 40_000);
    let (recipient, identities) = pair();
    let sound = archive_of(&content, &encrypted(&recipient, true, false));
    for at in (0..sound.len()).step_by(7) {
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at % 8);
        let opened = refrain_czip::archive::Archive::open(flipped, Default::default());
        let read = opened.and_then(|mut archive| {
            archive.unlock(&identities, None, &mut |_| None)?;
            read_all(&archive)
        });
        if let Ok(read) = read {
            assert_eq!(read, content, "byte {at}");
        }
    }
}
