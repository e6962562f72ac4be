//! Two gateways, each a process, over sockets.

use std::{fmt::Write, path::Path, sync::Arc, time::Duration};

use anyhow::ensure;
use refrain_relay::addresses::free_address;

use crate::{
    corpus::Corpus,
    median::median,
    pair,
    processes::{Gateways, Setup, clocked},
    slow_link::SlowLink,
};

const DELAY: Duration = Duration::from_millis(5);

/// One core, and two, as `taskset` has them.
const ONE_CORE: (&str, &str) = ("one core", "0");
const TWO_CORES: (&str, &str) = ("two cores", "0,1");

/// Mbit/s, none for a loopback, and processors for both gateways. Where the link limits, one core is as good as two.
const PLACES: [(Option<u32>, (&str, &str)); 4] = [
    (None, ONE_CORE),
    (None, TWO_CORES),
    (Some(100), TWO_CORES),
    (Some(20), TWO_CORES),
];

const EFFORTS: [&str; 2] = ["auto", "max"];

const ALGORITHMS: [&str; 2] = ["maxp-bytes", "samplebyte"];

/// Of the longest data sets a beginning does.
const BYTES_MAX: usize = 16_000_000;

/// What a transfer took.
#[derive(Clone, Copy)]
struct Sent {
    link_bytes: f64,
    cpu_s: f64,
    took_s: f64,
}

pub(super) fn tables(
    page: &mut String,
    refrain: &Path,
    corpora: &[Corpus],
    runs: usize,
) -> anyhow::Result<()> {
    write!(
        page,
        "\n## Over sockets\n\n\
         `maxp-bytes` over `samplebyte`, with default options except the effort. A far gateway sends each data set,\n\
         at most {} MB of it. A near gateway receives. Both are pinned to the same cores. A relay between them has\n\
         the rate and {} ms one way. Figures are medians over the data sets, in brackets the worst.\n\n\
         | effort | Mbit/s | | link bytes | sender's CPU | seconds |\n\
         |---|---|---|--:|--:|--:|\n",
        BYTES_MAX / 1_000_000,
        DELAY.as_millis(),
    )?;
    for effort in EFFORTS {
        for (mbit, (cores, processors)) in PLACES {
            let mut columns = super::Columns::default();
            for corpus in corpora {
                let ratios = compare(refrain, corpus, (effort, mbit, processors), runs)?;
                eprintln!(
                    "{effort}, {mbit:?} Mbit/s, {cores}, {}: {ratios:.3?}",
                    corpus.name
                );
                columns.add(&ratios);
            }
            let rate = mbit.map_or("loopback".to_owned(), |mbit| mbit.to_string());
            write!(page, "| `{effort}` | {rate} | {cores} |")?;
            for (median, worst) in columns.medians().into_iter().zip(columns.worst()) {
                write!(page, " {median:.3} ({worst:.3}) |")?;
            }
            page.push('\n');
        }
    }
    Ok(())
}

type Place<'a> = (&'a str, Option<u32>, &'a str);

/// Link bytes, CPU and seconds of the first algorithm over those of the second.
fn compare(
    refrain: &Path,
    corpus: &Corpus,
    place: Place<'_>,
    runs: usize,
) -> anyhow::Result<[f64; 3]> {
    let mut ratios = [const { Vec::new() }; 3];
    for run in 0..runs {
        let mut order = [0, 1];
        order.rotate_left(run % 2);
        let mut sent = [None; 2];
        for way in order {
            sent[way] = Some(send(refrain, corpus, place, ALGORITHMS[way])?);
        }
        let [Some(one), Some(other)] = sent else {
            continue;
        };
        let of_turn = [
            one.link_bytes / other.link_bytes,
            one.cpu_s / other.cpu_s,
            one.took_s / other.took_s,
        ];
        for (ratios, ratio) in ratios.iter_mut().zip(of_turn) {
            ratios.push(ratio);
        }
    }
    Ok(ratios.map(median))
}

fn send(
    refrain: &Path,
    corpus: &Corpus,
    (effort, mbit, processors): Place<'_>,
    algorithm: &str,
) -> anyhow::Result<Sent> {
    let objects = Arc::new(beginning_of(corpus));
    let origin = pair::serve(Arc::clone(&objects))?;
    let listen = free_address();
    let link = mbit
        .map(|mbit| SlowLink::before(listen, mbit, DELAY))
        .transpose()?;
    let gateways = Gateways::start(&Setup {
        link: None,
        refrain,
        target: origin,
        listen: Some(listen),
        dial: link.as_ref().map(SlowLink::address),
        far: &["--effort", effort, "--marker", algorithm],
        near: &["--effort", effort],
    })?;
    gateways.pin(processors)?;
    let before = gateways.far()?.sent.link_bytes;
    let (took, cpu) = clocked(gateways.far_process(), || {
        for (index, object) in objects.iter().enumerate() {
            ensure!(
                pair::fetch(gateways.address, index)? == *object,
                "object {index} differs"
            );
        }
        Ok(())
    })?;
    let link_bytes = gateways.far()?.sent.link_bytes - before;
    gateways.end()?;
    Ok(Sent {
        link_bytes: link_bytes as f64,
        cpu_s: cpu.as_secs_f64(),
        took_s: took.as_secs_f64(),
    })
}

fn beginning_of(corpus: &Corpus) -> Vec<Vec<u8>> {
    let mut rest = BYTES_MAX;
    let objects = corpus.objects.iter().map(|object| {
        let len = object.len().min(rest);
        rest -= len;
        object[..len].to_vec()
    });
    objects.take_while(|object| !object.is_empty()).collect()
}
