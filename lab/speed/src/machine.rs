//! The machine that figures come from, and how steadily it ran.

use std::{
    fs::{self, DirEntry},
    hint::black_box,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use refrain_codec::simd::Backend;

/// Where NVIDIA's driver says what it has.
const NVIDIA: &str = "/proc/driver/nvidia";

/// What has to stand beside any figure.
#[derive(Debug)]
pub(crate) struct Machine {
    pub processor: String,
    pub cores: usize,
    /// The sets of instructions that there are kernels for, and that it has.
    pub instructions: Vec<String>,
    /// NVIDIA's GPUs, and their driver.
    pub gpus: Vec<String>,
    pub gpu_driver: Option<String>,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let available = Backend::available().map(|backend| backend.instruction_set().to_string());
        Self {
            processor: processor(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            instructions: available.collect(),
            gpus: gpus(),
            gpu_driver: gpu_driver(),
        }
    }
}

fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1));
    model.map_or_else(
        || "unknown processor".to_owned(),
        |model| model.trim().to_owned(),
    )
}

/// What each is called, as the driver says it.
fn gpus() -> Vec<String> {
    let gpus = fs::read_dir(Path::new(NVIDIA).join("gpus"));
    let model = |gpu: DirEntry| {
        let all = fs::read_to_string(gpu.path().join("information")).ok()?;
        in_line(&all, "Model:")
    };
    let found = gpus.into_iter().flatten().flatten();
    found.filter_map(model).collect()
}

fn gpu_driver() -> Option<String> {
    let version = fs::read_to_string(Path::new(NVIDIA).join("version")).ok()?;
    in_line(&version, "NVRM version:")
}

/// What follows a name in the line that begins with it, its words apart by one space each.
fn in_line(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Whether the processor's clock, and others' work, left ours alone: the time that the same
/// loop takes again and again.
#[derive(Debug, Default)]
pub(crate) struct Steadiness {
    times: Vec<Duration>,
}

impl Steadiness {
    pub(crate) fn sample(&mut self) {
        let times = [(); 3].map(|()| {
            let start = Instant::now();
            fixed_loop();
            start.elapsed()
        });
        self.times.extend(times.into_iter().min());
    }

    /// The slowest sample over the fastest: 1 on a machine of one's own with a fixed clock.
    pub(crate) fn slowest_over_fastest(&self) -> f64 {
        let seconds = self.times.iter().map(Duration::as_secs_f64);
        let slowest = seconds.clone().fold(0.0, f64::max);
        let fastest = seconds.fold(f64::INFINITY, f64::min);
        if self.times.is_empty() {
            1.0
        } else {
            slowest / fastest
        }
    }
}

/// About a millisecond; each step waits for the one before.
fn fixed_loop() {
    let value = (0..300_000_u64).fold(1_u64, |value, step| {
        black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step)
    });
    black_box(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_told_as_it_tells_itself() {
        let version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\nGCC version: 12\n";
        let driver = "NVIDIA UNIX x86_64 Kernel Module 535.104.05 Sat Aug 19";
        assert_eq!(in_line(version, "NVRM version:").as_deref(), Some(driver));
        let gpu = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 55\n";
        assert_eq!(in_line(gpu, "Model:").as_deref(), Some("NVIDIA H200"));
        assert_eq!(in_line(gpu, "Bus:"), None);
    }

    #[test]
    fn the_slowest_is_compared_to_the_fastest() {
        assert_eq!(Steadiness::default().slowest_over_fastest(), 1.0);
        let times = [20, 10, 15].map(Duration::from_micros).to_vec();
        assert_eq!(Steadiness { times }.slowest_over_fastest(), 2.0);
    }
}
