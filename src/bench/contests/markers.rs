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

/// The table's names of the algorithms, and how their twins come about.
const KERNELS: [(&str, MarkerAlgorithm, MakeTwin); 3] = [
    ("SAMPLEBYTE p = 64", MarkerAlgorithm::SampleByte, || {
        let table = SampleByteTable::default();
        Box::new(move |block, found| twins::samplebyte(block, PERIOD, &table, found))
    }),
    ("MODP p = 64", MarkerAlgorithm::Modp, || {
        let modp = twins::Modp::new(WindowBytes::DEFAULT.bytes());
        Box::new(move |block, found| modp.find(block, PERIOD, found))
    }),
    ("MAXP 8-byte values", MarkerAlgorithm::Maxp, || {
        Box::new(|block, found| twins::maxp(block, PERIOD, found))
    }),
];

type MakeTwin = fn() -> Find;

/// Puts a block's markers into a list.
type Find = Box<dyn Fn(&[u8], &mut Vec<u32>)>;

pub fn all<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
    let mut contests = Vec::new();
    for (kernel, algorithm, twin) in KERNELS {
        let row = |data, place| {
            Contest::new(RowName {
                kernel,
                data,
                place,
            })
        };
        for (data, bytes) in [("random", inputs.random()), ("text", inputs.text())] {
            let circle = Circle::again(bytes);
            let contest = finders(row(data, Place::Hot), &circle, algorithm, backends);
            let contest = contest.with_slow("scalar", &circle, move || on_blocks(twin()));
            contests.push(peers::with_read(contest, &circle));
        }
        for (data, bytes) in [("random", inputs.random()), ("real", inputs.real())] {
            let circle = Circle::streamed(bytes, inputs.evicting());
            let contest = finders(row(data, Place::File), &circle, algorithm, backends);
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
