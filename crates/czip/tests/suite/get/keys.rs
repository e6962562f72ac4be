//! Archives that are encrypted, fetched by who has a key.

use std::{fs, sync::Arc};

use age::secrecy::{ExposeSecret, SecretString};
use refrain_czip::{
    create::{CreateOptions, EncryptOptions},
    crypt::{GroupSecret, Identities, Recipients},
    get::{CacheOptions, GetError, GetOptions, KeySource, Keys, UnusedSeed},
};
use refrain_czip_format::header::Profile;

use crate::get::{
    Place, archive_of, creating,
    interruptions::dying_server,
    noise, options, serve,
    stored::{FETCHED_MAX, bytes_of, versions},
};

const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

pub(crate) fn secret() -> GroupSecret {
    GroupSecret::parse(SECRET.as_bytes()).expect("32 bytes")
}

/// Who may read an archive.
pub(crate) struct Reader {
    recipient: String,
    identity: SecretString,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let identity = age::x25519::Identity::generate();
        Self {
            recipient: identity.to_public().to_string(),
            identity: identity.to_string(),
        }
    }

    /// Options for an archive that he can read.
    pub(crate) fn encrypted(&self, profile: Profile, has_secret: bool) -> CreateOptions {
        CreateOptions {
            encryption: Some(Arc::new(EncryptOptions {
                recipients: Recipients::parse(&[&self.recipient]).expect("a recipient"),
                group_secret: has_secret.then(secret),
                is_padded: has_secret,
            })),
            ..creating(profile)
        }
    }

    /// His keys, and perhaps the secret.
    fn keys(&self, knows_secret: bool) -> Option<KeySource> {
        let identity = self.identity.clone();
        Some(KeySource::new(move || {
            let mut identities = Identities::new();
            identities.add("identity", identity.expose_secret().as_bytes())?;
            Ok(Keys {
                identities,
                group_secret: knows_secret.then(secret),
                passphrase: |_| None,
            })
        }))
    }

    pub(crate) fn options(&self, knows_secret: bool) -> GetOptions {
        GetOptions {
            keys: self.keys(knows_secret),
            ..options()
        }
    }
}

const PROFILES: [Profile; 2] = [Profile::Shared, Profile::Small];

#[test]
fn a_recipient_gets_what_is_in_it_and_nobody_else_does() {
    let (reader, stranger) = (Reader::new(), Reader::new());
    let [content, _] = versions();
    for profile in PROFILES {
        for (has_secret, has_footer) in [(false, true), (true, false)] {
            let creating = reader.encrypted(profile, has_secret);
            let server = serve(archive_of(&content, &creating, has_footer));
            for knows_secret in [false, true] {
                let place = Place::new();
                let report = place.get(&server, &reader.options(knows_secret));
                let report = report.expect("a file");
                place.assert_is(&content);
                assert_eq!(report.plain_bytes, Some(content.len() as u64));
                assert!(report.from_server.chunks > 100, "{report:?}");
            }
            let place = Place::new();
            let error = place.get(&server, &stranger.options(false));
            let error = error.expect_err("it is not for him");
            assert!(matches!(error, GetError::Unwrap(_)), "{error}");
            let error = place.get(&server, &options()).expect_err("it is locked");
            assert!(matches!(error, GetError::Encrypted { .. }), "{error}");
            assert!(!place.output().exists());
        }
    }
}

#[test]
fn keys_are_read_for_encrypted_archives_that_are_unlocked_alone() {
    let reader = Reader::new();
    let mut options = options();
    options.keys = Some(KeySource::new(|| Err("no such file".into())));
    let place = Place::new();
    let plain = archive_of(b"plain", &creating(Profile::Shared), false);
    place.get(&serve(plain), &options).expect("a file");
    place.assert_is(b"plain");
    let sealed = archive_of(b"s", &reader.encrypted(Profile::Shared, false), false);
    let error = place.get(&serve(sealed.clone()), &options);
    let error = error.expect_err("there are no keys");
    assert!(matches!(error, GetError::Keys(_)), "{error}");
    assert_eq!(error.to_string(), "no such file");
    options.keeps_archive = true;
    place
        .get(&serve(sealed.clone()), &options)
        .expect("an archive");
    place.assert_is(&sealed);
}

#[test]
fn with_an_encrypted_archive_as_seed_only_news_are_fetched() {
    let reader = Reader::new();
    let [old, new] = versions();
    for profile in PROFILES {
        for (has_secret, knows_secret) in [(false, false), (true, false), (true, true)] {
            for has_footer in [false, true] {
                let creating = reader.encrypted(profile, has_secret);
                let place = Place::new();
                let mut options = reader.options(knows_secret);
                // The seed is for somebody else of the group.
                let of_other = Reader::new().encrypted(profile, has_secret);
                let seed = archive_of(&old, &of_other, has_footer);
                options.seeds = vec![place.with("old.czip", &seed)];
                let archive = archive_of(&new, &creating, has_footer);
                let report = place.get(&serve(archive), &options).expect("a file");
                place.assert_is(&new);
                let fetched = report.transferred().bytes;
                assert!(fetched < FETCHED_MAX, "{profile:?} {report:?}");
                assert!(report.from_seeds.bytes > 1 << 20, "{report:?}");
                assert!(report.unused_seeds.is_empty(), "{report:?}");
                assert!(report.unread_seeds.is_empty(), "{report:?}");
            }
        }
    }
}

#[test]
fn the_group_secret_makes_plain_files_seeds() {
    let reader = Reader::new();
    let [old, new] = versions();
    for profile in PROFILES {
        for (has_secret, knows_secret) in [(false, false), (true, true), (true, false)] {
            let place = Place::new();
            let mut options = reader.options(knows_secret);
            let seed = place.with("seed", &old);
            options.seeds = vec![seed.clone()];
            let archive = archive_of(&new, &reader.encrypted(profile, has_secret), false);
            let all = archive.len() as u64;
            let report = place.get(&serve(archive), &options).expect("a file");
            place.assert_is(&new);
            let fetched = report.transferred().bytes;
            if has_secret && !knows_secret {
                assert_eq!(report.unused_seeds, [(seed, UnusedSeed::GroupSecret)]);
                assert!(fetched > all / 10 * 9, "{report:?}");
            } else {
                assert!(fetched < FETCHED_MAX, "{profile:?} {report:?}");
                assert!(report.unused_seeds.is_empty());
            }
        }
    }
}

#[test]
fn the_cache_keeps_what_is_encrypted_as_it_is() {
    let reader = Reader::new();
    let [old, new] = versions();
    for profile in PROFILES {
        for knows_secret in [false, true] {
            let place = Place::new();
            let folder = place.0.path().join("cache");
            let mut options = reader.options(knows_secret);
            options.cache = Some(CacheOptions {
                folder: folder.clone(),
                bytes_max: 1 << 30,
            });
            let creating = reader.encrypted(profile, true);
            let first = archive_of(&old, &creating, false);
            place.get(&serve(first), &options).expect("a file");
            let kept = bytes_of(&folder);
            assert!(kept.len() > 1 << 20);
            for part in old.chunks(100_001) {
                assert!(!kept.windows(16).any(|window| *window == part[..16]));
            }
            let next = archive_of(&new, &creating, false);
            let report = place.get(&serve(next.clone()), &options).expect("a file");
            place.assert_is(&new);
            let fetched = report.transferred().bytes;
            assert!(fetched < FETCHED_MAX, "{profile:?} {report:?}");
            assert!(report.from_cache.chunks > 100, "{report:?}");
            let again = place.get(&serve(next), &options).expect("a file");
            // Nothing but what comes with the header.
            assert_eq!(again.frames.bytes, 0, "{again:?}");
        }
    }
}

#[test]
fn a_get_that_was_cut_goes_on_with_what_came() {
    let reader = Reader::new();
    let [content, _] = versions();
    for profile in PROFILES {
        for knows_secret in [false, true] {
            let archive = archive_of(&content, &reader.encrypted(profile, true), false);
            let place = Place::new();
            let mut options = reader.options(knows_secret);
            options.remote.retries = 0;
            options.remote.connections = 1;
            options.remote.piece_bytes = 50_000;
            let half = archive.len() as u64 / 2;
            let dying = dying_server(archive.clone(), half);
            place.get(&dying, &options).expect_err("it breaks off");
            let came = dying.sent_bytes();
            let all = archive.len() as u64;
            let report = place.get(&serve(archive), &options).expect("a file");
            place.assert_is(&content);
            // The header is asked for again, and the block in which it broke.
            let again = 2 * (64 << 10) + 20_000;
            let fetched = report.transferred().bytes;
            assert!(fetched + came < all + again, "{fetched} {came} {all}");
            assert!(report.from_earlier.bytes > half / 2, "{report:?}");
        }
    }
}

#[test]
fn an_encrypted_seed_is_of_no_use_for_an_archive_that_is_not() {
    let reader = Reader::new();
    let [old, new] = versions();
    let place = Place::new();
    let mut options = reader.options(false);
    let seed = archive_of(&old, &reader.encrypted(Profile::Shared, false), false);
    options.seeds = vec![place.with("old.czip", &seed)];
    let archive = archive_of(&new, &creating(Profile::Shared), false);
    let report = place.get(&serve(archive), &options).expect("a file");
    place.assert_is(&new);
    assert_eq!(report.unread_seeds.len(), 1);
    let (_, error) = &report.unread_seeds[0];
    assert!(error.to_string().contains("encrypted"), "{error}");
}

#[test]
fn frames_of_a_seed_that_is_damaged_are_fetched() {
    let reader = Reader::new();
    let content = noise(3, 1 << 20);
    for profile in PROFILES {
        let creating = reader.encrypted(profile, false);
        let place = Place::new();
        let mut options = reader.options(false);
        let mut seed = archive_of(&content, &creating, false);
        let begin = seed.len() / 2;
        seed[begin..]
            .iter_mut()
            .step_by(50_000)
            .for_each(|byte| *byte ^= 1);
        options.seeds = vec![place.with("old.czip", &seed)];
        let archive = archive_of(&content, &creating, false);
        let report = place.get(&serve(archive), &options).expect("a file");
        place.assert_is(&content);
        assert!(report.from_server.chunks > 5, "{report:?}");
        assert!(report.from_seeds.bytes > 1 << 19, "{report:?}");
        fs::remove_file(place.output()).expect("it is there");
    }
}
