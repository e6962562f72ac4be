//! The page: a table for each thing that a store must do, a column for each store.

use std::fmt::Write as _;

use crate::{
    compare::{Measured, Plan, Run, Said},
    fill::Filled,
    read::Reading,
};

const MB: f64 = 1e6;

/// The page in Markdown.
pub fn page(plan: &Plan, nothing: &Filled, measured: &[Measured]) -> String {
    let mut page = Page {
        text: String::new(),
        measured,
    };
    page.head(plan, nothing);
    page.writing(nothing);
    page.reading();
    page.deleting();
    page.killed();
    page.shared();
    if plan.many > 0 {
        page.many(plan, nothing);
    }
    page.text
}

struct Page<'a> {
    text: String,
    measured: &'a [Measured],
}

impl Page<'_> {
    fn head(&mut self, plan: &Plan, nothing: &Filled) {
        let load = &plan.load;
        let known = 1.0 - f64::from(load.chunks) / nothing.arrivals as f64;
        self.line(&format!(
            "# Chunk stores\n\n\
             Written by `cargo run --release --manifest-path lab/stores/Cargo.toml -- --chunks {} \
             --runs {} --many {} --write docs/results-stores.md`.\n{}.\n\n\
             {} chunks of {} bytes in the mean, {:.0} MB, seeded and incompressible; {:.0} % of {} \
             arrivals had been seen before.\nEach arrival goes into its flow's recipe and moves the \
             chunk's place. Synced after every 64 MiB of new\nchunks or second of work. {} MiB of cache \
             for each library. Each step is a process of its own; {}.\n\
             MB = 10^6 bytes, and of new chunks where something is written.",
            load.chunks,
            plan.runs,
            plan.many,
            machine(),
            load.chunks,
            load.mean_bytes,
            nothing.new_bytes as f64 / MB,
            known * 100.0,
            nothing.arrivals,
            plan.settings.cache_mib,
            match plan.runs {
                1 => "one run".to_owned(),
                runs => format!("medians of {runs} runs in turns"),
            },
        ));
    }

    fn writing(&mut self, nothing: &Filled) {
        self.table("Writing");
        let filled = |get: fn(&Filled) -> f64| {
            move |one: &Measured| median(one.runs.iter().map(|run| &run.filled), get)
        };
        self.row("MB/s", filled(|f| f.new_bytes as f64 / MB / f.seconds), 0);
        self.row("arrivals/s", filled(|f| f.arrivals as f64 / f.seconds), 0);
        self.row(
            "processor seconds a GB",
            filled(|f| f.processor_seconds / f.new_bytes as f64 * 1e9),
            1,
        );
        self.row("longest call, ms", filled(|f| f.longest_ms), 0);
        self.row(
            "bytes written to disk a byte",
            filled(|f| f.written_bytes as f64 / f.new_bytes as f64),
            2,
        );
        self.row(
            "disk a byte",
            filled(|f| f.disk_bytes as f64 / f.new_bytes as f64),
            2,
        );
        let base = nothing.memory_bytes_peak as f64;
        let memory = filled(|f| f.memory_bytes_peak as f64);
        self.row("memory at its highest, MB", less(memory, base, MB), 0);
    }

    fn reading(&mut self) {
        self.table("Opened again");
        let warm = |get: fn(&Reading) -> f64| {
            move |one: &Measured| median(one.runs.iter().map(|run| &run.warm), get)
        };
        let cold = |get: fn(&Reading) -> f64| {
            move |one: &Measured| median(one.runs.iter().map(|run| &run.cold), get)
        };
        self.row("open, ms", warm(|r| r.open_ms), 0);
        self.row("of it processor", warm(|r| r.open_processor_ms), 0);
        self.row(
            "look-ups of known chunks/s",
            warm(|r| r.finds_per_second),
            0,
        );
        self.row("of unknown chunks/s", warm(|r| r.misses_per_second), 0);
        self.row("chains of 64, MB/s", warm(|r| r.chain_mb_per_second), 0);
        self.row("open, nothing cached, ms", cold(|r| r.open_ms), 0);
        self.row(
            "chains, nothing cached, MB/s",
            cold(|r| r.chain_mb_per_second),
            0,
        );
        let memory = warm(|r| r.memory_bytes_peak as f64 / MB);
        self.row("memory at its highest, MB", memory, 0);
    }

    fn deleting(&mut self) {
        self.table("Deleting the oldest");
        self.row_of("half deleted: disk a byte left", |one| {
            figure(&one.shrunk, 2, |shrunk| {
                shrunk.disk_bytes as f64 / shrunk.payload_bytes as f64
            })
        });
        self.row_of("after its own compaction", |one| {
            figure(&one.shrunk, 2, |shrunk| {
                shrunk.disk_bytes_compacted as f64 / shrunk.payload_bytes as f64
            })
        });
        self.row_of("which took, s", |one| {
            figure(&one.shrunk, 1, |shrunk| shrunk.compact_seconds)
        });
        self.row_of("bound of a third while writing: chunks kept, MB", |one| {
            figure(&one.bounded, 0, |filled| filled.payload_bytes as f64 / MB)
        });
        self.row_of("disk at its highest, MB", |one| {
            figure(&one.bounded, 0, |filled| filled.disk_bytes_peak as f64 / MB)
        });
        self.row_of("MB/s", |one| {
            figure(&one.bounded, 0, |filled| {
                filled.new_bytes as f64 / MB / filled.seconds
            })
        });
        self.row_of("bytes written to disk a byte", |one| {
            figure(&one.bounded, 2, |filled| {
                filled.written_bytes as f64 / filled.new_bytes as f64
            })
        });
    }

    fn killed(&mut self) {
        self.line(
            "\n## Killed while writing\n\n\
             SIGKILL; what the system had taken it still writes, so this is not a power cut.\n\n\
             | store | chunks given | synced | whole | of the synced, lost | flows damaged | open, ms |\n\
             |---|--:|--:|--:|--:|--:|--:|",
        );
        for one in self.measured {
            for kill in &one.kills {
                let name = one.kind.name();
                let line = match kill {
                    Ok(kill) => format!(
                        "| {name} | {} | {} | {} | {} | {} | {:.0} |",
                        kill.received,
                        kill.synced,
                        kill.left.whole,
                        kill.left.lost,
                        kill.left.damaged,
                        kill.left.open_ms
                    ),
                    Err(error) => format!("| {name} | {error} | | | | | |"),
                };
                self.line(&line);
            }
        }
    }

    fn shared(&mut self) {
        self.line("\n## Another process, while the owner writes\n");
        for one in self.measured {
            let beside = match &one.shared {
                Err(error) => format!("not measured: {error}"),
                Ok(shared) => {
                    let beside = match &shared.beside {
                        Err(error) => format!("a reader cannot open it: `{error}`"),
                        Ok(beside) => format!(
                            "a reader made {} look-ups in {:.1} s and read {:.0} MB of chains; it found \
                             {} times a chunk that came after it had opened the store; {} reads failed{}",
                            beside.finds,
                            beside.seconds,
                            beside.chain_bytes as f64 / MB,
                            beside.found_later,
                            beside.failed,
                            after(&beside.error),
                        ),
                    };
                    let copied = match &shared.copied {
                        Err(error) => format!("a copy made meanwhile does not open: `{error}`"),
                        Ok(left) => format!(
                            "a copy made meanwhile opens; of {} chunks synced before it began, {} \
                             are lost; {} flows damaged{}",
                            shared.copied_synced,
                            left.lost,
                            left.damaged,
                            after(&left.error),
                        ),
                    };
                    format!("{beside}; {copied}")
                }
            };
            self.line(&format!("- {}: {beside}.", one.kind.name()));
        }
    }

    fn many(&mut self, plan: &Plan, nothing: &Filled) {
        self.table(&format!("{} chunks of 256 bytes", plan.many));
        let chunks = f64::from(plan.many);
        let of = |one: &Measured, get: &dyn Fn(&Run) -> Said<f64>| match &one.many {
            Some(run) => get(run),
            None => Err("not run".to_owned()),
        };
        let filled = |run: &Run, get: fn(&Filled) -> f64| match &run.filled {
            Ok(filled) => Ok(get(filled)),
            Err(error) => Err(error.clone()),
        };
        let warm = |run: &Run, get: fn(&Reading) -> f64| match &run.warm {
            Ok(reading) => Ok(get(reading)),
            Err(error) => Err(error.clone()),
        };
        self.row(
            "arrivals/s",
            |one| of(one, &|run| filled(run, |f| f.arrivals as f64 / f.seconds)),
            0,
        );
        self.row(
            "open, ms",
            |one| of(one, &|run| warm(run, |r| r.open_ms)),
            0,
        );
        self.row(
            "of it processor",
            |one| of(one, &|run| warm(run, |r| r.open_processor_ms)),
            0,
        );
        self.row(
            "open, nothing cached, ms",
            |one| {
                of(one, &|run| {
                    run.cold.as_ref().map(|r| r.open_ms).map_err(Clone::clone)
                })
            },
            0,
        );
        self.row(
            "memory a chunk, just opened, bytes",
            |one| {
                of(one, &|run| {
                    Ok(warm(run, |r| r.memory_bytes_open as f64)? / chunks)
                })
            },
            0,
        );
        self.row(
            "after 400,000 look-ups and chains",
            |one| {
                of(one, &|run| {
                    Ok(warm(run, |r| r.memory_bytes_peak as f64)? / chunks)
                })
            },
            0,
        );
        let base = nothing.memory_bytes_peak as f64;
        self.row(
            "while writing, at its highest",
            |one| {
                of(one, &|run| {
                    // The digests of the load itself lie in memory as well.
                    let peak = filled(run, |f| f.memory_bytes_peak as f64)?;
                    Ok((peak - base) / chunks - 32.0)
                })
            },
            0,
        );
        self.row(
            "look-ups of known chunks/s",
            |one| of(one, &|run| warm(run, |r| r.finds_per_second)),
            0,
        );
        self.row(
            "disk a chunk beyond its bytes",
            |one| {
                of(one, &|run| {
                    Ok(filled(run, |f| (f.disk_bytes - f.new_bytes) as f64)? / chunks)
                })
            },
            0,
        );
    }

    fn table(&mut self, title: &str) {
        let names: Vec<_> = self.measured.iter().map(|one| one.kind.name()).collect();
        self.line(&format!(
            "\n## {title}\n\n| | {} |\n|---|{}",
            names.join(" | "),
            "--:|".repeat(names.len())
        ));
    }

    fn row(&mut self, name: &str, get: impl Fn(&Measured) -> Said<f64>, digits: usize) {
        self.row_of(name, |one| match get(one) {
            Ok(figure) => format!("{figure:.digits$}"),
            Err(error) => error,
        });
    }

    fn row_of(&mut self, name: &str, cell: impl Fn(&Measured) -> String) {
        let cells: Vec<_> = self.measured.iter().map(cell).collect();
        self.line(&format!("| {name} | {} |", cells.join(" | ")));
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("a string takes all");
    }
}

fn figure<T>(said: &Said<T>, digits: usize, get: impl Fn(&T) -> f64) -> String {
    match said {
        Ok(figures) => format!("{:.digits$}", get(figures)),
        Err(error) => error.clone(),
    }
}

fn less(
    get: impl Fn(&Measured) -> Said<f64>,
    base: f64,
    unit: f64,
) -> impl Fn(&Measured) -> Said<f64> {
    move |one| Ok((get(one)? - base) / unit)
}

fn after(error: &Option<String>) -> String {
    match error {
        Some(error) => format!(" (`{error}`)"),
        None => String::new(),
    }
}

/// The median of what went well; the first error where nothing did.
fn median<'a, T: 'a>(
    runs: impl Iterator<Item = &'a Said<T>>,
    get: impl Fn(&T) -> f64,
) -> Said<f64> {
    let mut figures = Vec::new();
    let mut failed = "not run".to_owned();
    for run in runs {
        match run {
            Ok(run) => figures.push(get(run)),
            Err(error) => failed.clone_from(error),
        }
    }
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().ok_or(failed)
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown processor".to_owned());
    format!("{model}, {cores} cores (virtual)")
}
