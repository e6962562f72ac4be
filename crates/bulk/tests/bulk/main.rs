//! What finds redundancy, from the outside.

mod inputs;
mod kernels;
mod methods;
mod pretended_gpus;
mod sinks;

use std::{ops::ControlFlow, path::Path, process::Command};

use refrain_bulk::{BulkOptions, Method, find_redundancy};
use tempfile::TempDir;

/// Methods that this machine can do: all, where it has a GPU or pretends to.
fn methods() -> Vec<Method> {
    let can = |method| {
        let options = BulkOptions {
            method,
            ..BulkOptions::default()
        };
        find_redundancy(vec![], &options, None, &mut |_| ControlFlow::Continue(())).is_ok()
    };
    let methods = Method::ALL.into_iter().filter(|&method| can(method));
    methods.collect()
}

/// Bytes without a pattern, the same for the same seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.take(len).map(|word| (word >> 32) as u8).collect()
}

/// A folder with what a file of the folder `pretended` compiles to, unless there is no compiler for C++.
fn compiled(source: &str, name: &str, options: &[&str]) -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bulk/pretended");
    let compiler = std::env::var("CXX").unwrap_or("c++".to_owned());
    let compiled = Command::new(&compiler)
        .args(["-std=c++20", "-O1"])
        .args(options)
        .arg("-o")
        .arg(folder.path().join(name))
        .arg(sources.join(source))
        .output();
    match compiled {
        Ok(compiled) => {
            let said = String::from_utf8_lossy(&compiled.stderr);
            assert!(compiled.status.success(), "{said}");
            Some(folder)
        }
        Err(error) => {
            println!("skipped: {compiler} cannot be run: {error}");
            None
        }
    }
}
