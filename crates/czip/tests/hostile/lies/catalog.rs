//! Catalogs that lie.

use super::{CHUNKS, assert_refused, lying};
use crate::reading::everything;

/// Kind, path, length and target of an entry of the catalog.
type Entry<'a> = (u8, &'a [u8], u64, &'a [u8]);

#[test]
fn names_in_the_catalog_that_lead_elsewhere_are_refused() {
    let bytes = CHUNKS.concat().len() as u64;
    let with = |entries: &[Entry]| lying(|draft| draft.catalog(entries));
    assert!(everything(&with(&[(1, b"a", 0, b""), (0, b"a/b", bytes, b"")])).is_ok());
    let long = [b'a'; 4097];
    for path in [
        &b"/etc/passwd"[..],
        b"..",
        b"../a",
        b"a/../b",
        b"a/..",
        b".",
        b"./a",
        b"a//b",
        b"a/",
        b"/",
        b"a\0b",
        &long,
    ] {
        assert_refused("a path", &with(&[(0, path, bytes, b"")]));
        assert_refused(
            "a folder",
            &with(&[(1, path, 0, b""), (0, b"b", bytes, b"")]),
        );
    }
    let wrong: [&[Entry]; 13] = [
        &[(0, b"a/b", bytes, b"")],
        &[(0, b"a/b", bytes, b""), (1, b"a", 0, b"")],
        &[
            (1, b"a", 0, b""),
            (1, b"a/b/c", 0, b""),
            (0, b"b", bytes, b""),
        ],
        &[(0, b"a", bytes, b""), (0, b"a", 0, b"")],
        &[(2, b"a", 2, b".."), (0, b"a/b", bytes, b"")],
        &[(0, b"a", bytes, b""), (0, b"a/b", 0, b"")],
        &[(0, b"a/b", bytes, b""), (2, b"a", 2, b"..")],
        &[(0, b"a", bytes, b""), (3, b"b", 1, b"c")],
        &[(0, b"a", bytes, b""), (3, b"b", 4, b"../a")],
        &[
            (2, b"l", 1, b"x"),
            (3, b"b", 1, b"l"),
            (0, b"a", bytes, b""),
        ],
        &[(0, b"a", bytes, b""), (2, b"l", 0, b"")],
        &[(0, b"a", bytes, b""), (2, b"l", 1, b"\0")],
        &[(0, b"", bytes, b""), (0, b"a", 0, b"")],
    ];
    for entries in wrong {
        assert_refused(&format!("{entries:?}"), &with(entries));
    }
    for length in [0, bytes - 1, bytes + 1, u64::MAX] {
        assert_refused("a file's length", &with(&[(0, b"a", length, b"")]));
    }
    assert_refused(
        "lengths beyond 64 bits",
        &with(&[(0, b"a", u64::MAX, b""), (0, b"b", bytes + 1, b"")]),
    );
    assert_refused("a kind that is none", &with(&[(4, b"a", bytes, b"")]));
    let entries = lying(|draft| draft.entries = 2);
    assert_refused("more entries than there are", &entries);
}
