//! Tables of SAMPLEBYTE by training: the traffic's own, that of other traffic, and the best that adaptation could find.

use std::{fmt::Write, process::Command};

use anyhow::{Context, ensure};

use refrain_analysis::train::{Content, Redundancy, Trials};
use refrain_codec::{
    marker::{
        MarkerAlgorithm::{MaxpBytes, SampleByte},
        SampleByteTable,
    },
    simd::Backend,
};

use serde::{Deserialize, Serialize};

use super::{Setup, is_set_aside, name};
use crate::{
    chapters::Figures,
    corpus::{self, Corpus},
    default_marker::{
        FIRST_RUNG,
        engine::{Sending, compare},
    },
    median::median,
};

#[derive(Serialize, Deserialize)]
pub(super) struct Training {
    captures: OfCaptures,
    sets: Vec<OfSet>,
}

/// `refrain train --json`, with the captures that are set aside as a test.
#[derive(Serialize, Deserialize)]
struct OfCaptures {
    training_bytes: u64,
    table: Vec<u8>,
    #[serde(flatten)]
    saved: Saved,
    test: Tested,
}

#[derive(Serialize, Deserialize)]
struct Tested {
    bytes: u64,
    #[serde(flatten)]
    saved: Saved,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    saved_bytes: u64,
    default_saved_bytes: u64,
    maxp_saved_bytes: u64,
}

/// Bytes over those with the default table.
#[derive(Serialize, Deserialize)]
struct OfSet {
    name: String,
    /// With the table of its first half, of the other sets, of itself, and with `maxp-bytes`.
    ratios: [f64; 4],
}

/// A data set: a part to train with, and a part to test with.
struct Halves {
    name: &'static str,
    training: Vec<Vec<u8>>,
    test: Corpus,
}

impl Halves {
    fn of(corpus: &Corpus) -> Self {
        let (training, test) = match &corpus.objects[..] {
            [one] => {
                let (training, test) = one.split_at(one.len() / 2);
                (vec![training.to_vec()], vec![test.to_vec()])
            }
            objects => {
                let (training, test) = objects.split_at(objects.len() / 2);
                (training.to_vec(), test.to_vec())
            }
        };
        Self {
            name: corpus.name,
            training,
            test: Corpus {
                name: corpus.name,
                objects: test,
            },
        }
    }
}

/// The table that training with these objects gives; none if nothing repeats.
fn train<'a>(objects: impl Iterator<Item = &'a Vec<u8>> + Clone) -> Option<SampleByteTable> {
    let mut redundancy = Redundancy::default();
    objects
        .clone()
        .for_each(|object| redundancy.content(object));
    let mut trials = Trials::new(&redundancy.values());
    objects.for_each(|object| trials.content(object));
    SampleByteTable::from_bytes(&trials.finish().table()).ok()
}

impl Figures<Setup<'_>> for Training {
    const NAME: &'static str = "training";
    const TITLE: &'static str = "Tables by training";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let mut command = Command::new(setup.refrain);
        command.args(["train", "--json"]);
        for capture in &setup.captures {
            if is_set_aside(&name(capture)) {
                command.arg("--test");
            }
            command.arg(capture);
        }
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "`refrain train` failed: {output:?}"
        );
        let captures = serde_json::from_slice(&output.stdout).context("`refrain train --json`")?;
        let halves = corpus::load_kinds(setup.data)?;
        let halves: Vec<Halves> = halves.iter().map(Halves::of).collect();
        let mut sets = Vec::new();
        for (index, half) in halves.iter().enumerate() {
            eprintln!("{}", half.name);
            let others = halves.iter().enumerate().filter(|(nth, _)| *nth != index);
            let others = others.flat_map(|(_, other)| &other.training);
            let tables = [
                train(half.training.iter()),
                train(others),
                train(half.test.objects.iter()),
            ];
            let sending = |algorithm, table| Sending {
                algorithm,
                period: 32,
                backend: Backend::best(),
                rung: FIRST_RUNG,
                table,
            };
            let [own, others, itself] = tables.each_ref().map(Option::as_ref);
            let ways = [own, others, itself].map(|table| sending(SampleByte, table));
            let mut ratios = [1.0; 4];
            for (ratio, way) in ratios
                .iter_mut()
                .zip(ways.into_iter().chain([sending(MaxpBytes, None)]))
            {
                *ratio = compare(&half.test, [way, sending(SampleByte, None)], 1)?.bytes;
            }
            sets.push(OfSet {
                name: half.name.to_owned(),
                ratios,
            });
        }
        Ok(Self { captures, sets })
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        let captures = &self.captures;
        let values: Vec<String> = captures.table.iter().map(u8::to_string).collect();
        write!(
            page,
            "`refrain train` chooses the table of SAMPLEBYTE as EndRE did (section 5.1.4). Trained with the captures\n\
             that were not set aside, the table has the values {}. Bytes saved without zstd, with a cache of\n\
             10 MB:\n\n\
             | captures | MB | trained table % | default table % | MAXP % |\n\
             |---|--:|--:|--:|--:|\n",
            values.join(", ")
        )?;
        for (name, bytes, saved) in [
            ("training", captures.training_bytes, &captures.saved),
            ("set aside", captures.test.bytes, &captures.test.saved),
        ] {
            let share = |saved: u64| 100.0 * saved as f64 / bytes as f64;
            writeln!(
                page,
                "| {name} | {:.1} | {:.1} | {:.1} | {:.1} |",
                bytes as f64 / 1e6,
                share(saved.saved_bytes),
                share(saved.default_saved_bytes),
                share(saved.maxp_saved_bytes)
            )?;
        }
        write!(
            page,
            "\nThe bytes that both ends' engines send with such a table, over those with the default one. Half of each\n\
             data set is for training, and the other half is sent. Caches of 128 MiB are empty before, with zstd 3 and\n\
             p = 32.\n\
             *Itself*: trained with the data that is sent, which is more than a table that adapts to passing data can\n\
             know. Below 1, the trained table is better. [The data sets](results-marker.md) are those of the default\n\
             marker.\n\n\
             | data set | its first half | all other sets | itself | `maxp-bytes` |\n\
             |---|--:|--:|--:|--:|\n"
        )?;
        for set in &self.sets {
            write_row(page, &set.name, set.ratios)?;
        }
        let column = |nth: usize| self.sets.iter().map(move |set| set.ratios[nth]);
        let each = [0, 1, 2, 3].map(|nth| median(column(nth).collect::<Vec<f64>>()));
        write_row(page, "**median**", each)?;
        let each = [0, 1, 2, 3].map(|nth| column(nth).fold(0.0, f64::max));
        write_row(page, "**worst**", each)?;
        Ok(())
    }
}

fn write_row(page: &mut String, name: &str, ratios: [f64; 4]) -> std::fmt::Result {
    let ratios = ratios.map(|ratio| format!("{ratio:.3}"));
    writeln!(page, "| {name} | {} |", ratios.join(" | "))
}
