//! The comparison: which steps each store goes through, in turns.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    path::{Path, PathBuf},
    process::Child,
};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::{
    fill::{Event, Filled},
    load::{Load, Random},
    measure,
    process::{Place, answer},
    read::{Beside, Left, Reading, Shrunk},
    store::{Kind, Settings},
};

/// Chunks of the runs that end early, or that are looked at beside others.
const SHORT_CHUNKS: u32 = 30_000;
/// Chunks of the run beside a reader, whose folder is copied meanwhile.
const SHARED_CHUNKS: u32 = 100_000;
/// Mean length in the run that counts chunks and not bytes.
const MANY_MEAN_BYTES: u32 = 256;
/// Of the payload, what the bounded run may keep.
const BOUND_SHARE: u64 = 3;

/// What is compared, and how much of it.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The stores.
    pub kinds: Vec<Kind>,
    /// The load.
    pub load: Load,
    /// Chunks of the run with small ones; 0 leaves it out.
    pub many: u32,
    /// How often the load is written and read.
    pub runs: u32,
    /// How often each store is killed.
    pub kills: u32,
    /// How stores are opened.
    pub settings: Settings,
}

/// A figure, or why there is none.
pub type Said<T> = Result<T, String>;

/// All that was measured of one store.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Which.
    pub kind: Kind,
    /// Written, opened warm, opened cold; once for each run.
    pub runs: Vec<Run>,
    /// After deleting half.
    pub shrunk: Said<Shrunk>,
    /// Written with a bound.
    pub bounded: Said<Filled>,
    /// Killed while writing.
    pub kills: Vec<Said<Kill>>,
    /// Beside another process.
    pub shared: Said<Shared>,
    /// With many small chunks.
    pub many: Option<Run>,
}

/// One store, written and read once.
#[derive(Debug, Serialize)]
pub struct Run {
    /// Written.
    pub filled: Said<Filled>,
    /// Opened again, the system's cache as it was.
    pub warm: Said<Reading>,
    /// Opened again, nothing cached; chains alone.
    pub cold: Said<Reading>,
}

/// What SIGKILL left.
#[derive(Debug, Serialize)]
pub struct Kill {
    /// Distinct chunks that the store had been given.
    pub received: u32,
    /// Those that it had synced.
    pub synced: u32,
    /// What is left.
    pub left: Left,
}

/// Another process, and a copy, while the owner writes.
#[derive(Debug, Serialize)]
pub struct Shared {
    /// The other process.
    pub beside: Said<Beside>,
    /// What the copy of the folder holds.
    pub copied: Said<Left>,
    /// Chunks that were synced before the copy began.
    pub copied_synced: u32,
}

/// Runs it all below `folder`, which must be there.
pub fn compare(plan: &Plan, folder: &Path) -> Result<(Filled, Vec<Measured>)> {
    let all = Bench::of(plan, &plan.load, folder, "all")?;
    let at_most = |chunks: u32, name: &str| {
        let load = Load {
            chunks: plan.load.chunks.min(chunks),
            ..plan.load.clone()
        };
        Bench::of(plan, &load, folder, name)
    };
    let short = at_most(SHORT_CHUNKS, "short")?;
    let beside = at_most(SHARED_CHUNKS, "beside")?;
    let nothing = all.fresh(Kind::None)?.run(&["fill"])?;

    let lengths = (0..plan.load.chunks).map(|chunk| plan.load.length(chunk) as u64);
    let payload_bytes = lengths.sum::<u64>();
    let mut measured = Vec::new();
    for &kind in &plan.kinds {
        measured.push(Measured {
            kind,
            runs: Vec::new(),
            shrunk: Err("not run".to_owned()),
            bounded: Err("not run".to_owned()),
            kills: Vec::new(),
            shared: Err("not run".to_owned()),
            many: None,
        });
    }
    for run in 0..plan.runs {
        for one in &mut measured {
            eprintln!("{}: run {}", one.kind.name(), run + 1);
            let place = all.fresh(one.kind)?;
            one.runs.push(write_and_read(&place)?);
            if run + 1 == plan.runs {
                one.shrunk = said(place.run(&["shrink", &bytes_max(payload_bytes / 2)]));
                eprintln!("{}", serde_json::to_string(&one.shrunk)?);
            }
            fs::remove_dir_all(&place.folder)?;
        }
    }
    let mut random = Random::of(plan.load.seed, 3);
    for one in &mut measured {
        if plan.kills == 0 {
            break;
        }
        eprintln!("{}: bounded, killed, shared", one.kind.name());
        let place = all.fresh(one.kind)?;
        let bound = bytes_max(payload_bytes / BOUND_SHARE);
        one.bounded = said(place.run(&["fill", &bound]));
        fs::remove_dir_all(&place.folder)?;
        for _ in 0..plan.kills {
            let place = short.fresh(one.kind)?;
            let at = short.load.chunks / 4 + random.below(short.load.chunks / 2);
            one.kills.push(said(kill(&place, at)));
            fs::remove_dir_all(&place.folder)?;
        }
        let place = beside.fresh(one.kind)?;
        one.shared = said(share(&place));
        fs::remove_dir_all(&place.folder)?;
    }
    if plan.many > 0 {
        let many = Load {
            chunks: plan.many,
            mean_bytes: MANY_MEAN_BYTES,
            ..plan.load.clone()
        };
        let many = Bench::of(plan, &many, folder, "many")?;
        for one in &mut measured {
            eprintln!("{}: {} small chunks", one.kind.name(), plan.many);
            let place = many.fresh(one.kind)?;
            one.many = Some(write_and_read(&place)?);
            fs::remove_dir_all(&place.folder)?;
        }
    }
    Ok((nothing, measured))
}

fn write_and_read(place: &Place) -> Result<Run> {
    let filled = said(place.run(&["fill"]));
    let warm = said(place.run(&["read"]));
    measure::forget_cached(&place.folder)?;
    let cold = said(place.run(&["read", "--chains-alone"]));
    let run = Run { filled, warm, cold };
    // A long comparison that is ended has said what it had measured.
    eprintln!("{}", serde_json::to_string(&run)?);
    Ok(run)
}

fn kill(place: &Place, at: u32) -> Result<Kill> {
    let mut owner = place.start(&["fill", "--tell"])?;
    let mut events = events(&mut owner)?;
    let (mut received, mut synced) = (0, 0);
    let mut killed = false;
    // What was said before the kill still stands in the pipe.
    while let Some(event) = events.next().transpose()? {
        match event {
            Event::Received(chunks) => received = chunks,
            Event::Synced(chunks) => synced = chunks,
            Event::Filled(_) => anyhow::bail!("it was done before it was killed"),
        }
        if received >= at && !killed {
            owner.kill()?;
            killed = true;
        }
    }
    owner.wait()?;
    let left = place.run(&["check", &format!("--synced={synced}")])?;
    Ok(Kill {
        received,
        synced,
        left,
    })
}

fn share(place: &Place) -> Result<Shared> {
    let mut owner = place.start(&["fill", "--tell"])?;
    let mut events = events(&mut owner)?;
    let mut reader: Option<Child> = None;
    let mut copy = None;
    let copied_to = place.folder.with_extension("copy");
    while let Some(event) = events.next().transpose()? {
        let Event::Synced(synced) = event else {
            continue;
        };
        if reader.is_none() {
            let synced = format!("--synced={synced}");
            reader = Some(place.start(&["beside", &synced])?);
        }
        if copy.is_none() && synced > place.load.chunks / 3 && synced < place.load.chunks {
            let (from, to) = (place.folder.clone(), copied_to.clone());
            let copying = std::thread::spawn(move || measure::copy(&from, &to));
            copy = Some((synced, copying));
        }
    }
    // The end of its input tells the reader to stop.
    let beside = said(answer(reader.context("the owner synced nothing")?));
    let finished = owner.wait()?;
    anyhow::ensure!(finished.success(), "the owner failed beside a reader");
    let (copied_synced, copying) = copy.context("the owner synced too seldom")?;
    let copied = copying
        .join()
        .map_err(|_| anyhow::anyhow!("the copy panicked"))?
        .and_then(|()| {
            let synced = format!("--synced={copied_synced}");
            place.at(&copied_to).run(&["check", &synced])
        });
    let copied = said(copied);
    fs::remove_dir_all(&copied_to)?;
    Ok(Shared {
        beside,
        copied,
        copied_synced,
    })
}

fn events(owner: &mut Child) -> Result<impl Iterator<Item = Result<Event>> + use<>> {
    let output = owner.stdout.take().context("its output is a pipe")?;
    Ok(BufReader::new(output).lines().map(|line| {
        // A line that the kill has cut is no event.
        Ok(serde_json::from_str(&line?)?)
    }))
}

fn bytes_max(bytes: u64) -> String {
    format!("--bytes-max={bytes}")
}

fn said<T>(result: Result<T>) -> Said<T> {
    result.map_err(|error| format!("{error:#}"))
}

/// A load and the digests of its chunks, which all processes share.
struct Bench {
    load: Load,
    folder: PathBuf,
    digests: PathBuf,
    settings: Settings,
}

impl Bench {
    fn of(plan: &Plan, load: &Load, folder: &Path, name: &str) -> Result<Self> {
        let digests = folder.join(format!("{name}.digests"));
        let mut file = BufWriter::new(File::create(&digests)?);
        let mut content = Vec::new();
        for chunk in 0..load.chunks {
            content.clear();
            load.append_content(chunk, &mut content);
            file.write_all(blake3::hash(&content).as_bytes())?;
        }
        file.flush()?;
        Ok(Self {
            load: load.clone(),
            folder: folder.to_owned(),
            digests,
            settings: plan.settings,
        })
    }

    fn fresh(&self, kind: Kind) -> Result<Place> {
        let folder = self.folder.join(kind.name());
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder)?;
        Ok(Place {
            kind,
            folder,
            digests: self.digests.clone(),
            settings: self.settings,
            load: self.load.clone(),
        })
    }
}
