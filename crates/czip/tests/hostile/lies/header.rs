//! Headers that are whole and say what cannot be.

use refrain_czip_format::{
    FormatError, Portion, Violation,
    header::{Encryption, Header, PlainSummary},
    limits,
};

use super::lying;

/// What becomes of a header that says something else than an honest one.
fn parsed(lie: impl FnOnce(&mut Header)) -> Result<Header, FormatError> {
    let honest = lying(|_| ());
    let header = honest.first_chunk().expect("an archive has a header");
    let mut header = Header::parse_first(header).expect("it is honest");
    lie(&mut header);
    let parsed = Header::parse_first(&header.to_bytes());
    parsed.inspect(|parsed| assert_eq!(*parsed, header))
}

/// The same of an encrypted archive's, which is as long as needs be.
fn parsed_encrypted(lie: impl FnOnce(&mut Header)) -> Result<Header, FormatError> {
    parsed(|header| {
        header.encryption = Some(Encryption {
            is_padded: false,
            has_group_secret: false,
        });
        header.summary = PlainSummary::default();
        header.archive_bytes = 1 << 40;
        lie(header);
    })
}

#[test]
fn what_has_a_limit_may_reach_it_and_not_exceed_it() {
    type Set = fn(&mut Header, u32);
    let limits: [(&str, usize, Set); 6] = [
        (
            "the longest chunk",
            limits::CHUNK_BYTES_MAX,
            |header, to| {
                header.chunk_bytes_max = to;
                header.frame_bytes_max = limits::FRAME_BYTES_MAX as u32;
            },
        ),
        (
            "the largest frame",
            limits::FRAME_BYTES_MAX,
            |header, to| {
                header.frame_bytes_max = to;
            },
        ),
        ("a root", limits::ROOT_BYTES_MAX, |header, to| {
            header.root.stored_bytes = to;
        }),
        ("a root", limits::SMALL_ROOT_BYTES, |header, to| {
            header.root.stored_bytes = 1;
            header.root.plain_bytes = to;
        }),
        ("keys", limits::KEYS_BYTES_MAX, |header, to| {
            header.keys.bytes = to;
        }),
        (
            "a private root",
            limits::ROOT_BYTES_MAX + limits::SEAL_BYTES_MAX,
            |header, to| header.root.private_stored_bytes = to,
        ),
    ];
    for (what, limit, set) in limits {
        let limit = limit as u32;
        let at = parsed_encrypted(|header| set(header, limit));
        at.unwrap_or_else(|error| panic!("{what}: {error}"));
        let beyond = parsed_encrypted(|header| set(header, limit + 1));
        let error = beyond.expect_err(what).to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    type Lie = fn(&mut Header);
    let lies: [(&str, Lie); 4] = [
        ("longest chunk is empty", |header| {
            (header.chunk_bytes, header.chunk_bytes_min) = (0, 0);
            header.chunk_bytes_max = 0;
        }),
        ("reveals data of its private root", |header| {
            header.summary.entries = 1;
        }),
        ("root", |header| {
            // Where the keys are, is nothing.
            header.keys.offset = header.archive_bytes;
            header.keys.bytes = 1;
        }),
        ("root", |header| {
            header.root.offset = header.archive_bytes;
        }),
    ];
    parsed_encrypted(|_| ()).expect("nothing is wrong with it");
    for (what, lie) in lies {
        let error = parsed_encrypted(lie).expect_err(what).to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
}

#[test]
fn a_damaged_length_is_told_from_an_unknown_one() {
    const LENGTH: usize = 10;
    let parsed = |archive: &[u8]| {
        let header = archive.first_chunk().expect("an archive has a header");
        Header::parse_first(header).expect_err("another length")
    };
    for at in [LENGTH, LENGTH + 1] {
        let mut damaged = lying(|_| ());
        damaged[at] ^= 1;
        assert_eq!(parsed(&damaged), FormatError::Digest(Portion::Header));
    }
    let unknown = lying(|draft| draft.header = vec![(LENGTH, vec![1])]);
    let violation = FormatError::Invalid(Violation::HeaderLength);
    assert_eq!(parsed(&unknown), violation);
}

#[test]
fn a_damaged_version_is_told_from_another_one() {
    const VERSION: usize = 8;
    let parsed = |archive: &[u8]| {
        let header = archive.first_chunk().expect("an archive has a header");
        Header::parse_first(header).expect_err("another version")
    };
    let mut damaged = lying(|_| ());
    damaged[VERSION + 1] ^= 1;
    let version = 0x101;
    let expected = FormatError::DamagedOrLater { version };
    assert_eq!(parsed(&damaged), expected);
    let later = lying(|draft| draft.header = vec![(VERSION, vec![2])]);
    assert_eq!(parsed(&later), FormatError::Version { version: 2 });
}

#[test]
fn bytes_that_must_be_0_and_flags_that_need_others_are_looked_at() {
    let reserved = [19].into_iter().chain(36..40).chain(228..240);
    let reserved = reserved.map(|at| (at, 1));
    // A trailer without a footer; encryption without its method, the other way round, and what is of it
    // alone.
    let inconsistent = [(12, 2), (12, 16), (18, 1), (12, 32), (12, 64)];
    for (at, value) in reserved.chain(inconsistent) {
        let archive = lying(|draft| draft.header = vec![(at, vec![value])]);
        let header = archive.first_chunk().expect("an archive has a header");
        let error = Header::parse_first(header).expect_err("a byte that must be 0");
        assert!(error.to_string().contains("must be 0"), "{at}: {error}");
    }
}
