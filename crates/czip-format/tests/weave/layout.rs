//! What goes to which stream.

use crate::archives::{Member, Oddity, extended, file, tar};
use crate::streams::weave;

/// A small release: all its times differ from another's.
fn release(top: &str, time: u64, mode: u64, fraction: &str) -> Vec<u8> {
    let mut members = Vec::new();
    for number in 0..50u64 {
        let kind = if number % 5 == 0 { b'5' } else { b'0' };
        let data = match kind {
            b'0' => vec![number as u8; 100 * number as usize],
            _ => Vec::new(),
        };
        members.push(extended(&[(
            "mtime",
            format!("{}{fraction}", time + number),
        )]));
        members.push(Member {
            kind,
            mode: if kind == b'5' { 0o755 } else { mode },
            ..file(&format!("{top}/some/name{number}"), &data, time + number)
        });
    }
    tar(&members, 2)
}

#[test]
fn releases_that_differ_in_times_and_top_have_the_same_fields_and_content() {
    let first = weave(&release("r-1.0", 1_000_000, 0o644, ".25"));
    let second = weave(&release("r-1.1", 1_007_000, 0o644, ""));
    assert!(first.content == second.content);
    assert!(first.fields == second.fields);
    assert_eq!(first.operations()[4], 100);
}

#[test]
fn another_mode_of_all_files_changes_fields_in_one_place() {
    let first = weave(&release("r", 1_000_000, 0o644, "")).fields;
    let second = weave(&release("r", 1_000_000, 0o664, "")).fields;
    let differ = std::iter::zip(&first, &second)
        .filter(|(a, b)| a != b)
        .count();
    assert_eq!((first.len(), differ), (second.len(), 1));
}

#[test]
fn members_end_at_boundaries_and_content_is_all_data() {
    let members = [
        file("a/1", b"first", 1_700_000_001),
        file("a/2", b"", 1_700_000_002),
        file("a/3", &[3; 5000], 1_700_000_003),
    ];
    let told = weave(&tar(&members, 2));
    assert_eq!(told.boundaries, [5, 5005]);
    assert_eq!(
        told.written,
        [(0, 1_700_000_001), (5, 1_700_000_002), (5, 1_700_000_003)]
    );
    assert_eq!(told.content.len(), 5005);
    assert_eq!(told.operations(), [0, 0, 0, 1024, 3, 0, 0]);
}

#[test]
fn the_usual_kinds_of_headers_are_restored_by_their_members() {
    let link = |kind, name| Member {
        kind,
        ..file(name, b"", 7)
    };
    let members = [
        Member {
            kind: b'g',
            ..extended(&[("comment", "c".to_owned())])
        },
        Member {
            kind: b'L',
            ..file("././@LongLink", &[b'n'; 200], 0)
        },
        file(&"n".repeat(100), b"data", 3),
        Member {
            oddity: Oddity::SevenDigits,
            ..file("t/b", b"data", 3)
        },
        Member {
            oddity: Oddity::MtimeInTwelveDigits,
            ..file("t/c", b"data", 3)
        },
        Member {
            oddity: Oddity::NoSize,
            ..file("t/d", b"", 3)
        },
        Member {
            oddity: Oddity::LastBytes,
            ..file("t/e", b"data", 3)
        },
        Member {
            magic: b"",
            ..file("t/f", b"data", 3)
        },
        Member {
            magic: b"ustar  \0",
            ..file("t/g", b"data", 3)
        },
        link(b'1', "t/h"),
        link(b'2', "t/i"),
        extended(&[("mtime", "99.5".to_owned())]),
        file("t/rounded", b"data", 100),
        extended(&[("mtime", "99.5".to_owned()), ("path", "p".repeat(300))]),
        file("t/cut", b"data", 99),
    ];
    let told = weave(&tar(&members, 2));
    assert_eq!(told.operations(), [0, 0, 0, 1024, 15, 0, 0]);
}

#[test]
fn odd_headers_cost_themselves_alone() {
    for (oddity, expected) in [
        (Oddity::SpacedChecksum, [4, 492, 20, 1532, 2, 0, 0]),
        (Oddity::BytesBehindName, [4, 492, 20, 1532, 2, 0, 0]),
        (Oddity::Base256Size, [4, 0, 0, 1532, 2, 1, 0]),
        (Oddity::Padding, [512, 0, 0, 1024, 2, 1, 0]),
        (Oddity::WrongChecksum, [1024, 0, 0, 1024, 2, 0, 0]),
    ] {
        let members = [
            file("t/a", b"data", 1),
            Member {
                oddity,
                ..file("t/b", b"data", 1)
            },
            file("t/c", b"data", 1),
        ];
        let told = weave(&tar(&members, 2));
        assert_eq!(told.operations(), expected, "{oddity:?}");
    }
}

#[test]
fn an_extended_header_that_is_broken_says_nothing_of_times() {
    let time = |time: &str| extended(&[("mtime", time.to_owned())]);
    let members = [
        time("7"),
        Member {
            oddity: Oddity::Padding,
            ..time("8")
        },
        file("t/a", b"data", 7),
    ];
    let plain = tar(&members, 2);
    let told = weave(&plain);
    assert_eq!(told.operations()[5], 1);
    assert!(told.unweave().unwrap() == plain);
}

#[test]
fn a_size_in_an_extended_header_counts() {
    let members = [
        extended(&[("size", "1000".to_owned())]),
        Member {
            oddity: Oddity::NoSize,
            ..file("t/b", &[1; 1000], 1)
        },
        file("t/c", b"data", 1),
    ];
    let told = weave(&tar(&members, 2));
    assert_eq!(told.operations(), [1000, 0, 0, 24 + 1024, 2, 1, 0]);
    assert_eq!(told.boundaries, [1000, 1004]);
}

#[test]
fn a_tar_that_ends_in_a_member_keeps_its_header_out_of_content() {
    let whole = tar(&[file("t/a", b"data", 1), file("t/b", &[1; 1000], 1)], 0);
    let told = weave(&whole[..whole.len() - 600]);
    assert_eq!(told.operations(), [424, 0, 0, 0, 1, 1, 0]);
}

#[test]
fn members_of_members_end_at_boundaries_and_stay_content() {
    let inner = tar(
        &[file("i/1", &[1; 10_000], 1), file("i/2", &[2; 10_000], 1)],
        2,
    );
    let told = weave(&tar(
        &[file("t/inner.tar", &inner, 1), file("t/b", b"data", 1)],
        2,
    ));
    assert_eq!(told.content.len(), inner.len() + 4);
    let second = 512 + 10_240;
    assert_eq!(
        told.boundaries,
        [
            512,
            10_512,
            second,
            second + 512,
            second + 10_512,
            inner.len(),
            inner.len() + 4
        ]
    );
}
