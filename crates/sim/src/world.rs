//! Both ends, what lies between them, and the loop that drives them.
//!
//! | file | what |
//! |---|---|
//! | `links` | engines: their events, their lanes, their end |
//! | `transports` | bytes on their way, dialling, breaking |
//! | `flows` | applications |
//! | `memories` | histories: what they are asked, and when they answer |
//! | `rest` | what must hold once nothing breaks any more |

mod flows;
mod links;
mod memories;
mod rest;
mod transports;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fastrand::Rng;
use refrain_proto::{FlowId, LaneId, Link, Moment};

use crate::{
    End,
    application::Application,
    counters::Counters,
    failure::Failure,
    kinds::{Kind, Kinds},
    ledger::Ledger,
    schedule::Schedule,
    transport::Transport,
    trouble::{Plan, TROUBLE_ENDS, Trouble},
};
use flows::Wish;
use memories::MemorySide;
use rest::Rest;

/// More steps at one moment mean that an engine wants to be called for ever.
const STEPS_AT_ONCE_MAX: u32 = 20_000;

/// A run.
pub(crate) struct World {
    rng: Rng,
    schedule: Schedule<Step>,
    plan: Plan,
    kinds: Kinds,
    ledger: Ledger,
    ends: [Side; 2],
    transports: Vec<Transport>,
    /// The near end's present link.
    near_instance: u64,
    lanes_wanted: usize,
    /// Lanes that the near end has left.
    spared: BTreeSet<(u64, LaneId)>,
    /// What is to be done to the next frame of its kind, on whichever transport.
    rare_harm: Option<Kind>,
    dial_is_booked: bool,
    no_dial_before: Moment,
    /// Parcels that each end sent, and the latest of them that arrived.
    parcels_sent: [u64; 2],
    parcel_arrived: [u64; 2],
    /// When an application last got anything done.
    progress_at: Moment,
    rest: Rest,
    /// What applications sent, to be sent again.
    repertoire: Vec<Vec<u8>>,
    /// Something broke: lanes and flows may end.
    is_troubled: bool,
    /// A process died: links may end.
    has_restarted: bool,
    /// Bytes were changed on their way: anything may be refused.
    is_damaged: bool,
    traces: bool,
}

/// One end: a process.
#[derive(Default)]
struct Side {
    /// By the near end's instance, of which the far end may know several.
    links: BTreeMap<u64, LinkSide>,
    applications: BTreeMap<(u64, FlowId), Application>,
    /// It outlives the process.
    memory: MemorySide,
}

/// A link at one end.
struct LinkSide {
    link: Link,
    /// What carries its lanes.
    transports: BTreeMap<LaneId, usize>,
    timer_at: Option<Moment>,
    had_lanes: bool,
    /// Referred bytes at the latest reunion.
    region_bytes_at_reunion: Option<u64>,
    /// What it had counted when that was last looked at.
    counters: Counters,
    calls: u64,
}

/// What can happen next.
#[derive(Debug)]
enum Step {
    /// A parcel arrives.
    Arrive { transport: usize, from: End },
    /// A transport takes bytes again; the last ones took so long.
    Room {
        transport: usize,
        end: End,
        took: Duration,
    },
    /// A lane's task follows a wish to transmit.
    Pump { end: End, link: u64, lane: LaneId },
    /// An end notices that a transport broke.
    Notice { transport: usize, end: End },
    /// An engine's deadline.
    Timer { end: End, link: u64, at: Moment },
    /// An end's history does what it was asked first.
    Remember(End),
    /// An application's turn.
    Turn { end: End, flow: (u64, FlowId) },
    /// An application opens a flow.
    Open { end: End, wish: Option<Wish> },
    /// The near end looks whether it has lanes enough.
    Dial,
    /// A transport's hello should have come.
    HelloDue(usize),
    /// Something breaks.
    Trouble(Trouble),
    /// See [`Rest`].
    Rest,
}

impl World {
    pub(crate) fn new(seed: u64, traces: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut foresight = Rng::with_seed(!seed);
        let plan = Plan::draw(&mut rng, &mut foresight);
        let mut schedule = Schedule::new();
        for &(at, trouble) in &plan.troubles {
            schedule.at(Moment(at), Step::Trouble(trouble));
        }
        for &(at, end) in &plan.openings {
            schedule.at(Moment(at), Step::Open { end, wish: None });
        }
        schedule.at(Moment(TROUBLE_ENDS), Step::Rest);
        let mut world = Self {
            rng,
            schedule,
            kinds: Kinds::default(),
            ledger: Ledger::default(),
            ends: Default::default(),
            transports: Vec::new(),
            near_instance: 0,
            lanes_wanted: plan.lanes,
            spared: BTreeSet::new(),
            rare_harm: None,
            dial_is_booked: false,
            no_dial_before: Moment::default(),
            parcels_sent: [0; 2],
            parcel_arrived: [0; 2],
            progress_at: Moment::default(),
            rest: Rest::NotYet,
            repertoire: Vec::new(),
            is_troubled: false,
            has_restarted: false,
            is_damaged: false,
            plan,
            traces,
        };
        world.trace(|| format!("{:?}", world.plan));
        world.prepare_memories();
        world.begin_near_link();
        world
    }

    /// Runs to the end: what it met, or when it broke which promise.
    pub(crate) fn run(mut self) -> Result<Kinds, (Moment, Failure)> {
        match self.run_steps() {
            Ok(()) => {
                self.end_all();
                Ok(self.kinds)
            }
            Err(failure) => Err((self.now(), failure)),
        }
    }

    fn run_steps(&mut self) -> Result<(), Failure> {
        while self.rest != Rest::Over {
            let Some(step) = self.schedule.next() else {
                return Err(Failure::Stuck("no step is left".to_owned()));
            };
            if self.schedule.steps_at_once() > STEPS_AT_ONCE_MAX {
                return Err(Failure::Livelock(format!("{step:?}")));
            }
            self.trace(|| format!("{step:?}"));
            self.step(step)?;
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), Failure> {
        match step {
            Step::Arrive { transport, from } => self.arrive(transport, from),
            Step::Room {
                transport,
                end,
                took,
            } => self.room(transport, end, took),
            Step::Pump { end, link, lane } => {
                self.pump(end, link, lane);
                self.settle(end, link)
            }
            Step::Notice { transport, end } => self.transport_broke(transport, end),
            Step::Timer { end, link, at } => self.timer(end, link, at),
            Step::Remember(end) => self.remember(end),
            Step::Turn { end, flow } => self.turn(end, flow),
            Step::Open { end, wish } => {
                self.open(end, wish);
                self.settle_all(end)
            }
            Step::Dial => self.dial(),
            Step::HelloDue(transport) => {
                self.hello_due(transport);
                Ok(())
            }
            Step::Trouble(trouble) => self.trouble(trouble),
            Step::Rest => self.rest(),
        }
    }

    fn trouble(&mut self, trouble: Trouble) -> Result<(), Failure> {
        match trouble {
            Trouble::Cut => self.cut_one(&End::BOTH),
            Trouble::CutAtOneEnd(end) => self.cut_one(&[end]),
            Trouble::Silence(end) => self.silence_one(end),
            Trouble::Stall => self.stall_one(),
            Trouble::CutAll => self.cut_all(),
            Trouble::LateBlocks(end) => return self.late_blocks(end),
            Trouble::Blackout => {
                self.kinds.note(Kind::Blackout);
                let until = self.now() + Duration::from_millis(self.rng.u64(..3000));
                self.no_dial_before = self.no_dial_before.max(until);
            }
            Trouble::Restart(end) => self.restart(end),
            Trouble::Drain(end) => return self.drain(end),
            Trouble::Spare => return self.leave_spare_lane(),
            Trouble::Harm(kind) => self.harm_one(kind),
        }
        Ok(())
    }

    fn now(&self) -> Moment {
        self.schedule.now()
    }

    fn side(&mut self, end: End) -> &mut Side {
        &mut self.ends[end as usize]
    }

    fn link_side(&mut self, end: End, link: u64) -> Option<&mut LinkSide> {
        self.side(end).links.get_mut(&link)
    }

    fn trace(&self, text: impl FnOnce() -> String) {
        if self.traces {
            eprintln!("{:12.6}  {}", self.now().0.as_secs_f64(), text());
        }
    }
}
