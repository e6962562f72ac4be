//! Recipients, identities and the keys section: who opens it, and what a hostile one costs.

use std::{iter, ops::Range};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use proptest::{collection::vec, prelude::*};
use refrain_czip::crypt::{
    ArchiveKey, Identities, IdentityProblem, RECIPIENTS_MAX, RecipientError, RecipientProblem,
    Recipients, UnwrapError, WrapError, recipient_kinds, unwrap, wrap,
};
use refrain_czip_format::limits::KEYS_BYTES_MAX;
use zeroize::Zeroizing;

/// Keys made by ssh-keygen for these tests.
const ED25519: &str = include_str!("ssh/ed25519");
const ED25519_PUBLIC: &str = include_str!("ssh/ed25519.pub");
const LOCKED: &str = include_str!("ssh/locked");
const LOCKED_PUBLIC: &str = include_str!("ssh/locked.pub");
const RSA: &str = include_str!("ssh/rsa");
const RSA_PUBLIC: &str = include_str!("ssh/rsa.pub");
const ECDSA: &str = include_str!("ssh/ecdsa");
const ECDSA_PUBLIC: &str = include_str!("ssh/ecdsa.pub");
const PASSPHRASE: &str = "open sesame";

/// A new age key: the private half as in an identity file, and the public one.
fn age_key() -> (String, String) {
    use age::secrecy::ExposeSecret;
    let identity = age::x25519::Identity::generate();
    (
        identity.to_string().expose_secret().to_owned(),
        identity.to_public().to_string(),
    )
}

fn identities(files: &[&str]) -> Identities {
    let mut identities = Identities::new();
    for (index, content) in files.iter().enumerate() {
        identities
            .add(&format!("key {index}"), content.as_bytes())
            .unwrap();
    }
    identities
}

fn unwrap_silently(keys: &[u8], identities: &Identities) -> Result<ArchiveKey, UnwrapError> {
    unwrap(keys, identities, &mut |file| {
        panic!("asked for the passphrase of {file}")
    })
}

/// An age file for `recipient` with any content.
fn age_file(recipient: &str, content: &[u8]) -> Vec<u8> {
    age::encrypt(
        &recipient.parse::<age::x25519::Recipient>().unwrap(),
        content,
    )
    .unwrap()
}

#[test]
fn each_recipient_opens_the_keys_and_nobody_else_does() {
    let (age, age_public) = age_key();
    let (other_age, _) = age_key();
    let key = ArchiveKey::generate().unwrap();
    let keys = wrap(
        &key,
        &Recipients::parse(&[&age_public[..], ED25519_PUBLIC, RSA_PUBLIC]).unwrap(),
    )
    .unwrap();
    let kinds = recipient_kinds(&keys).unwrap();
    assert_eq!(kinds, ["X25519", "ssh-ed25519", "ssh-rsa"]);
    for private in [&age[..], ED25519, RSA] {
        let opened = unwrap_silently(&keys, &identities(&[&other_age, private])).unwrap();
        assert_eq!(opened.as_bytes(), key.as_bytes());
    }
    // A key under a passphrase that is no recipient's is not asked for.
    let opened = unwrap_silently(&keys, &identities(&[&other_age, LOCKED]));
    assert_eq!(opened.unwrap_err(), UnwrapError::NotARecipient);
    assert_eq!(
        unwrap_silently(&keys, &Identities::new()).unwrap_err(),
        UnwrapError::NotARecipient
    );
}

#[test]
fn two_wraps_of_a_key_have_nothing_in_common() {
    let (_, public) = age_key();
    let key = ArchiveKey::generate().unwrap();
    let recipients = Recipients::parse(&[public]).unwrap();
    let [one, other] = [(); 2].map(|()| wrap(&key, &recipients).unwrap());
    assert_ne!(one[one.len() - 48..], other[other.len() - 48..]);
}

#[test]
fn a_passphrase_is_asked_for_once_and_only_where_it_helps() {
    let (age, age_public) = age_key();
    let key = ArchiveKey::generate().unwrap();
    let keys = wrap(
        &key,
        &Recipients::parse(&[LOCKED_PUBLIC, &age_public]).unwrap(),
    )
    .unwrap();
    let open = |files: &[&str], answer: Option<&str>| {
        let mut asked = Vec::new();
        let opened = unwrap(&keys, &identities(files), &mut |file| {
            asked.push(file.to_owned());
            answer.map(|answer| Zeroizing::new(answer.to_owned()))
        });
        (opened.map(|opened| *opened.as_bytes()), asked)
    };
    let file = || "key 0".to_owned();
    assert_eq!(
        open(&[LOCKED], Some(PASSPHRASE)),
        (Ok(*key.as_bytes()), vec![file()])
    );
    assert_eq!(
        open(&[LOCKED, &age], Some(PASSPHRASE)),
        (Ok(*key.as_bytes()), vec![])
    );
    assert_eq!(
        open(&[LOCKED], Some("close")),
        (
            Err(UnwrapError::WrongPassphrase { file: file() }),
            vec![file()]
        )
    );
    assert_eq!(
        open(&[LOCKED], Some("")),
        (
            Err(UnwrapError::WrongPassphrase { file: file() }),
            vec![file()]
        )
    );
    assert_eq!(
        open(&[LOCKED], None),
        (
            Err(UnwrapError::NoPassphrase { file: file() }),
            vec![file()]
        )
    );
}

#[test]
fn an_archive_needs_a_recipient() {
    let none = Recipients::parse(&["", "# nobody"]).unwrap();
    assert_eq!(
        wrap(&ArchiveKey::generate().unwrap(), &none),
        Err(WrapError::NoRecipients)
    );
}

#[test]
fn a_recipient_that_is_none_is_named_by_its_line() {
    let (private, public) = age_key();
    let damaged = public.replace(
        &public[20..22],
        if &public[20..22] == "qq" { "pp" } else { "qq" },
    );
    for (line, problem) in [
        ("hello", RecipientProblem::NotAKey),
        (&private, RecipientProblem::PrivateKey),
        (ED25519, RecipientProblem::PrivateKey),
        (&damaged, RecipientProblem::Damaged { kind: "age" }),
        (
            &ED25519_PUBLIC[..50],
            RecipientProblem::Damaged { kind: "ssh" },
        ),
        (
            &RSA_PUBLIC[..200],
            RecipientProblem::Damaged { kind: "ssh" },
        ),
        (
            include_str!("ssh/rsa1024.pub"),
            RecipientProblem::RsaTooShort,
        ),
        (
            include_str!("ssh/rsa8192.pub"),
            RecipientProblem::RsaTooLong,
        ),
        (
            "age1yubikey1qwt50d05nh5vutpdzmlg5wn80xq5negm4uj9ghv0snvdd3yysf5yw3rhl3t",
            RecipientProblem::Unsupported {
                kind: "age1yubikey".to_owned(),
            },
        ),
        (
            ECDSA_PUBLIC,
            RecipientProblem::Unsupported {
                kind: "ecdsa-sha2-nistp256".to_owned(),
            },
        ),
    ] {
        let error = Recipients::parse(&["# mine", &public, line]).unwrap_err();
        assert_eq!(error, RecipientError { line: 3, problem });
        assert!(!error.to_string().contains(&private[20..]), "{error}");
    }
}

#[test]
fn recipients_are_bounded_and_all_of_them_fit() {
    let lines: Vec<&str> = iter::repeat_n(ED25519_PUBLIC, RECIPIENTS_MAX).collect();
    let mut most = Recipients::parse(&lines).unwrap();
    assert_eq!(
        most.join(Recipients::parse(&[ED25519_PUBLIC]).unwrap()),
        Err(RecipientProblem::TooMany)
    );
    let key = ArchiveKey::generate().unwrap();
    let keys = wrap(&key, &most).unwrap();
    unwrap_silently(&keys, &identities(&[ED25519])).unwrap();

    // The longest stanzas, those of RSA keys of 4096 bits, have 344 characters and 6 line ends more.
    let keys = wrap(&key, &Recipients::parse(&[RSA_PUBLIC; 8]).unwrap()).unwrap();
    let longest = keys.len() / 8 + 350;
    assert!(
        longest * RECIPIENTS_MAX <= KEYS_BYTES_MAX,
        "{longest} bytes for one"
    );

    let more: Vec<&str> = iter::repeat_n(ED25519_PUBLIC, RECIPIENTS_MAX + 1).collect();
    let error = Recipients::parse(&more).unwrap_err();
    assert_eq!(
        error,
        RecipientError {
            line: RECIPIENTS_MAX + 1,
            problem: RecipientProblem::TooMany
        }
    );
}

#[test]
fn a_file_without_identities_says_why() {
    let (private, public) = age_key();
    let problem = |content: &str| {
        Identities::new()
            .add("here", content.as_bytes())
            .unwrap_err()
            .problem
    };
    assert_eq!(problem("# nothing\n"), IdentityProblem::Empty);
    assert_eq!(
        problem(&format!("# mine\n{private}\n{public}\n")),
        IdentityProblem::PublicKey { line: 3 }
    );
    assert_eq!(
        problem(ED25519_PUBLIC),
        IdentityProblem::PublicKey { line: 1 }
    );
    assert_eq!(
        problem(&format!("{private}\nno key\n")),
        IdentityProblem::Line { line: 2 }
    );
    assert_eq!(
        problem("\nAGE-PLUGIN-YUBIKEY-1QQQQ\n"),
        IdentityProblem::Plugin { line: 2 }
    );
    assert_eq!(
        problem("age-encryption.org/v1\n-> scrypt a 18\n"),
        IdentityProblem::NotText
    );
    assert_eq!(problem(&RSA[..RSA.len() / 2]), IdentityProblem::DamagedSsh);
    // As `refrain keygen` and openssl write them.
    for label in ["PRIVATE KEY", "EC PRIVATE KEY"] {
        let pem = format!("-----BEGIN {label}-----\nMFECAQEw\n-----END {label}-----\n");
        assert_eq!(problem(&pem), IdentityProblem::OtherPem, "{label}");
    }
    assert_eq!(
        problem(&"#".repeat(70_000)),
        IdentityProblem::TooLong { bytes: 70_000 }
    );
    let what = "a key of type ecdsa-sha2-nistp256".to_owned();
    assert_eq!(problem(ECDSA), IdentityProblem::UnsupportedSsh { what });
    let error = Identities::new().add("here", b"\xff").unwrap_err();
    assert_eq!(error.problem, IdentityProblem::NotText);
    assert!(error.to_string().contains("key \"here\": "), "{error}");
}

#[test]
fn key_files_with_windows_line_ends_or_none_at_the_end_are_taken() {
    let (private, public) = age_key();
    let keys = wrap(
        &ArchiveKey::generate().unwrap(),
        &Recipients::parse(&[
            format!("{public}\r\n"),
            format!("{}\r\n", ED25519_PUBLIC.trim()),
        ])
        .unwrap(),
    )
    .unwrap();
    for content in [
        format!("# mine\r\n{private}\r\n"),
        ED25519.replace('\n', "\r\n"),
        private,
        ED25519.trim_end().to_owned(),
    ] {
        unwrap_silently(&keys, &identities(&[&content])).unwrap();
    }
}

#[test]
fn what_is_no_archive_key_is_refused() {
    let (private, public) = age_key();
    let identities = identities(&[&private]);
    unwrap_silently(&age_file(&public, &[1; 32]), &identities).unwrap();
    for bytes in [0, 31, 33, 100_000] {
        let opened = unwrap_silently(&age_file(&public, &vec![1; bytes]), &identities);
        assert_eq!(opened.unwrap_err(), UnwrapError::NotAKey, "{bytes} bytes");
    }
}

#[test]
fn keys_under_a_passphrase_are_refused_before_any_work() {
    let (private, _) = age_key();
    // 2^40 rounds of scrypt, if anybody tried.
    let keys = format!(
        "age-encryption.org/v1\n-> scrypt {} 40\n{}\n--- {}\n",
        "A".repeat(22),
        "A".repeat(43),
        "A".repeat(43)
    );
    let opened = unwrap_silently(
        &[keys.as_bytes(), &[0; 64]].concat(),
        &identities(&[&private]),
    );
    assert_eq!(opened.unwrap_err(), UnwrapError::Passphrase);
}

#[test]
fn too_many_stanzas_and_too_many_bytes_are_refused() {
    let (private, _) = age_key();
    let identities = identities(&[&private]);
    let header = |stanzas: usize| {
        let stanza = format!("-> X25519 {}\n{}\n", "A".repeat(43), "A".repeat(43));
        format!(
            "age-encryption.org/v1\n{}--- {}\n{}",
            stanza.repeat(stanzas),
            "A".repeat(43),
            "x".repeat(64)
        )
    };
    let opened =
        |stanzas: usize| unwrap_silently(header(stanzas).as_bytes(), &identities).unwrap_err();
    assert_eq!(opened(257), UnwrapError::TooManyStanzas);
    assert_eq!(opened(256), UnwrapError::Damaged);
    let long = vec![b'a'; KEYS_BYTES_MAX + 1];
    let opened = unwrap_silently(&long, &identities).unwrap_err();
    assert_eq!(
        opened,
        UnwrapError::TooLong {
            bytes: KEYS_BYTES_MAX + 1
        }
    );
    assert_eq!(
        unwrap_silently(&long[1..], &identities).unwrap_err(),
        UnwrapError::NotAge
    );
}

#[test]
fn keys_that_were_cut_or_changed_anywhere_do_not_open() {
    let (private, public) = age_key();
    let identities = identities(&[&private]);
    let keys = wrap(
        &ArchiveKey::generate().unwrap(),
        &Recipients::parse(&[public]).unwrap(),
    )
    .unwrap();
    for at in 0..keys.len() {
        assert!(
            unwrap_silently(&keys[..at], &identities).is_err(),
            "cut at {at}"
        );
        let mut flipped = keys.clone();
        flipped[at] ^= 1;
        assert!(
            unwrap_silently(&flipped, &identities).is_err(),
            "flipped at {at}"
        );
    }
    assert_eq!(
        unwrap_silently(&[&keys[..], &[0]].concat(), &identities).unwrap_err(),
        UnwrapError::Damaged
    );
}

/// Where the strings of an ssh key are, each with its length in front.
fn strings(key: &[u8], from: usize) -> Vec<Range<usize>> {
    let mut strings = Vec::new();
    let mut at = from;
    while let Some(length) = key.get(at..).and_then(|rest| rest.first_chunk()) {
        let end = at + 4 + u32::from_be_bytes(*length) as usize;
        if end > key.len() {
            break;
        }
        strings.push(at..end);
        at = end;
    }
    strings
}

/// `key` with the string at `place` replaced.
fn with_string(key: &[u8], place: &Range<usize>, string: &[u8]) -> Vec<u8> {
    let length = u32::try_from(string.len()).unwrap().to_be_bytes();
    [&key[..place.start], &length, string, &key[place.end..]].concat()
}

/// The bytes of a private key in OpenSSH's format.
fn private_key_bytes(file: &str) -> Vec<u8> {
    let lines: String = file.lines().filter(|line| !line.contains('-')).collect();
    BASE64.decode(lines).unwrap()
}

/// A file of these bytes.
fn private_key_file(key: &[u8]) -> String {
    let text = BASE64.encode(key);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(70)
        .map(|line| str::from_utf8(line).unwrap())
        .collect();
    format!(
        "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
        lines.join("\n")
    )
}

/// A private key in OpenSSH's format with one half replaced: 0 the public, 1 the private.
fn with_half(key: &[u8], half: usize, change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    const MAGIC: usize = b"openssh-key-v1\0".len();
    let header = &strings(key, MAGIC)[..3];
    let halves = strings(key, header[2].end + 4);
    let content = halves[half].start + 4..halves[half].end;
    with_string(key, &halves[half], &change(&key[content]))
}

/// A public RSA key.
fn rsa_public(modulus: &[u8]) -> Vec<u8> {
    [&b"ssh-rsa"[..], &[1, 0, 1], modulus]
        .iter()
        .flat_map(|string| [&u32::try_from(string.len()).unwrap().to_be_bytes(), *string].concat())
        .collect()
}

#[test]
fn an_ssh_key_with_any_number_of_zero_bytes_is_damaged() {
    let public = RSA_PUBLIC.split(' ').nth(1).unwrap();
    let public = BASE64.decode(public).unwrap();
    let recipient_problem = |key: &[u8], end: &str| {
        Recipients::parse(&[format!("ssh-rsa {}{end}", BASE64.encode(key))])
            .unwrap_err()
            .problem
    };
    let identity_problem = |file: &str| {
        Identities::new()
            .add("", file.as_bytes())
            .unwrap_err()
            .problem
    };
    let private = private_key_bytes(RSA);
    let locked = private_key_bytes(LOCKED);
    for zeros in [1, 2, 3, 4, 127, 128, 129, 256, 513] {
        let zeros = vec![0; zeros];
        let numbers = &strings(&public, 0)[1..];
        assert_eq!(numbers.len(), 2);
        for place in numbers {
            let key = with_string(&public, place, &zeros);
            for end in ["", " comment", "!", "\u{101}"] {
                assert_eq!(
                    recipient_problem(&key, end),
                    RecipientProblem::Damaged { kind: "ssh" }
                );
            }
            for file in [&private, &locked] {
                let file = private_key_file(&with_half(file, 0, |_| key.clone()));
                assert_eq!(identity_problem(&file), IdentityProblem::DamagedSsh);
            }
        }
        for number in 1..=6 {
            let file = private_key_file(&with_half(&private, 1, |half| {
                with_string(half, &strings(half, 8)[number], &zeros)
            }));
            let cut = file.replace("-----END", "");
            for file in [&file, &file.replace('\n', "\r\n"), &cut] {
                assert_eq!(identity_problem(file), IdentityProblem::DamagedSsh);
            }
        }
    }
}

#[test]
fn a_locked_rsa_key_that_is_too_short_to_encrypt_to_is_damaged() {
    let locked = private_key_bytes(LOCKED);
    for bytes in [1, 2, 32, 64, 128] {
        let modulus = vec![0x7f; bytes];
        let file = private_key_file(&with_half(&locked, 0, |_| rsa_public(&modulus)));
        let error = Identities::new().add("", file.as_bytes()).unwrap_err();
        assert_eq!(error.problem, IdentityProblem::DamagedSsh, "{bytes} bytes");
    }
    let modulus = vec![0x7f; 257];
    let file = private_key_file(&with_half(&locked, 0, |_| rsa_public(&modulus)));
    Identities::new().add("", file.as_bytes()).unwrap();
}

proptest! {
    #[test]
    fn nothing_that_begins_as_an_age_file_panics(
        lines in vec(prop_oneof!["-> [a-zA-Z0-9 /+]{0,60}", "[A-Za-z0-9/+=]{0,64}", "--- [A-Za-z0-9/+]{40,43}", ".{0,20}"], 0..12),
        rest in vec(any::<u8>(), 0..100),
    ) {
        let keys = [format!("age-encryption.org/v1\n{}\n", lines.join("\n")).as_bytes(), &rest].concat();
        let identities = identities(&[ED25519, LOCKED]);
        prop_assert!(unwrap(&keys, &identities, &mut |_| None).is_err());
    }

    #[test]
    fn no_line_panics_as_a_recipient_and_no_file_as_an_identity(
        start in prop_oneof![Just(""), Just("age1"), Just("ssh-rsa "), Just("ssh-ed25519 "), Just("-----BEGIN OPENSSH PRIVATE KEY-----\n"),
            Just("-----BEGIN RSA PRIVATE KEY-----\n"), Just("AGE-SECRET-KEY-1")],
        rest in "\\PC{0,200}",
    ) {
        let text = [start, &rest, "!"].concat();
        prop_assert!(Recipients::parse(&[&text]).map_or(true, |_| text.starts_with('#')));
        prop_assert!(Identities::new().add("", text.as_bytes()).is_err());
    }
}
