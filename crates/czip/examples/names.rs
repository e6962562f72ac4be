//! Look-ups a second of the index of chunk names, a second of processor time too, and its memory:
//! `cargo run --release -p refrain-czip --example names -- [MILLIONS OF NAMES] [MEGABYTES] [FOLDER]`.

use std::path::PathBuf;
use std::time::Instant;

use refrain_czip::{NAME_BYTES, NameIndex, Numbered};

/// As even as a digest's bytes, and cheaper than a look-up.
fn name(number: u64) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for part in name.chunks_mut(8) {
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
        part.copy_from_slice(&state.to_le_bytes()[..part.len()]);
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    name
}

/// Seconds of processor time, user's and system's: what a busy machine does not change.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_program = stat.rsplit(')').next().unwrap_or_default();
    let fields = behind_program.split_whitespace().skip(11).take(2);
    fields
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// What the process holds of memory that is not a file's, now and at most.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status
        .lines()
        .filter(|line| line.starts_with("RssAnon") || line.starts_with("VmHWM"));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join(", ")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments
        .next()
        .map_or(Ok(20), |text| text.parse::<u64>())?
        * 1_000_000;
    let megabytes = arguments
        .next()
        .map_or(Ok(64), |text| text.parse::<usize>())?;
    let folder = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let mut index = NameIndex::new(megabytes << 20, &folder);
    let mut timed = |what: &str, names: &mut dyn Iterator<Item = u64>, new: bool| {
        let (begun, cpu_before, mut done, mut most) =
            (Instant::now(), processor_seconds(), 0u64, 0);
        for number in names {
            let expected = if new {
                Numbered::New(number)
            } else {
                Numbered::Known(number)
            };
            assert_eq!(index.find_or_insert(&name(number))?, expected);
            most = most.max(if done % 4096 == 0 {
                index.memory_bytes()
            } else {
                0
            });
            done += 1;
        }
        let rate = done as f64 / begun.elapsed().as_secs_f64();
        let cpu_rate = done as f64 / (processor_seconds() - cpu_before);
        let held = most >> 10;
        println!(
            "{what}: {rate:.0}/s, {cpu_rate:.0}/processor s, index {held} KiB, {}",
            memory()
        );
        Ok::<(), refrain_czip::IndexError>(())
    };
    timed("new", &mut (0..count), true)?;
    timed("repeats in order", &mut (0..count), false)?;
    let scattered = (0..count.min(2_000_000)).map(|step| step * 7_919_103 % count);
    timed("repeats at random", &mut { scattered }, false)?;
    Ok(())
}
