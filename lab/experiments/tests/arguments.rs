//! Arguments of the program. For this test, cargo builds the program, which a step of `.ci/run` then runs.

use std::process::Command;

#[test]
fn a_missing_program_is_an_error_with_the_next_step() {
    let output = Command::new(env!("CARGO_BIN_EXE_refrain-experiments"))
        .args(["failing-open", "--refrain", "/nowhere/refrain"])
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("\"/nowhere/refrain\""), "{error}");
    assert!(
        error.contains("cargo build --release --bin refrain"),
        "{error}"
    );
}
