//! `refrain train`: captures and files in, a table out.

use std::fs;

use refrain_codec::marker::SampleByteTable;
use serde_json::Value;
use tempfile::TempDir;

use super::{
    common::{
        command::{refrain, refrain_fails},
        content::noise,
    },
    twice, write,
};

/// Records of few letters, in changing order, with noise between them: the bytes 1 to 30.
fn records(seed: u64) -> Vec<u8> {
    let letters = noise(seed, 40 * 300);
    let records: Vec<Vec<u8>> = letters
        .chunks(300)
        .map(|record| {
            record
                .iter()
                .map(|byte| b"kvwy"[usize::from(byte % 4)])
                .collect()
        })
        .collect();
    let order = noise(seed + 1, 2000);
    let between = noise(seed + 2, 2000 * 40);
    let mut content = Vec::new();
    for (number, between) in order.iter().zip(between.chunks(40)) {
        content.extend_from_slice(&records[usize::from(*number) % records.len()]);
        content.extend(between.iter().map(|byte| byte % 30 + 1));
    }
    content
}

fn report(arguments: &[&str]) -> Value {
    let output = refrain(&[&["train", "--json"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_table_has_the_values_of_what_repeats_and_is_one_for_gateways() {
    let folder = TempDir::new().expect("a folder");
    let capture = write(&folder, "a.pcap", &twice(&records(1)).pcap());
    let file = write(&folder, "b.bin", &records(10));
    let other = write(&folder, "c.bin", &records(20));
    let table = folder.path().join("own.table");
    let table = table.to_str().expect("text");
    let report = report(&[&capture, &file, "--test", &other, "--output", table]);
    let values: Vec<u64> = serde_json::from_value(report["table"].clone()).expect("numbers");
    assert!(!values.is_empty());
    assert!(
        values.iter().all(|&value| b"kvwy".contains(&(value as u8))),
        "{values:?}"
    );
    let number = |value: &Value| value.as_u64().expect("a number");
    let bytes = number(&report["training_bytes"]);
    assert!(bytes > 3 * 600_000, "the capture has it twice");
    // The default table has none of them.
    assert!(number(&report["saved_bytes"]) > number(&report["default_saved_bytes"]) + bytes / 4);
    let test = &report["test"];
    assert_eq!(number(&test["bytes"]), records(20).len() as u64);
    assert!(number(&test["saved_bytes"]) > number(&test["default_saved_bytes"]));
    let steps = report["steps"].as_array().expect("a list");
    assert!(steps.len() >= values.len());
    assert_eq!(
        steps[values.len() - 1]["saved_bytes"],
        report["saved_bytes"]
    );

    let written = fs::read_to_string(table).expect("the table");
    let values: Vec<u8> = values.iter().map(|&value| value as u8).collect();
    let expected = SampleByteTable::from_bytes(&values).expect("a table");
    assert_eq!(SampleByteTable::parse(&written), Ok(expected), "{written}");

    let output = refrain(&["train", &file]);
    let text = String::from_utf8(output.stdout).expect("text");
    for part in ["table: ", "default table", "MAXP", "training", "107 (k)"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn data_that_cannot_be_trained_with_is_named() {
    let folder = TempDir::new().expect("a folder");
    let unique = write(&folder, "unique", &noise(1, 100_000));
    let empty = write(&folder, "empty", b"");
    let file = write(&folder, "file", &records(1));
    let folder = folder.path().to_str().expect("text");
    for (arguments, code, part) in [
        (
            &[unique.as_str()][..],
            1,
            "nothing repeats in 100 kB of data",
        ),
        (&[&empty], 1, "nothing repeats in 0 B"),
        (&["/nowhere/at-all"], 1, "No such file"),
        (&[folder], 1, "directory"),
        (&["-"], 2, "cannot be read twice"),
        (&[&file, "--test", "-"], 2, "cannot be read twice"),
        (
            &[&file, "--output", "/nowhere/table"],
            1,
            "cannot write \"/nowhere/table\"",
        ),
        (&[], 2, "FILE"),
    ] {
        let (got, error) = refrain_fails(&[&["train"], arguments].concat());
        assert_eq!(got, code, "{arguments:?}: {error}");
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}
