//! The program's side of GPUs, without one: this test's own program once more, with a driver that runs the
//! kernels on the host.

use std::{io::Cursor, ops::ControlFlow, process::Command};

use refrain_bulk::{
    BulkError, BulkOptions, Choice, GpuTrial, Input, Method, NoGpu, Why, choose, find_redundancy,
};
use refrain_codec::chunk::chunking::{Chunking, ChunkingMethod};

use super::{compiled, methods, noise};

/// Set for those tests that are run by others here.
const PRETENDING: &str = "REFRAIN_PRETENDING";

/// Whether another test runs this one, whose machine is as it says.
fn is_pretending(test: &str) -> bool {
    let is_pretending = std::env::var_os(PRETENDING).is_some();
    if !is_pretending {
        println!("skipped: {test}, which other tests run");
    }
    is_pretending
}

/// Runs those of this program's tests whose names have one of these texts in them, as on a machine with
/// such GPUs.
fn run_pretending(tests: &[&str], settings: &[(&str, &str)]) {
    let Some(folder) = compiled("driver.cpp", "libcuda.so", &["-fPIC", "-shared"]) else {
        return;
    };
    // The kernels take long on the host.
    let cases = std::env::var("PROPTEST_CASES").unwrap_or("8".to_owned());
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(tests)
        // One breaks for all threads.
        .arg("--test-threads=1")
        .env("LD_LIBRARY_PATH", folder.path())
        .env("PROPTEST_CASES", cases)
        .env(PRETENDING, "1")
        .envs(settings.iter().copied())
        .output()
        .expect("it runs here");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{settings:?}\n{said}");
    // A filter without a test would pass.
    for test in tests {
        let is_ok = |line: &str| line.contains(test) && line.ends_with("ok");
        assert!(said.lines().any(is_ok), "{test} did not run\n{said}");
    }
}

#[test]
fn gpus_find_the_same() {
    let tests = [
        "methods::",
        "inputs::",
        "a_gpu_is_there",
        "a_gpu_is_measured",
        "a_trial_finds_what_is_there",
    ];
    run_pretending(&tests, &[("PRETENDED_GPUS", "1")]);
}

/// What depends on the machine.
const OF_MACHINE: [&str; 2] = ["methods::", "a_gpu_is_there"];

#[test]
fn several_gpus_find_the_same() {
    run_pretending(&OF_MACHINE, &[("PRETENDED_GPUS", "3")]);
}

#[test]
fn gpus_without_memory_for_tables_of_whole_bytes_find_the_same() {
    run_pretending(&OF_MACHINE, &[("PRETENDED_SHARED", "49152")]);
}

#[test]
fn what_is_faster_is_measured() {
    run_pretending(&["a_gpu_is_measured"], &[]);
}

#[test]
fn a_gpu_that_breaks_changes_nothing_but_the_speed() {
    run_pretending(&["methods::"], &[("PRETENDED_FAILURE", "0")]);
    run_pretending(&["methods::", "inputs::"], &[("PRETENDED_FAILURE", "50")]);
    run_pretending(&["a_broken_gpu_is_told"], &[("PRETENDED_FAILURE", "6")]);
    run_pretending(&["a_trial_ends"], &[("PRETENDED_FAILURE", "50")]);
}

#[test]
fn a_driver_without_a_gpu_is_no_gpu() {
    run_pretending(&["no_gpu_is_there"], &[("PRETENDED_GPUS", "0")]);
}

#[test]
fn a_gpu_is_there() {
    if !is_pretending("a_gpu_is_there") {
        return;
    }
    assert_eq!(methods(), Method::ALL);
}

#[test]
fn a_gpu_is_measured_where_there_is_enough_to_do() {
    if !is_pretending("a_gpu_is_measured_where_there_is_enough_to_do") {
        return;
    }
    let options = BulkOptions::default();
    let Choice { method, why } = choose(&options, &options, Some(1_000_000));
    assert_eq!(method, Method::Pipeline);
    assert!(matches!(why, Why::Few(1_000_000)));
    let fixed = BulkOptions {
        chunking: Chunking::new(ChunkingMethod::Fixed, 4096).unwrap(),
        ..options
    };
    let Choice { method, why } = choose(&fixed, &fixed, None);
    assert_eq!(method, Method::Pipeline);
    assert!(matches!(why, Why::Fixed), "{why}");
    let Choice { method, why } = choose(&options, &options, None);
    let Why::Measured { pipeline, harens } = why else {
        panic!("{why}");
    };
    assert!(pipeline > 0.0 && harens > 0.0, "{why}");
    let faster = match harens > pipeline {
        true => Method::Harens,
        false => Method::Pipeline,
    };
    assert_eq!(method, faster);
}

/// A trial of the first GPU, in batches of 200,000 bytes.
fn trial(method: ChunkingMethod) -> GpuTrial {
    let options = BulkOptions {
        chunking: Chunking::new(method, 2048).unwrap(),
        batch_bytes: 200_000,
        ..BulkOptions::default()
    };
    GpuTrial::open(&options, 1_000_000).expect("there is one")
}

#[test]
fn a_trial_finds_what_is_there() {
    if !is_pretending("a_trial_finds_what_is_there") {
        return;
    }
    for method in [ChunkingMethod::Modp, ChunkingMethod::Pack] {
        let mut trial = trial(method);
        assert_eq!(trial.name(), "pretended GPU 0");
        let likely = trial.batches_bytes() as f64 / 2048.0;
        let found = trial.find().expect("it works");
        assert!((0.8..1.2).contains(&(found as f64 / likely)), "{found}");
        trial.copy().expect("it works");
        trial.find_on_device().expect("it works");
        assert_eq!(trial.find().expect("it works"), found);
    }
}

#[test]
fn a_trial_ends_where_the_gpu_breaks() {
    if !is_pretending("a_trial_ends_where_the_gpu_breaks") {
        return;
    }
    let mut trial = trial(ChunkingMethod::Modp);
    let broke = (0..100).find_map(|_| trial.find().err());
    assert!(matches!(broke, Some(NoGpu::Driver(_))), "{broke:?}");
    trial.find().expect_err("it stays so");
    trial.find_on_device().expect_err("it is the same GPU");
    trial.copy().expect_err("it is the same GPU");
}

#[test]
fn no_gpu_is_there() {
    if !is_pretending("no_gpu_is_there") {
        return;
    }
    let options = BulkOptions {
        method: Method::Harens,
        ..BulkOptions::default()
    };
    let outcome = find_redundancy(vec![], &options, None, &mut |_| ControlFlow::Continue(()));
    let error = outcome.expect_err("there is none");
    assert!(matches!(error, BulkError::NoGpu(NoGpu::None)));
    assert_eq!(error.to_string(), "no CUDA device");
    assert!(matches!(GpuTrial::open(&options, 1), Err(NoGpu::None)));
    let Choice { method, why } = choose(&options, &options, None);
    assert_eq!(
        (method, why.to_string()),
        (Method::Pipeline, "no CUDA device".to_owned())
    );
}

#[test]
fn a_broken_gpu_is_told() {
    if !is_pretending("a_broken_gpu_is_told") {
        return;
    }
    let song = noise(9, 1_000_000).repeat(2);
    let input = Input::Stream("song".into(), Box::new(Cursor::new(song)));
    let options = BulkOptions {
        method: Method::Harens,
        batch_bytes: 100_000,
        ..BulkOptions::default()
    };
    let outcome = find_redundancy(vec![input], &options, None, &mut |_| {
        ControlFlow::Continue(())
    });
    let outcome = outcome.expect("the processor goes on");
    assert!(outcome.redundancy.share() > 0.48);
    assert_eq!(outcome.gpus, ["pretended GPU 0"]);
    let failure = outcome.gpu_failure.expect("it broke");
    assert!(failure.to_string().contains("LAUNCH_FAILED"), "{failure}");
}
