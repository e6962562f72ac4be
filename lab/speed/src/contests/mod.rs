//! What is measured, and beside what: one [`Contest`] for each line of the report.
//!
//! A contest's names are those of the targets: kernel, data, and where the bytes come from.

mod chunks;
mod decode;
mod encode;
mod ends;
mod gpus;
mod hashes;
mod inputs;
mod markers;
mod peers;
mod predictions;
mod store;
mod walk;

use std::{fmt, rc::Rc, time::Duration};

use refrain_codec::{
    marker::SamplingPeriod,
    simd::{Backend, InstructionSet},
};

pub(crate) use inputs::{Inputs, Noise};
use walk::{Circle, Walk, Work};

/// What the codec takes at once.
const BLOCK_BYTES: usize = 64 << 10;

/// What chunks have on average where they are cut, and exactly where nothing is.
const CHUNK_BYTES: usize = 8 << 10;

/// p of all rows that do not say another.
const PERIOD: usize = 64;

/// A line of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowName {
    pub kernel: &'static str,
    pub data: &'static str,
    pub place: Place,
}

/// Where the bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The second-level cache.
    Hot,
    /// Memory, once from end to end, as of a file that was read.
    File,
    /// A socket of this machine.
    Loopback,
    /// A folder, as far as the system keeps it in memory.
    Disk,
    /// A GPU's own memory.
    Device,
}

/// Something of ours and what it is measured beside, in turns.
pub(crate) struct Contest<'a> {
    pub name: RowName,
    /// Ours is the first.
    pub contestants: Vec<Contestant<'a>>,
    /// Bytes of a chunk, where it is told how many there are a second.
    pub chunk_bytes: Option<usize>,
}

/// One of a contest.
pub(crate) struct Contestant<'a> {
    pub name: String,
    /// Plain bytes of each turn.
    pub turn_bytes: usize,
    pub turn: Turn<'a>,
}

/// A turn of work; says how long it took, without what prepared it.
pub(crate) type Turn<'a> = Box<dyn FnMut() -> Duration + 'a>;

/// All contests of kernels; ours runs on the first of `backends`, the others stand beside it.
/// What a contestant needs is made in its first turn.
pub(crate) fn all<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
    let mut contests = markers::all(inputs, backends);
    contests.extend(encode::all(inputs, backends));
    contests.extend(decode::all(inputs, backends));
    contests.extend(hashes::all(inputs, backends));
    contests.extend(chunks::all(inputs, backends));
    contests.extend(store::all(inputs));
    contests.extend(predictions::all(inputs, backends));
    contests.extend(gpus::all());
    contests
}

impl<'a> Contest<'a> {
    pub(crate) fn new(name: RowName) -> Self {
        Self {
            name,
            contestants: Vec::new(),
            chunk_bytes: None,
        }
    }

    /// Tells chunks a second as well.
    fn of_chunks(self, chunk_bytes: usize) -> Self {
        Self {
            chunk_bytes: Some(chunk_bytes),
            ..self
        }
    }

    pub(crate) fn turn(
        mut self,
        name: &str,
        turn_bytes: usize,
        turn: impl FnMut() -> Duration + 'a,
    ) -> Self {
        self.contestants.push(Contestant {
            name: name.to_owned(),
            turn_bytes,
            turn: Box::new(turn),
        });
        self
    }

    /// A contestant that goes round `circle`; `work` makes what works on it.
    fn with<W: Work<'a> + 'a>(
        self,
        name: &str,
        circle: &Rc<Circle<'a>>,
        work: impl FnOnce() -> W + 'a,
    ) -> Self {
        let mut walk = Walk::new(Rc::clone(circle));
        self.lazily(name, circle.turn_bytes(), work, move |work| walk.turn(work))
    }

    /// One so slow that it takes a small part of each turn.
    fn with_slow<W: Work<'a> + 'a>(
        self,
        name: &str,
        circle: &Rc<Circle<'a>>,
        work: impl FnOnce() -> W + 'a,
    ) -> Self {
        let mut walk = Walk::new(Rc::clone(circle));
        self.lazily(name, circle.pass_bytes(), work, move |work| {
            walk.first_of_turn(work)
        })
    }

    fn lazily<W: 'a>(
        self,
        name: &str,
        turn_bytes: usize,
        make: impl FnOnce() -> W + 'a,
        mut turn: impl FnMut(&mut W) -> Duration + 'a,
    ) -> Self {
        let mut make = Some(make);
        let mut work = None;
        self.turn(name, turn_bytes, move || {
            let work = work.get_or_insert_with(|| {
                let make = make.take().expect("it is made once");
                make()
            });
            turn(work)
        })
    }
}

impl fmt::Display for RowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.kernel, self.data, self.place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hot => "hot",
            Self::File => "file",
            Self::Loopback => "loopback",
            Self::Disk => "disk",
            Self::Device => "device",
        })
    }
}

fn period(bytes: usize) -> SamplingPeriod {
    SamplingPeriod::new(bytes).expect("a valid period")
}

/// The name under which our kernels for `set` take part.
pub(crate) fn name_of(set: InstructionSet) -> String {
    format!("refrain, {set}")
}
