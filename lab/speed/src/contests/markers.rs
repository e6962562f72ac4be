//! Finding anchors and markers: each algorithm beside a plain read, and anchors beside
//! others' chunkers.

use std::{hint::black_box, rc::Rc};

use refrain_codec::{
    marker::{
        AnchorFinder, FindAnchors, MarkerAlgorithm, MarkerFinder, PackMask, SampleByteTable,
        WindowBytes,
    },
    simd::Backend,
};

use super::{
    Contest, Inputs, PERIOD, Place, RowName, name_of, peers, period,
    walk::{Circle, Pass, Work},
};

/// What only reads, and writes down where.
struct Scanner {
    /// The table's name.
    kernel: &'static str,
    ours: fn(Backend) -> Find,
}

/// Finds what there is in a block.
type Find = Box<dyn FnMut(&[u8])>;

const ANCHORS: Scanner = Scanner {
    kernel: "PACK anchors",
    ours: |backend| {
        let mut finder = AnchorFinder::new(PackMask::DEFAULT).with_backend(backend);
        let mut found = Vec::new();
        Box::new(move |block| {
            found.clear();
            finder.feed(block, &mut found);
            black_box(&found);
        })
    },
};

const MARKERS: [Scanner; 4] = [
    Scanner {
        kernel: "SAMPLEBYTE p = 64",
        ours: |backend| ours(MarkerAlgorithm::SampleByte, backend),
    },
    Scanner {
        kernel: "MODP p = 64",
        ours: |backend| ours(MarkerAlgorithm::Modp, backend),
    },
    Scanner {
        kernel: "MAXP bytes",
        ours: |backend| ours(MarkerAlgorithm::MaxpBytes, backend),
    },
    Scanner {
        kernel: "MAXP 8-byte values",
        ours: |backend| ours(MarkerAlgorithm::Maxp, backend),
    },
];

pub(super) fn all<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
    let mut contests = Vec::new();
    for (contest, circle) in ANCHORS.contests(inputs, backends) {
        contests.push(peers::with_chunkers(contest, &circle));
    }
    for scanner in &MARKERS {
        let scanned = scanner.contests(inputs, backends);
        contests.extend(scanned.into_iter().map(|(contest, _)| contest));
    }
    contests
}

impl Scanner {
    fn contests<'a>(
        &self,
        inputs: &'a Inputs,
        backends: &'a [Backend],
    ) -> Vec<(Contest<'a>, Rc<Circle<'a>>)> {
        let mut contests = Vec::new();
        for (data, bytes) in [("random", inputs.random()), ("text", inputs.text())] {
            let circle = Circle::again(bytes);
            let contest = self.contest(data, Place::Hot, &circle, backends);
            contests.push((contest, circle));
        }
        for (data, bytes) in [("random", inputs.random()), ("real", inputs.real())] {
            let circle = Circle::streamed(bytes, inputs.evicting());
            let contest = self.contest(data, Place::File, &circle, backends);
            contests.push((contest, circle));
        }
        contests
    }

    fn contest<'a>(
        &self,
        data: &'static str,
        place: Place,
        circle: &Rc<Circle<'a>>,
        backends: &'a [Backend],
    ) -> Contest<'a> {
        let mut contest = Contest::new(RowName {
            kernel: self.kernel,
            data,
            place,
        });
        for &backend in backends {
            let ours = self.ours;
            contest = contest.with(&name_of(backend.instruction_set()), circle, move || {
                on_blocks(ours(backend))
            });
        }
        peers::with_read(contest, circle)
    }
}

fn ours(algorithm: MarkerAlgorithm, backend: Backend) -> Find {
    let finder = finder(algorithm, PERIOD).with_backend(backend);
    listing(move |block, found| finder.find(block, found))
}

/// Keeps the list of what is found, for its memory.
fn listing(find: impl Fn(&[u8], &mut Vec<u32>) + 'static) -> Find {
    let mut found = Vec::new();
    Box::new(move |block| {
        find(block, &mut found);
        black_box(&found);
    })
}

fn on_blocks<'a>(mut find: Find) -> impl Work<'a> {
    move |pass: Pass<'a>| {
        for (_, block) in pass.blocks() {
            find(block);
        }
    }
}

/// Markers of `algorithm`, one in `period_bytes`.
pub(super) fn finder(algorithm: MarkerAlgorithm, period_bytes: usize) -> MarkerFinder {
    MarkerFinder::new(
        algorithm,
        period(period_bytes),
        WindowBytes::DEFAULT,
        SampleByteTable::default(),
    )
}
