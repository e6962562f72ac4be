//! What `bench` found, as its JSON has it.

use refrain_codec::simd::InstructionSet;
use serde::Serialize;

use super::{contests::RowName, machine::Machine, measure::Speed, targets::Target};

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    pub machine: Machine,
    /// What our kernels ran on, but for the rows that say another.
    pub backend: String,
    pub seconds_a_row: f64,
    /// What the bytes were.
    pub data: String,
    /// The slowest run of a fixed loop over the fastest, of one a row.
    pub unsteadiness: f64,
    /// Whether all rows that were asked for are there.
    pub complete: bool,
    pub rows: Vec<Row>,
}

/// One of our kernels, on some bytes.
#[derive(Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub kernel: &'static str,
    pub data: &'static str,
    pub place: String,
    /// Plain bytes, 10^9 of them, in a second.
    pub gb_per_s: f64,
    /// The same in chunks, where the row is about them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks_per_s: Option<f64>,
    #[serde(flatten)]
    pub target: SpeedTarget,
    pub beside: Vec<Beside>,
}

/// How fast another was in the same turns.
#[derive(Debug, Serialize)]
pub struct Beside {
    pub peer: String,
    pub gb_per_s: f64,
    /// Our speed over the peer's, the median of all turns.
    pub ratio: f64,
    #[serde(flatten)]
    pub target: SpeedTarget,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_met: Option<bool>,
}

/// A speed to reach, and whether it was; nothing where none is set.
#[derive(Debug, Serialize)]
pub struct SpeedTarget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_gb_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

impl Row {
    /// The first of `speeds` is ours, on `instructions`; others of ours are called so.
    pub fn new(
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
            name: name.to_string(),
            kernel: name.kernel,
            data: name.data,
            place: name.place.to_string(),
            gb_per_s: ours.gb_per_s,
            chunks_per_s: chunk_bytes.map(|bytes| ours.gb_per_s * 1e9 / bytes as f64),
            target: SpeedTarget::new(ours.gb_per_s, target, instructions),
            beside: beside.collect(),
        }
    }
}

impl Beside {
    fn new(speed: Speed, target: Option<&Target>, ours: InstructionSet) -> Self {
        let backend = InstructionSet::ALL
            .into_iter()
            .find(|&backend| speed.name == super::contests::name_of(backend));
        let target_ratio = target.and_then(|target| target.ratio(&speed.name, ours));
        Self {
            target: match backend {
                Some(backend) => SpeedTarget::new(speed.gb_per_s, target, backend),
                None => SpeedTarget::NONE,
            },
            target_ratio,
            ratio_met: target_ratio.map(|target| speed.ratio >= target),
            peer: speed.name,
            gb_per_s: speed.gb_per_s,
            ratio: speed.ratio,
        }
    }
}

impl SpeedTarget {
    const NONE: Self = Self {
        target_gb_per_s: None,
        met: None,
    };

    fn new(gb_per_s: f64, target: Option<&Target>, instructions: InstructionSet) -> Self {
        let target_gb_per_s = target.and_then(|target| target.gb_per_s(instructions));
        Self {
            target_gb_per_s,
            met: target_gb_per_s.map(|target| gb_per_s >= target),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bench::contests::Place;

    pub fn row(gb_per_s: f64, peers: &[(&str, f64)]) -> Row {
        let name = RowName {
            kernel: "SAMPLEBYTE p = 64",
            data: "random",
            place: Place::Hot,
        };
        let speed = |name: &str, speed: f64| Speed {
            name: name.to_owned(),
            gb_per_s: speed,
            ratio: gb_per_s / speed,
        };
        let peers = peers.iter().map(|&(peer, peers)| speed(peer, peers));
        let speeds = [speed("refrain, avx512", gb_per_s)]
            .into_iter()
            .chain(peers);
        Row::new(name, None, speeds.collect(), InstructionSet::Avx512)
    }

    #[test]
    fn a_row_about_chunks_says_how_many_there_were() {
        let name = RowName {
            kernel: "store insert, 8 KiB",
            data: "random",
            place: Place::Disk,
        };
        let speed = Speed {
            name: "refrain".to_owned(),
            gb_per_s: 0.5,
            ratio: 1.0,
        };
        let row = Row::new(name, Some(1000), vec![speed], InstructionSet::Portable);
        let json = serde_json::to_value(row).expect("JSON");
        assert_eq!(json["name"], "store insert, 8 KiB, random, disk");
        assert_eq!(json["chunks_per_s"], 500_000.0);
    }

    #[test]
    fn a_row_says_what_it_was_to_reach() {
        let peers = [("refrain, avx2", 4.0), ("scalar", 1.0), ("read", 64.0)];
        assert_eq!(
            serde_json::to_value(row(16.0, &peers)).expect("JSON"),
            serde_json::json!({
                "name": "SAMPLEBYTE p = 64, random, hot",
                "kernel": "SAMPLEBYTE p = 64",
                "data": "random",
                "place": "hot",
                "gb_per_s": 16.0,
                "target_gb_per_s": 15.0,
                "met": true,
                "beside": [
                    {
                        "peer": "refrain, avx2",
                        "gb_per_s": 4.0,
                        "ratio": 4.0,
                        "target_gb_per_s": 5.0,
                        "met": false
                    },
                    {
                        "peer": "scalar",
                        "gb_per_s": 1.0,
                        "ratio": 16.0,
                        "target_ratio": 10.0,
                        "ratio_met": true
                    },
                    { "peer": "read", "gb_per_s": 64.0, "ratio": 0.25 }
                ]
            })
        );
    }
}
