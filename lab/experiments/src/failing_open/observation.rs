//! A failure, and the connections that it meets.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};

use super::{
    clients::{Outcome, Tried},
    crowd::Crowd,
    events::{Case, Victim},
    open::{Clock, Open, STATES, State},
    origin::UploadEnd,
    world::{Way, World},
};

/// A new connection begins so often.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long clients are at work before the event.
const BEFORE: Duration = Duration::from_millis(400);

/// How long the link may have been allowed again before the event, in recovery.
const REDIALLING: Duration = Duration::from_millis(30);

/// How long connections are observed: at most, at least, and after the end of all that were open.
const OBSERVED: Duration = Duration::from_millis(5_500);
const OBSERVED_MIN: Duration = Duration::from_secs(2);
const AFTERWARDS: Duration = Duration::from_millis(1_500);

/// How long data warms up large caches, and how often that is tried.
const WARM_UP: Duration = Duration::from_secs(6);
const WARM_UPS: usize = 5;

/// Outcomes, with how many there were and the longest time of one.
#[derive(Default, Clone)]
pub(super) struct Outcomes(pub BTreeMap<Outcome, (usize, Duration)>);

impl Outcomes {
    pub(super) fn add(&mut self, outcome: Outcome, took: Duration) {
        let (count, longest) = self.0.entry(outcome).or_default();
        *count += 1;
        *longest = took.max(*longest);
    }

    fn merge(&mut self, other: &Outcomes) {
        for (&outcome, &(count, longest)) in &other.0 {
            let entry = self.0.entry(outcome).or_default();
            *entry = (entry.0 + count, entry.1.max(longest));
        }
    }

    /// The longest time of an outcome.
    pub(super) fn longest(&self, of: impl Fn(Outcome) -> bool) -> Duration {
        let times = self.0.iter().filter(|(outcome, _)| of(**outcome));
        times
            .map(|(_, (_, longest))| *longest)
            .max()
            .unwrap_or_default()
    }
}

/// The new connections after an event.
#[derive(Default, Clone)]
pub(super) struct New {
    /// Those that were lost.
    pub lost: Outcomes,
    /// The others.
    pub served: Outcomes,
    /// The outcome of the last connections, in each run.
    pub settled: Outcomes,
    /// When the first of them began.
    pub settled_after: Duration,
}

impl New {
    fn of(event: Instant, tried: &[Tried]) -> New {
        let mut new = New::default();
        let Some(last) = tried.last() else { return new };
        for one in tried {
            let outcomes = match one.outcome.is_lost() {
                true => &mut new.lost,
                false => &mut new.served,
            };
            let began = one.began.max(event);
            outcomes.add(one.outcome, one.ended.saturating_duration_since(began));
        }
        let others = tried.iter().rposition(|one| one.outcome != last.outcome);
        if let Some(one) = others.and_then(|others| tried.get(others + 1)) {
            new.settled_after = one.began.saturating_duration_since(event);
        }
        new.settled.add(last.outcome, last.ended - last.began);
        new
    }

    fn merge(&mut self, other: &New) {
        self.lost.merge(&other.lost);
        self.served.merge(&other.served);
        self.settled.merge(&other.settled);
        self.settled_after = self.settled_after.max(other.settled_after);
    }
}

/// What an event did, or several equal ones: the worst.
#[derive(Default, Clone)]
pub(super) struct Observation {
    pub open: BTreeMap<State, Outcomes>,
    /// Connections that had begun, and had no answer yet.
    pub opening: Outcomes,
    pub new: New,
    /// The same in recovery.
    pub open_in_recovery: Outcomes,
    pub new_in_recovery: New,
    /// How long it took until new connections were carried, after the event had been undone.
    pub carried_again: Duration,
}

impl Observation {
    pub(super) fn merge(&mut self, other: &Observation) {
        for (&state, outcomes) in &other.open {
            self.open.entry(state).or_default().merge(outcomes);
        }
        self.opening.merge(&other.opening);
        self.new.merge(&other.new);
        self.open_in_recovery.merge(&other.open_in_recovery);
        self.new_in_recovery.merge(&other.new_in_recovery);
        self.carried_again = self.carried_again.max(other.carried_again);
    }

    /// All connections that were open.
    pub(super) fn all_open(&self) -> Outcomes {
        let mut all = self.opening.clone();
        for outcomes in self.open.values() {
            all.merge(outcomes);
        }
        all
    }

    /// Whether any connection had such an outcome.
    pub(super) fn has(&self, of: impl Fn(Outcome) -> bool) -> bool {
        let all_open = self.all_open();
        let all = [
            &all_open,
            &self.new.lost,
            &self.open_in_recovery,
            &self.new_in_recovery.lost,
        ];
        let mut all = all.into_iter().flat_map(|outcomes| outcomes.0.keys());
        all.any(|outcome| of(*outcome))
    }
}

/// Observes a case: with a link at work, and in recovery.
pub(super) fn observe(
    world: &mut World,
    case: Case,
    parts: &[bool],
) -> anyhow::Result<Observation> {
    let mut observation = Observation::default();
    for &in_recovery in parts {
        if case.is_large() {
            world.restart(true)?;
        }
        world.divert(case.way)?;
        if case.is_large() {
            warm_up(world, case.way)?;
        }
        case.prepare(world)?;
        let part = observe_part(world, case, in_recovery).with_context(|| world.logs())?;
        observation.merge(&part);
        world.release(case.way)?;
    }
    // Some connections of the near end's stay open without rules.
    if case.is_large() || case.victim == Victim::Rules {
        world.restart(false)?;
    }
    Ok(observation)
}

/// Carries data until the tables of large caches have been touched. On a slow machine, the first data stops a near end
/// for more than the two seconds that its watchdog gives it: then another one is started.
fn warm_up(world: &mut World, way: Way) -> anyhow::Result<()> {
    for _ in 0..WARM_UPS {
        let clock = Arc::<Clock>::default();
        let open = Open::start(&world.place(way)?, State::Transfer, &clock)?;
        sleep(WARM_UP);
        clock.end();
        open.finish();
        let near = world.near.as_mut().context("no near end runs")?;
        if !near.process.has_ended()? {
            return Ok(());
        }
        eprintln!("the watchdog killed a near end with large caches at its first data");
        world.restart(true)?;
        world.wait_for(way, Outcome::Carried)?;
    }
    bail!("the watchdog kills each near end with large caches at its first data")
}

fn observe_part(world: &mut World, case: Case, in_recovery: bool) -> anyhow::Result<Observation> {
    let place = world.place(case.way)?;
    let clock = Arc::<Clock>::default();
    if in_recovery {
        world.cut("reject with tcp reset")?;
        match case.way {
            Way::Run => sleep(AFTERWARDS),
            _ => world.wait_for(case.way, Outcome::Direct)?,
        }
    }
    // Without a link, a program in `refrain run` opens none.
    let states = match (case.way, in_recovery) {
        (Way::Run, true) => &[][..],
        _ => &STATES,
    };
    let opens = states
        .iter()
        .map(|&state| Open::start(&place, state, &clock));
    let opens = opens.collect::<anyhow::Result<Vec<_>>>()?;
    let way = if in_recovery {
        Outcome::Direct
    } else {
        Outcome::Carried
    };
    for open in &opens {
        ensure!(
            open.way == way,
            "a connection was {:?}, not {way:?}",
            open.way
        );
    }
    let crowd = Crowd::start(place, INTERVAL);
    sleep(BEFORE);
    if in_recovery {
        world.join()?;
        sleep(REDIALLING);
    }
    let event = case.strike(world)?;
    let _ = clock.event.set(event);
    wait_for_ends(event, &opens);
    clock.end();
    let tried = crowd.finish()?;
    let uploads: Vec<_> = opens.iter().filter_map(|open| open.upload).collect();
    let mut observation = Observation::default();
    for open in opens {
        let state = open.state;
        let (outcome, took) = open.finish();
        let outcomes = match in_recovery {
            false => observation.open.entry(state).or_default(),
            true => &mut observation.open_in_recovery,
        };
        outcomes.add(outcome, took);
    }
    let unanswered: Vec<_> = tried.into_iter().filter(|one| one.ended > event).collect();
    let before = unanswered.partition_point(|one| one.began < event);
    match in_recovery {
        true => observation.new_in_recovery = New::of(event, &unanswered),
        false => {
            for one in &unanswered[..before] {
                observation.opening.add(one.outcome, one.ended - event);
            }
            observation.new = New::of(event, &unanswered[before..]);
        }
    }
    let healed = Instant::now();
    case.heal(world)?;
    world.wait_for(case.way, Outcome::Carried)?;
    observation.carried_again = healed.elapsed();
    for number in uploads {
        let outcome = match world.origin.upload(number) {
            Some(UploadEnd::Clean) => Outcome::Truncated,
            Some(UploadEnd::WrongBytes) => Outcome::WrongBytes,
            Some(UploadEnd::Error) | None => continue,
        };
        let transfers = observation.open.entry(State::Transfer).or_default();
        transfers.add(outcome, Duration::ZERO);
    }
    Ok(observation)
}

fn wait_for_ends(event: Instant, opens: &[Open]) {
    let mut all_ended = None;
    loop {
        sleep(INTERVAL);
        let now = event.elapsed();
        if all_ended.is_none() && opens.iter().all(Open::has_ended) {
            all_ended = Some(now);
        }
        let is_over = all_ended.is_some_and(|at| now >= OBSERVED_MIN && now >= at + AFTERWARDS);
        if is_over || now >= OBSERVED {
            return;
        }
    }
}
