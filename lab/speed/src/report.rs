//! What was found.

use refrain_codec::simd::InstructionSet;

use crate::{
    contests::{Place, RowName, name_of},
    machine::Machine,
    measure::Speed,
    targets::Target,
};

/// All that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    pub machine: Machine,
    /// What our kernels ran on, but for the rows that say another.
    pub backend: String,
    pub seconds_a_row: f64,
    /// What the bytes were.
    pub data: String,
    /// The slowest run of a fixed loop over the fastest, of one a row.
    pub unsteadiness: f64,
    pub rows: Vec<Row>,
}

/// One of our kernels, on some bytes.
#[derive(Debug)]
pub(crate) struct Row {
    pub kernel: &'static str,
    pub data: &'static str,
    pub place: Place,
    /// Plain bytes, 10^9 of them, in a second.
    pub gb_per_s: f64,
    /// The same in chunks, where the row is about them.
    pub chunks_per_s: Option<f64>,
    pub target_gb_per_s: Option<f64>,
    pub beside: Vec<Beside>,
}

/// How fast another was in the same turns.
#[derive(Debug)]
pub(crate) struct Beside {
    pub peer: String,
    pub gb_per_s: f64,
    /// Our speed over the peer's, the median of all turns.
    pub ratio: f64,
    pub target_gb_per_s: Option<f64>,
    pub target_ratio: Option<f64>,
}

impl Report {
    /// Prints a line for each target to standard error.
    pub(crate) fn print_targets(&self) {
        for row in &self.rows {
            let name = row.name();
            if let Some(target) = row.target_gb_per_s {
                print_target(&name, row.gb_per_s, target);
            }
            for other in &row.beside {
                let peer = &other.peer;
                if let Some(target) = other.target_gb_per_s {
                    let what = format!("{name}, {peer}");
                    print_target(&what, other.gb_per_s, target);
                }
                if let Some(target) = other.target_ratio {
                    let what = format!("{name}, over {peer}");
                    print_target(&what, other.ratio, target);
                }
            }
        }
    }
}

fn print_target(what: &str, figure: f64, target: f64) {
    let verdict = if figure < target { "missed" } else { "met" };
    eprintln!("target {verdict}: {what}: {figure:.2} (asked: {target:.2} at least)");
}

impl Row {
    /// The first of `speeds` is ours, on `instructions`; others of ours are called so.
    pub(crate) fn new(
        name: RowName,
        chunk_bytes: Option<usize>,
        speeds: Vec<Speed>,
        instructions: InstructionSet,
    ) -> Self {
        let target = Target::of(name);
        let mut speeds = speeds.into_iter();
        let ours = speeds.next().expect("ours takes part");
        let beside = speeds.map(|speed| Beside::new(speed, target, instructions));
        Self {
            kernel: name.kernel,
            data: name.data,
            place: name.place,
            gb_per_s: ours.gb_per_s,
            chunks_per_s: chunk_bytes.map(|bytes| ours.gb_per_s * 1e9 / bytes as f64),
            target_gb_per_s: target.and_then(|target| target.gb_per_s(instructions)),
            beside: beside.collect(),
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("{}, {}, {}", self.kernel, self.data, self.place)
    }
}

impl Beside {
    fn new(speed: Speed, target: Option<&Target>, ours: InstructionSet) -> Self {
        let backend = InstructionSet::ALL
            .into_iter()
            .find(|&backend| speed.name == name_of(backend));
        Self {
            target_gb_per_s: target
                .zip(backend)
                .and_then(|(target, backend)| target.gb_per_s(backend)),
            target_ratio: target.and_then(|target| target.ratio(&speed.name, ours)),
            peer: speed.name,
            gb_per_s: speed.gb_per_s,
            ratio: speed.ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(name: &str, gb_per_s: f64) -> Speed {
        Speed {
            name: name.to_owned(),
            gb_per_s,
            ratio: 16.0 / gb_per_s,
        }
    }

    #[test]
    fn a_row_about_chunks_says_how_many_there_were() {
        let name = RowName {
            kernel: "store insert, 8 KiB",
            data: "random",
            place: Place::Disk,
        };
        let speeds = vec![speed("refrain", 0.5)];
        let row = Row::new(name, Some(1000), speeds, InstructionSet::Portable);
        assert_eq!(row.chunks_per_s, Some(500_000.0));
    }

    #[test]
    fn a_row_has_its_targets() {
        let name = RowName {
            kernel: "PACK anchors",
            data: "random",
            place: Place::Hot,
        };
        let speeds = [
            ("refrain, avx512", 16.0),
            ("refrain, avx2", 4.0),
            ("fastcdc", 1.0),
            ("read", 64.0),
        ];
        let speeds = speeds.map(|(name, gb_per_s)| speed(name, gb_per_s));
        let row = Row::new(name, None, speeds.into(), InstructionSet::Avx512);
        assert_eq!(row.target_gb_per_s, Some(20.0));
        let beside = row.beside.iter();
        let targets = beside.map(|peer| (peer.ratio, peer.target_gb_per_s, peer.target_ratio));
        assert!(targets.eq([
            (4.0, Some(20.0 * (1.0 / 3.0)), None),
            (16.0, None, Some(10.0)),
            (0.25, None, None),
        ]));
    }
}
