//! The matrix of failures of interception and of `refrain run`: each event, and what connections in each state see.
//!
//! - `events`       what is hit, how, and how it is undone
//! - `observation`  an event among connections, and what became of them
//! - `open`, `crowd`, `clients`  connections that are open, new ones, and how both are made
//! - `origin`       the service
//! - `removal`      interception that is removed on purpose
//! - `world`, `lan` the namespaces and all processes
//! - `memory`       memory of a process, touched and used up
//! - `page`         what is written

mod clients;
mod crowd;
mod events;
mod lan;
mod memory;
mod observation;
mod open;
mod origin;
mod page;
mod removal;
mod world;

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use nix::unistd::Uid;

use self::{
    clients::Outcome,
    events::Case,
    observation::{Observation, Outcomes},
    page::Row,
    removal::{REMOVALS, Removal},
    world::{WAYS, Way, World},
};
use crate::{
    machine,
    targets::{self, Target, all_of, at_most},
};

/// How soon new connections are to go direct after the death of the near end, and those that were open to be reset.
const DIRECT_AFTER_S: f64 = 0.6;
const RESET_AFTER_S: f64 = 3.0;

/// How often cases are measured that each need gigabytes and the whole machine.
const LARGE_RUNS: usize = 1;

/// The options of `failing-open`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure this program
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// Measure each case this many times, and show the worst
    #[arg(long, default_value_t = 2)]
    runs: usize,
    /// Measure only some cases, once, and not in recovery, in at most a minute
    #[arg(long, conflicts_with_all = ["runs", "only"])]
    quick: bool,
    /// Measure only cases whose names contain this text, such as 'redirect near kill'
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write the page to this file instead of standard output
    #[arg(long)]
    pub write: Option<PathBuf>,
}

/// A removal, with the outcomes of the connections meanwhile.
type RemovalRow = (Way, Removal, Outcomes);

/// What is measured, and how.
struct Plan {
    refrain: PathBuf,
    cases: Vec<Case>,
    removals: Vec<(Way, Removal)>,
    runs: usize,
    /// Whether the event comes in recovery, for each part of a run.
    parts: &'static [bool],
}

/// Measures, and gives the page. Fails after writing it where a connection saw what none may see.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    ensure!(arguments.runs > 0, "--runs must be greater than zero");
    let plan = Plan::new(arguments)?;
    ensure!(
        Uid::effective().is_root(),
        "only root can make these networks"
    );
    let (began, load) = (Instant::now(), machine::load());
    let (rows, removals) = plan.measure()?;
    let mut page = page::INTRODUCTION.to_owned();
    page += &format!(
        "Measured at {} on {}; load when it began: {load:.1}; took {:.0} s.\n",
        machine::version_in_words(&machine::version()),
        machine::processor(),
        began.elapsed().as_secs_f64(),
    );
    page::write(&mut page, &rows, &removals, plan.runs)?;
    let targets = targets(&rows, &removals);
    targets::print(&targets);
    if !is_sound(&rows, &removals) {
        match &arguments.write {
            Some(file) => std::fs::write(file, page)?,
            None => print!("{page}"),
        }
        bail!("connections hung, or ended as if they were complete, or were lost by a removal");
    }
    Ok(page)
}

impl Plan {
    fn new(arguments: &Arguments) -> anyhow::Result<Plan> {
        let is_asked = |case: &Case| match (&arguments.only, arguments.quick) {
            (Some(text), _) => name(*case).contains(text),
            (None, is_quick) => !is_quick || case.is_quick(),
        };
        let cases = WAYS.map(events::cases).concat();
        let removals = [Way::Redirect, Way::Forwarded, Way::Keep]
            .into_iter()
            .flat_map(|way| REMOVALS.map(|removal| (way, removal)));
        let is_removal_asked = |(way, removal): &(Way, Removal)| {
            !arguments.quick || *way != Way::Keep && removal.is_quick()
        };
        Ok(Plan {
            refrain: refrain(&arguments.refrain)?,
            cases: cases.into_iter().filter(is_asked).collect(),
            removals: match arguments.only {
                Some(_) => Vec::new(),
                None => removals.filter(is_removal_asked).collect(),
            },
            runs: if arguments.quick { 1 } else { arguments.runs },
            parts: if arguments.quick {
                &[false]
            } else {
                &[false, true]
            },
        })
    }

    /// Each way has a pair of its own, at the same time. The large cases come one after the other.
    fn measure(&self) -> anyhow::Result<(Vec<Row>, Vec<RemovalRow>)> {
        let measured = thread::scope(|scope| {
            let threads = WAYS.map(|way| scope.spawn(move || self.measure_way(way)));
            let measured = threads.map(|thread| thread.join().expect("no panic"));
            measured.into_iter().collect::<anyhow::Result<Vec<_>>>()
        })?;
        let (mut rows, removals): (Vec<_>, Vec<_>) = measured.into_iter().unzip();
        let large = self.cases.iter().copied().filter(|case| case.is_large());
        let large: Vec<_> = large.collect();
        if !large.is_empty() {
            let mut world = World::start(&self.refrain)?;
            rows.push(self.measure_cases(&mut world, &large, self.runs.min(LARGE_RUNS))?);
        }
        let mut rows = rows.concat();
        rows.sort_by_key(|(case, _)| self.cases.iter().position(|one| one == case));
        Ok((rows, removals.concat()))
    }

    fn measure_way(&self, way: Way) -> anyhow::Result<(Vec<Row>, Vec<RemovalRow>)> {
        let cases = self.cases.iter().copied();
        let cases: Vec<_> = cases
            .filter(|case| case.way == way && !case.is_large())
            .collect();
        let mut removals = self.removals.iter().filter(|(of, _)| *of == way).peekable();
        if cases.is_empty() && removals.peek().is_none() {
            return Ok(Default::default());
        }
        let mut world = World::start(&self.refrain)?;
        let rows = self.measure_cases(&mut world, &cases, self.runs)?;
        let removals = removals.map(|&(way, removal)| {
            let outcomes = removal.observe(&mut world, way);
            let outcomes = outcomes.with_context(|| removal.name())?;
            Ok((way, removal, outcomes))
        });
        Ok((rows, removals.collect::<anyhow::Result<_>>()?))
    }

    fn measure_cases(
        &self,
        world: &mut World,
        cases: &[Case],
        runs: usize,
    ) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for &case in cases {
            if let Some(obstacle) = case.obstacle() {
                rows.push((case, Err(obstacle)));
                continue;
            }
            let mut worst = Ok(Observation::default());
            for _ in 0..runs {
                let began = Instant::now();
                let observed = observation::observe(world, case, self.parts);
                let observed = observed.map_err(|error| {
                    eprintln!("{}: {error:?}", name(case));
                    "**failed**"
                });
                let line = page::line(&(case, observed.clone()));
                eprintln!(
                    "{:.1} s {:?} {line}",
                    began.elapsed().as_secs_f64(),
                    case.way
                );
                match (&mut worst, observed) {
                    (Ok(worst), Ok(observation)) => worst.merge(&observation),
                    (_, Err(failed)) => {
                        worst = Err(failed);
                        *world = World::start(&self.refrain)?;
                    }
                    (Err(_), Ok(_)) => {}
                }
            }
            rows.push((case, worst));
        }
        Ok(rows)
    }
}

fn refrain(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize().with_context(|| {
        let program = path.display();
        format!("cannot find \"{program}\" (build it: cargo build --release --bin refrain)")
    })
}

/// What `--only` chooses by.
fn name(case: Case) -> String {
    format!("{:?} {:?} {:?}", case.way, case.victim, case.event).to_lowercase()
}

fn is_sound(rows: &[Row], removals: &[RemovalRow]) -> bool {
    let are_rows = rows.iter().all(|(case, row)| match row {
        Ok(observation) => !observation.has(Outcome::is_wrong),
        Err(_) => case.obstacle().is_some(),
    });
    are_rows && removals.iter().all(|(_, _, outcomes)| lost(outcomes) == 0)
}

fn lost(outcomes: &Outcomes) -> usize {
    let lost = outcomes.0.iter().filter(|(outcome, _)| outcome.is_lost());
    lost.map(|(_, (count, _))| count).sum()
}

fn targets(rows: &[Row], removals: &[RemovalRow]) -> Vec<Target> {
    let observed = || {
        let rows = rows
            .iter()
            .filter_map(|(case, row)| Some((*case, row.as_ref().ok()?)));
        rows.collect::<Vec<_>>()
    };
    let deaths = || {
        observed()
            .into_iter()
            .filter(|(case, _)| page::is_death(*case))
    };
    let longest = |times: Vec<Duration>, bound: f64| {
        let longest = times.into_iter().max()?.as_secs_f64();
        Some(at_most(longest, bound, format!("{longest:.2} s")))
    };
    let sound = observed()
        .iter()
        .filter(|(_, row)| !row.has(Outcome::is_wrong))
        .count();
    let direct = deaths().map(|(_, row)| row.new.settled_after).collect();
    let reset = deaths()
        .map(|(_, row)| row.all_open().longest(Outcome::is_lost))
        .collect();
    let whole = removals.iter().filter(|(_, _, all)| lost(all) == 0).count();
    vec![
        Target {
            what: "rows in which no connection hangs, is truncated or has wrong bytes",
            asked: "all",
            measured: Some(all_of(sound, observed().len())),
        },
        Target {
            what: "death of the near end: all new connections are direct",
            asked: "after at most 0.6 s",
            measured: longest(direct, DIRECT_AFTER_S),
        },
        Target {
            what: "death of the near end: all open connections are reset",
            asked: "after at most 3 s",
            measured: longest(reset, RESET_AFTER_S),
        },
        Target {
            what: "removals that cost no connection",
            asked: "all",
            measured: (!removals.is_empty()).then(|| all_of(whole, removals.len())),
        },
    ]
}
