//! Both ends' engines in one process, with a clock of the thread around what the sender does.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nix::time::{ClockId, clock_gettime};
use refrain_codec::{
    EncodedBlock, Encoder, EncoderConfig, SourceCursor,
    geometry::CacheGeometry,
    marker::{MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes},
    matching::Everything,
    simd::Backend,
};
use refrain_proto::{LinkConfig, Mode, effort::EffortMode};
use refrain_sim::{
    paced::{PacedPair, Way},
    remembered::Remembered,
};

use crate::{corpus::Corpus, markers};

const CACHE_BYTES: usize = 128 << 20;

const BLOCK_BYTES: usize = 64 << 10;

/// No link holds the sender up, and none makes it hungry: the effort stays.
const WAY: Way = Way {
    bytes_per_s: 1e15,
    round_trip: Duration::ZERO,
    unsent_bytes: 1 << 20,
    encoder: None,
};

/// How a corpus is sent.
#[derive(Clone, Copy)]
pub(crate) struct Sending<'a> {
    pub algorithm: MarkerAlgorithm,
    /// The densest p, by which the table is sized.
    pub period: usize,
    pub backend: Backend,
    pub rung: usize,
    /// Another table of SAMPLEBYTE than the default one.
    pub table: Option<&'a SampleByteTable>,
}

/// One way's figures over another's.
pub(crate) struct Ratios {
    pub bytes: f64,
    /// Sums of the least time that each call took in any run. A busy machine disturbs few calls in all runs.
    pub cpu: f64,
}

/// Sends `corpus` in two ways, in turns.
pub(crate) fn compare(
    corpus: &Corpus,
    ways: [Sending<'_>; 2],
    runs: usize,
) -> anyhow::Result<Ratios> {
    let mut sent = [None, None];
    for run in 0..runs {
        let mut order = [0, 1];
        order.rotate_left(run % 2);
        for way in order {
            let (bytes, times) = send(corpus, ways[way])?;
            let (_, least) = sent[way].get_or_insert_with(|| (bytes, times.clone()));
            ensure!(least.len() == times.len(), "the calls of the runs differ");
            for (least, time) in least.iter_mut().zip(times) {
                *least = time.min(*least);
            }
        }
    }
    let [Some((bytes, times)), Some((other_bytes, other_times))] = sent else {
        bail!("--runs must be greater than zero");
    };
    let seconds = |times: Vec<Duration>| times.iter().sum::<Duration>().as_secs_f64();
    Ok(Ratios {
        bytes: bytes / other_bytes,
        cpu: seconds(times) / seconds(other_times),
    })
}

/// Bytes on the link, and the time of each of the sender's calls.
fn send(corpus: &Corpus, sending: Sending<'_>) -> anyhow::Result<(f64, Vec<Duration>)> {
    let cache = CacheGeometry::new(CACHE_BYTES).context("invalid cache size")?;
    let config = LinkConfig {
        mode: Mode::Sender,
        markers: MarkerFinder::new(
            sending.algorithm,
            SamplingPeriod::new(sending.period)?,
            WindowBytes::default(),
            sending.table.cloned().unwrap_or_default(),
        ),
        backend: sending.backend,
        effort: EffortMode::Auto,
        first_rung: Some(sending.rung),
        ..LinkConfig::with_cache(cache)
    };
    let mut pair = PacedPair::new(WAY, config.clone(), config, Remembered::default());
    pair.clock = Some(thread_time);
    for object in &corpus.objects {
        pair.fetch("content:1", b"", object);
    }
    let rung = pair.far.effort_rung();
    ensure!(rung == sending.rung, "the effort moved to rung {rung}");
    Ok((pair.link_bytes(), pair.sending))
}

/// CPU time of an encoder for a byte in ns, and the share of the bytes that it saves.
pub(crate) fn encode_ns(
    content: &[u8],
    period: usize,
    backend: Backend,
) -> anyhow::Result<(f64, f64)> {
    let cache = CacheGeometry::new(CACHE_BYTES).context("invalid cache size")?;
    let mut encoder = Encoder::new(EncoderConfig {
        markers: markers::finder(MarkerAlgorithm::MaxpBytes, 32),
        backend,
        ..EncoderConfig::with_defaults(cache)
    });
    encoder.set_period(SamplingPeriod::new(period)?);
    let (mut cursor, mut out) = (SourceCursor::default(), EncodedBlock::default());
    let mut sent = 0;
    let before = thread_time();
    for block in content.chunks(BLOCK_BYTES) {
        encoder.encode(0, block, &Everything, &mut cursor, &mut out);
        sent += out.tokens.len() + out.literals.len();
    }
    let took = thread_time() - before;
    let bytes = content.len() as f64;
    Ok((
        took.as_secs_f64() * 1e9 / bytes,
        100.0 * (1.0 - sent as f64 / bytes),
    ))
}

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    Duration::from(now.expect("every thread has a clock"))
}
