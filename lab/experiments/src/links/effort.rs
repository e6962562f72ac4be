//! How well `--effort auto` chooses: beside `max`, and beside all fixed efforts where the processor may limit.

use std::{fmt::Write, iter, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Setup,
    client::{Client, Path, Transfer},
    origin::{Content, Request},
    table::seconds,
};
use crate::{
    chapters::{Figures, Plot},
    corpus,
    median::median,
    over_link::OverLink,
    seeded::Seeded,
    targets::{Measured, Target},
};

const THIN_MBIT: [u32; 3] = [1, 5, 20];
/// Where the processor may limit, and fixed efforts are measured.
const FAST_MBIT: [u32; 2] = [100, 1000];
const DELAYS_MS: [u64; 3] = [0, 25, 100];
const FIXED: [&str; 6] = ["0", "1", "2", "3", "4", "5"];

/// How long a transfer is to take on the effort that `auto` begins with, and its bytes at most.
const SECONDS: f64 = 2.5;
const BYTES_MAX: usize = 300_000_000;

/// Of `max`, or of the fastest fixed effort where the processor limits.
const MEDIAN_MAX: f64 = 1.02;
const EACH_MAX: f64 = 1.05;
/// Where processor and link are within a factor of 1.5.
const BALANCED: f64 = 1.5;
const BALANCED_MAX: f64 = 1.15;
/// At first contact the bounds hold from this rate on.
const FIRST_FROM_MBIT: u32 = 10;

/// The link limits if `max` is as fast as the fastest effort, but for this.
const AS_FAST: f64 = 1.02;

/// The content that no effort can compress.
const NOISE: &str = "noise";

const RELEASES: usize = 12;
const REVISIONS: usize = 400;

/// On thin links, or on fast ones.
#[derive(Serialize, Deserialize)]
pub(super) struct Efforts<const FAST: bool> {
    cases: Vec<Case>,
}

impl<const FAST: bool> Efforts<FAST> {
    fn fewest_runs(&self) -> usize {
        let ways = self
            .cases
            .iter()
            .flat_map(|case| case.auto.iter().chain(&case.fixed));
        ways.map(|way| way.runs.len()).min().unwrap_or_default()
    }
}

#[derive(Serialize, Deserialize)]
struct Case {
    content: String,
    bytes: u64,
    path: Path,
    /// `auto` of each build.
    auto: Vec<Way>,
    /// `max` and fixed efforts.
    fixed: Vec<Way>,
    /// Why there are fewer runs, if there are.
    trouble: Option<String>,
}

/// An effort, by its name or that of its build.
#[derive(Serialize, Deserialize)]
struct Way {
    name: String,
    /// Through a new pair, and again after the near end was started anew: run by run.
    runs: Vec<[Transfer; 2]>,
}

/// A kind of content, and what the model of the law of effort takes of it on the effort that `auto` begins with. But the
/// pages that can be had repeat ten times as much as the model's, and their transfers would be too short with its ratio.
struct Kind {
    name: &'static str,
    bytes: Vec<u8>,
    /// Link bytes of plain ones, and seconds a plain byte.
    ratio: f64,
    cost: f64,
}

impl<const FAST: bool> Figures<Setup> for Efforts<FAST> {
    const NAME: &'static str = if FAST { "effort-fast" } else { "effort-thin" };
    const TITLE: &'static str = if FAST {
        "Effort on fast links"
    } else {
        "Effort on slow links"
    };

    fn measure(setup: &Setup) -> anyhow::Result<Self> {
        let rates = if FAST { &FAST_MBIT[..] } else { &THIN_MBIT[..] };
        let mut cases = Vec::new();
        for kind in kinds(setup)? {
            for &mbit in rates {
                for delay_ms in DELAYS_MS {
                    let path = Path { mbit, delay_ms };
                    cases.push(case(setup, &kind, path, FAST));
                }
            }
        }
        Ok(Self { cases })
    }

    fn targets(&self) -> Vec<Target> {
        let ratios: Vec<Ratios> = self.cases.iter().filter_map(Ratios::of).collect();
        let of_link = |which| median_of_link(&ratios, which);
        let above = ratios.iter().filter(|ratios| !ratios.is_met()).count();
        vec![
            Target {
                what: if FAST {
                    "effort on fast links, once the peer is known, where the link limits: median over `max`, bytes and seconds"
                } else {
                    "effort on slow links, once the peer is known: median over `max`, bytes and seconds"
                },
                asked: "1.02 at most",
                measured: of_link(|ratio| ratio.bytes)
                    .zip(of_link(|ratio| ratio.seconds))
                    .map(|(bytes, seconds)| Measured {
                        text: format!("{bytes:.3}, {seconds:.3}"),
                        is_met: bytes <= MEDIAN_MAX && seconds <= MEDIAN_MAX,
                    }),
            },
            Target {
                what: if FAST {
                    "effort on fast links: cases above 1.05, or 1.15 near the balance"
                } else {
                    "effort on slow links: cases above 1.05, or 1.15 near the balance"
                },
                asked: "none",
                measured: Some(Measured {
                    text: format!("{above} of {}", ratios.len()),
                    is_met: above == 0,
                }),
            },
        ]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "A transfer of about {SECONDS} s goes through a new pair (*first*). Then the near end is started again:\n\
             its caches are empty, and the far end knows its peer. The same object is fetched (*again*). This is\n\
             measured with `auto`, and with {}. The order changes with each run, and a pair that is not measured\n\
             goes first. The fastest fixed effort is that of both transfers together. If `max` is as fast (within\n\
             2 %), the link limits: bytes and seconds are over those of `max`. Otherwise the processor limits:\n\
             seconds are over the fastest effort. *Balance*: the far end's CPU time with that effort, over the\n\
             time that the link bytes take at the link's rate. The model of the effort covers rates from 1 Mbit/s\n\
             to unlimited, and round trips from 0 to 400 ms: [decision 40](decisions/0040-effort.md) has its cases\n\
             in virtual time. {}",
            if FAST {
                "`max` and each fixed effort"
            } else {
                "`max`"
            },
            match self.fewest_runs() {
                1 => "Some figures are of a single run.".to_owned(),
                fewest => format!("Figures are medians of {fewest} runs or more."),
            }
        )?;
        if FAST {
            writeln!(
                page,
                "\nAll programs, the link and the origin share two cores here. So the seconds of one effort differ\n\
                 by up to 20 %. The fastest of seven efforts is therefore faster by chance than it would be in\n\
                 further runs. After the near end's restart, the far end has new memory for its cache. The system\n\
                 clears this memory at 0.5 GB/s on this virtual machine."
            )?;
        }
        writeln!(
            page,
            "\n| content | MB | Mbit/s | round trip, ms | limited by | balance | best, s | first: bytes | seconds | \
             again: bytes | seconds | zstd level |\n\
             |---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|"
        )?;
        for case in &self.cases {
            row(page, case)?;
        }
        worse(page, &self.cases)?;
        before(page, &self.cases)?;
        writeln!(
            page,
            "\n*Text*: dickens, reymont, xml and samba of Silesia, then mail. *Tars*: Linux 2.0.1 and its\n\
             successors. *Pages*: {REVISIONS} revisions of each of two pages. All are in one stream, of the\n\
             length that the link takes. *Noise* is seeded."
        )?;
        writeln!(
            page,
            "\n![Time of auto over that of the best effort](plots/{})",
            Self::PLOT
        )?;
        Ok(())
    }

    fn plots(&self) -> anyhow::Result<Vec<Plot>> {
        let mut places = Vec::new();
        let mut series: Vec<(String, Vec<f64>)> = Vec::new();
        for case in &self.cases {
            let place = format!("{}, {} ms", case.path.mbit, 2 * case.path.delay_ms);
            if !places.contains(&place) {
                places.push(place);
            }
            let seconds = Ratios::of(case).map_or(f64::NAN, |ratios| ratios.again.seconds);
            match series.last_mut() {
                Some((content, figures)) if *content == case.content => figures.push(seconds),
                _ => series.push((case.content.clone(), vec![seconds])),
            }
        }
        let words = refrain_plot::Words {
            title: if FAST {
                "Time of a transfer with --effort auto on fast links, once the peer is known"
            } else {
                "Time of a transfer with --effort auto on slow links, once the peer is known"
            },
            across: "link: Mbit/s, round trip",
            up: "times that of the best effort",
        };
        Ok(vec![Plot {
            name: Self::PLOT,
            svg: refrain_plot::lines(&words, &places, &series)?,
        }])
    }
}

impl<const FAST: bool> Efforts<FAST> {
    const PLOT: &'static str = if FAST {
        "links-effort-fast.svg"
    } else {
        "links-effort-thin.svg"
    };
}

fn kinds(setup: &Setup) -> anyhow::Result<[Kind; 4]> {
    let mut text = Vec::new();
    for name in ["dickens", "reymont", "xml", "samba"] {
        text.extend(corpus::unpacked(
            &setup.data.join(format!("silesia/{name}.zst")),
        )?);
    }
    text.extend(corpus::unpacked(
        &setup.data.join("mail/spamassassin-ham.mbox.zst"),
    )?);
    let mut pages = Vec::new();
    for name in ["github-tos", "brevo-privacy"] {
        let archive = setup.data.join(format!("pages/{name}.tar.zst"));
        pages.extend(corpus::members(&archive, REVISIONS)?.concat());
    }
    let mut noise = Vec::new();
    Seeded::noise(9, BYTES_MAX as u64).write_to(&mut noise)?;
    let tars = corpus::linux_releases(&setup.data, RELEASES)?
        .objects
        .concat();
    let kind = |name, bytes, ratio, cost| Kind {
        name,
        bytes,
        ratio,
        cost,
    };
    Ok([
        kind("tars", tars, 0.093, 1.3e-9),
        kind("text", text, 0.177, 2.5e-9),
        kind("pages", pages, 0.0019, 0.5e-9),
        kind(NOISE, noise, 1.0, 0.5e-9),
    ])
}

fn case(setup: &Setup, kind: &Kind, path: Path, is_fast: bool) -> Case {
    let most = (SECONDS * 125e3 * f64::from(path.mbit) / kind.ratio).min(SECONDS / kind.cost);
    let bytes = (most as usize).min(kind.bytes.len()).min(BYTES_MAX);
    let content = Arc::new(Content::of(vec![kind.bytes[..bytes].to_vec()]));
    let fixed = match is_fast && kind.name != NOISE {
        true => &FIXED[..],
        false => &[],
    };
    let mut case = Case {
        content: kind.name.to_owned(),
        bytes: bytes as u64,
        path,
        auto: setup
            .builds
            .iter()
            .map(|build| Way::of(build.name))
            .collect(),
        fixed: fixed
            .iter()
            .chain(&["max"])
            .map(|name| Way::of(name))
            .collect(),
        trouble: None,
    };
    let mut client = Client::default();
    for run in 0..setup.runs {
        if let Err(error) = turn(setup, &content, run, &mut case, &mut client) {
            eprintln!("{}, {path:?}: {error:#}", kind.name);
            case.trouble = Some(format!("{error:#}"));
        }
    }
    case
}

impl Way {
    fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            runs: Vec::new(),
        }
    }

    /// The median of a figure of the first transfers, or of the second ones.
    fn median(&self, which: usize, figure: fn(&Transfer) -> f64) -> f64 {
        median(self.runs.iter().map(|run| figure(&run[which])))
    }

    fn median_s(&self, which: usize) -> f64 {
        self.median(which, |transfer| transfer.fetched.seconds)
    }

    fn median_bytes(&self, which: usize) -> f64 {
        self.median(which, |transfer| transfer.link_bytes as f64)
    }
}

/// All efforts once, on one link.
fn turn(
    setup: &Setup,
    content: &Arc<Content>,
    run: usize,
    case: &mut Case,
    client: &mut Client,
) -> anyhow::Result<()> {
    let over = OverLink::start(&case.path.config(), content.served())?;
    let expected = &content.objects[0];
    let autos = case.auto.len();
    let ways = autos + case.fixed.len();
    let mut transfers = Vec::new();
    // Memory that an earlier pair has just left costs less. So the order changes, and the pair that comes first goes
    // through once more, unmeasured, before it.
    for (turn, way) in iter::once(0).chain(0..ways).enumerate() {
        let way = (way + run * ways / setup.runs) % ways;
        let mut pair = match way.checked_sub(autos) {
            None => over.pair(&setup.builds[way].refrain, &[], &[])?,
            Some(fixed) => {
                let options = ["--effort", &case.fixed[fixed].name];
                over.pair(&setup.builds[0].refrain, &options, &options)?
            }
        };
        let first = client.through(&over, &pair, Request::Object(0), expected)?;
        pair.restart_near()?;
        let again = client.through(&over, &pair, Request::Object(0), expected)?;
        if turn > 0 {
            transfers.push((way, [first, again]));
        }
    }
    for (way, run) in transfers {
        let of = match way.checked_sub(autos) {
            None => &mut case.auto[way],
            Some(fixed) => &mut case.fixed[fixed],
        };
        for transfer in &run {
            eprintln!(
                "{}, {} Mbit/s, {} ms, {}: {:.3} s, {} bytes, zstd {}, CPU {:.2} + {:.2} s",
                case.content,
                case.path.mbit,
                case.path.delay_ms,
                of.name,
                transfer.fetched.seconds,
                transfer.link_bytes,
                transfer.zstd_level,
                transfer.far_cpu_s,
                transfer.near_cpu_s,
            );
        }
        of.runs.push(run);
    }
    Ok(())
}

/// `auto` over the best fixed effort, of first transfers or of second ones.
struct Ratio {
    is_link_limited: bool,
    best_s: f64,
    /// Seconds of the processor over those of the link.
    balance: f64,
    bytes: f64,
    seconds: f64,
}

/// A case's ratios.
struct Ratios {
    mbit: u32,
    first: Ratio,
    again: Ratio,
}

impl Ratios {
    /// `None` if nothing was measured.
    fn of(case: &Case) -> Option<Self> {
        Self::of_build(case, 0)
    }

    fn of_build(case: &Case, build: usize) -> Option<Self> {
        Some(Self {
            mbit: case.path.mbit,
            first: Ratio::of(case, build, 0)?,
            again: Ratio::of(case, build, 1)?,
        })
    }

    fn is_met(&self) -> bool {
        self.again.is_met() && (self.mbit < FIRST_FROM_MBIT || self.first.is_met())
    }
}

impl Ratio {
    fn of(case: &Case, build: usize, which: usize) -> Option<Self> {
        let max = case.fixed.last().filter(|max| !max.runs.is_empty())?;
        // Of both transfers, so that chance decides less.
        let seconds = |way: &&Way| way.median_s(0) + way.median_s(1);
        let fastest = case
            .fixed
            .iter()
            .min_by(|one, other| seconds(one).total_cmp(&seconds(other)))?;
        let is_link_limited = seconds(&max) <= AS_FAST * seconds(&fastest);
        let best = if is_link_limited { max } else { fastest };
        let best_bytes = best.median_bytes(which);
        let auto = &case.auto[build];
        Some(Self {
            is_link_limited,
            best_s: best.median_s(which),
            balance: best.median(which, |transfer| transfer.far_cpu_s)
                / case.path.seconds_for(best_bytes.round() as u64),
            bytes: auto.median_bytes(which) / best_bytes,
            seconds: auto.median_s(which) / best.median_s(which),
        })
    }

    fn bound(&self) -> f64 {
        match self.balance.max(1.0 / self.balance) < BALANCED {
            true => BALANCED_MAX,
            false => EACH_MAX,
        }
    }

    fn is_met(&self) -> bool {
        let bound = self.bound();
        self.seconds <= bound && (!self.is_link_limited || self.bytes <= bound)
    }
}

/// Of `auto` once the peer is known, over the cases in which the link limits, if there are any.
fn median_of_link(ratios: &[Ratios], which: fn(&Ratio) -> f64) -> Option<f64> {
    let again = ratios.iter().map(|ratios| &ratios.again);
    let figures: Vec<f64> = again
        .filter(|ratio| ratio.is_link_limited)
        .map(which)
        .collect();
    (!figures.is_empty()).then(|| median(figures))
}

fn row(page: &mut String, case: &Case) -> anyhow::Result<()> {
    let Path { mbit, delay_ms } = case.path;
    let megabytes = case.bytes as f64 / 1e6;
    write!(
        page,
        "| {} | {megabytes:.1} | {mbit} | {} | ",
        case.content,
        2 * delay_ms
    )?;
    let Some(ratios) = Ratios::of(case) else {
        let trouble = case.trouble.as_deref().unwrap_or_default();
        writeln!(page, "not measured: {trouble} |")?;
        return Ok(());
    };
    let level = case.auto[0]
        .median(1, |transfer| transfer.zstd_level.into())
        .round();
    writeln!(
        page,
        "{} | {:.2} | {} | {:.3} | {:.3} | {:.3} | {:.3} | {level} |",
        if ratios.again.is_link_limited {
            "link"
        } else {
            "processor"
        },
        ratios.again.balance,
        seconds(ratios.again.best_s),
        ratios.first.bytes,
        ratios.first.seconds,
        ratios.again.bytes,
        ratios.again.seconds,
    )?;
    Ok(())
}

/// How `auto` does where the link limits, and the cases in which it is worse than the best effort.
fn worse(page: &mut String, cases: &[Case]) -> anyhow::Result<()> {
    let known = cases
        .iter()
        .filter_map(|case| Some((case, Ratios::of(case)?)));
    let (cases, ratios): (Vec<&Case>, Vec<Ratios>) = known.unzip();
    let bytes = median_of_link(&ratios, |ratio| ratio.bytes);
    let seconds = median_of_link(&ratios, |ratio| ratio.seconds);
    if let Some((bytes, seconds)) = bytes.zip(seconds) {
        let limited = cases.iter().zip(&ratios);
        let limited = limited.filter(|(_, ratios)| ratios.again.is_link_limited);
        let noise = limited.clone().filter(|(case, _)| case.content == NOISE);
        writeln!(
            page,
            "\nMedians of transfers *again* where the link limits: `auto` has {bytes:.3} times the bytes of `max`, and\n\
             {seconds:.3} times its seconds. {} of these {} rows are noise, which no effort can\n\
             compress.",
            noise.count(),
            limited.count()
        )?;
    }
    let worse = cases.iter().zip(&ratios);
    let worse = worse.filter(|(_, ratios)| !ratios.is_met());
    let names = worse.map(|(case, _)| {
        let Path { mbit, delay_ms } = case.path;
        format!("- {}, {mbit} Mbit/s, {} ms", case.content, 2 * delay_ms)
    });
    let names: Vec<String> = names.collect();
    writeln!(
        page,
        "\nIn {} of {} rows `auto` is worse than the best effort by more than 5 %. Where the balance is from {:.2}\n\
         to {BALANCED}, this limit is 15 %. Seconds count, and bytes where the link limits. First transfers count\n\
         from {FIRST_FROM_MBIT} Mbit/s on.",
        names.len(),
        ratios.len(),
        1.0 / BALANCED
    )?;
    if !names.is_empty() {
        writeln!(page, "\n{}", names.join("\n"))?;
    }
    Ok(())
}

/// The medians of an older build, if there is one.
fn before(page: &mut String, cases: &[Case]) -> anyhow::Result<()> {
    let Some(case) = cases.iter().find(|case| case.auto.len() > 1) else {
        return Ok(());
    };
    let name = &case.auto[1].name;
    let ratios: Vec<_> = cases
        .iter()
        .filter_map(|case| Ratios::of_build(case, 1))
        .collect();
    let of_link = |which| median_of_link(&ratios, which).unwrap_or(f64::NAN);
    writeln!(
        page,
        "\nThe build *{name}*, second transfers: median over `max` where the link limits: bytes {:.3}, seconds\n\
         {:.3}. It is worse by more than these limits in {} of {} rows.",
        of_link(|ratio| ratio.bytes),
        of_link(|ratio| ratio.seconds),
        ratios.iter().filter(|ratios| !ratios.is_met()).count(),
        ratios.len()
    )?;
    Ok(())
}
