//! Finding markers: each algorithm beside a scalar twin and a plain read.

use std::{hint::black_box, rc::Rc};

use refrain_codec::{
    marker::{FindMarkers, MarkerAlgorithm, MarkerFinder, SampleByteTable, WindowBytes},
    simd::Backend,
};

use super::{
    Contest, Inputs, PERIOD, Place, RowName, name_of, peers, period, twins,
    walk::{Circle, Pass, Work},
};

/// The table's names of the algorithms.
const KERNELS: [(&str, MarkerAlgorithm); 3] = [
    ("SAMPLEBYTE p = 64", MarkerAlgorithm::SampleByte),
    ("MODP p = 64", MarkerAlgorithm::Modp),
    ("MAXP 8-byte values", MarkerAlgorithm::Maxp),
];

pub fn all<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
    let mut contests = Vec::new();
    for (kernel, algorithm) in KERNELS {
        for (data, bytes) in [("random", inputs.random()), ("text", inputs.text())] {
            let circle = Circle::again(bytes);
            let name = RowName {
                kernel,
                data,
                place: Place::Hot,
            };
            let contest = finders(Contest::new(name), &circle, algorithm, backends);
            let contest =
                contest.with_slow("scalar", &circle, move || on_blocks(scalar(algorithm)));
            contests.push(peers::with_read(contest, &circle));
        }
        for (data, bytes) in [("random", inputs.random()), ("real", inputs.real())] {
            let circle = Circle::streamed(bytes, inputs.evicting());
            let name = RowName {
                kernel,
                data,
                place: Place::File,
            };
            let contest = finders(Contest::new(name), &circle, algorithm, backends);
            contests.push(peers::with_read(contest, &circle));
        }
    }
    contests
}

fn finders<'a>(
    contest: Contest<'a>,
    circle: &Rc<Circle<'a>>,
    algorithm: MarkerAlgorithm,
    backends: &'a [Backend],
) -> Contest<'a> {
    backends.iter().fold(contest, |contest, &backend| {
        contest.with(&name_of(backend.instruction_set()), circle, move || {
            let finder = finder(algorithm, PERIOD).with_backend(backend);
            on_blocks(move |block, found| finder.find(block, found))
        })
    })
}

type Find = Box<dyn Fn(&[u8], &mut Vec<u32>)>;

/// The algorithm's twin, as a good program without vectors would have it.
fn scalar(algorithm: MarkerAlgorithm) -> Find {
    match algorithm {
        MarkerAlgorithm::SampleByte => {
            let table = SampleByteTable::default();
            Box::new(move |block, found| twins::samplebyte(block, PERIOD, &table, found))
        }
        MarkerAlgorithm::Modp => {
            let modp = twins::Modp::new(WindowBytes::DEFAULT.bytes());
            Box::new(move |block, found| modp.find(block, PERIOD, found))
        }
        MarkerAlgorithm::Maxp => Box::new(|block, found| twins::maxp(block, PERIOD, found)),
        MarkerAlgorithm::Fixed => unreachable!("it computes nothing"),
    }
}

fn on_blocks<'a>(find: impl Fn(&[u8], &mut Vec<u32>)) -> impl Work<'a> {
    let mut found = Vec::new();
    move |pass: Pass<'a>| {
        for (_, block) in pass.blocks() {
            find(block, &mut found);
            black_box(&found);
        }
    }
}

/// Markers of `algorithm`, one in `period_bytes`.
pub fn finder(algorithm: MarkerAlgorithm, period_bytes: usize) -> MarkerFinder {
    MarkerFinder::new(
        algorithm,
        period(period_bytes),
        WindowBytes::DEFAULT,
        SampleByteTable::default(),
    )
}
