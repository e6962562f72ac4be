//! `refrain analyze --objects`: files in, their overlap out.

use std::{fs, os::unix::fs::symlink};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    common::{
        command::{refrain, refrain_fails},
        content::noise,
    },
    json,
};

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn overlap_is_counted_by_chunk_size_and_by_file() {
    let folder = TempDir::new().expect("a folder");
    let write =
        |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("a file");
    let first = noise(1, 600_000);
    // An insertion moves all that follows.
    let inserted = [&first[..1000], b"few bytes", &first[1000..]].concat();
    write("a", &first);
    write("b", &noise(2, 300_000));
    write("c", &inserted);
    write("d", &inserted);
    symlink("a", folder.path().join("link")).expect("a link");
    let folder = folder.path().to_str().expect("text");
    let report = json(&["--objects", folder], 0);
    assert_eq!(number(&report["files"]), 4);
    let bytes = number(&report["bytes"]);
    assert_eq!(bytes, 2_100_018);
    let sizes = report["chunk_sizes"].as_array().expect("a list");
    assert_eq!(sizes.len(), 7);
    for size in sizes {
        let chunk = number(&size["chunk_bytes"]);
        for method in ["pack", "modp", "fixed"] {
            let overlap = &size[method];
            let (any, before) = (
                number(&overlap["repeated_bytes"]),
                number(&overlap["previous_bytes"]),
            );
            // `d` is `c` again. Of `c`, content-defined chunks are in `a`, two files before.
            assert!(before >= 600_000 && before <= any, "{size}");
            let most = if method == "fixed" {
                700_000
            } else {
                1_200_018
            };
            assert!(any <= most, "{size}");
            if method != "fixed" {
                assert!(any >= 1_200_000 - 12 * chunk, "{method}: {size}");
                assert!(before <= 600_009, "{method}: {size}");
            }
        }
    }
    let each = report["each"].as_array().expect("a list");
    let repeated: Vec<u64> = each
        .iter()
        .map(|it| number(&it["repeated_bytes"]))
        .collect();
    assert_eq!(&repeated[..2], [0, 0]);
    assert!((500_000..600_009).contains(&repeated[2]), "{each:?}");
    assert_eq!(repeated[3], 600_009);
    assert_eq!(number(&each[2]["previous_bytes"]), 0);

    let output = refrain(&["analyze", "--objects", folder, "--anonymize"]);
    let text = String::from_utf8(output.stdout).expect("text");
    for part in ["4 files, 2.10 MB", "in the file before", "64 KiB", "file 4"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains(folder), "{text}");

    let page = TempDir::new().expect("a folder");
    let path = page.path().join("report.html").display().to_string();
    refrain(&["analyze", "--objects", folder, "--html", &path]);
    let page = fs::read_to_string(&path).expect("a page");
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("/d</th>") && !page.contains("http://"));
}

#[test]
fn files_that_cannot_be_compared_are_named() {
    let folder = TempDir::new().expect("a folder");
    let empty = folder.path().display().to_string();
    for (arguments, code, part) in [
        (&["--objects", "-"][..], 2, "standard input"),
        (&["--objects", &empty], 1, "no content to compare"),
        (&["--objects", "/nowhere"], 1, "/nowhere"),
        (&["--objects"], 2, "FILE"),
    ] {
        let (got, error) = refrain_fails(&[&["analyze"], arguments].concat());
        assert_eq!(got, code, "{arguments:?}: {error}");
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}
