//! How fast a transfer is in virtual time: one that was made before, and one that matches
//! nothing.

use std::time::Duration;

use refrain_proto::Mode;
use refrain_sim::{paced::PacedPair, remembered::Remembered};
use serde::Serialize;

use super::{
    USUAL,
    trial::{MBIT, Trial},
};

/// Bytes of a transfer that is repeated, and of one that is not.
pub(super) const REPEATED_BYTES: usize = 500_000_000;
pub(super) const STRANGE_BYTES: usize = 100_000_000;

const TARGET: &str = "target.example:80";

/// See the module. Rates are multiples of the link's.
#[derive(Serialize)]
pub(super) struct Goodput {
    pub first_took_s: f64,
    pub second_took_s: f64,
    pub second_rate: f64,
    /// Of the second transfer, in its first second and from then on.
    pub first_second_rate: f64,
    pub later_rate: f64,
    /// How long a transfer takes that matches nothing.
    pub off_took_s: f64,
    /// With nothing in the history.
    pub receiver_took_s: f64,
    /// With a history in which other bytes answered the same opening.
    pub deceived_took_s: f64,
}

/// Makes all transfers, of noise.
pub(super) fn measure() -> anyhow::Result<Goodput> {
    eprintln!("goodput");
    let link_bytes_per_s = f64::from(MBIT) * 125_000.0;
    let repeated = noise(1, REPEATED_BYTES);
    let mut pair = pair(Mode::Receiver)?;
    let first = pair.fetch(TARGET, b"", &repeated);
    let second = pair.fetch(TARGET, b"", &repeated);
    let second_s = Duration::from_secs(1);
    let within = pair
        .progress()
        .iter()
        .take_while(|&&(at, _)| at <= second_s);
    let within_bytes = within.last().map_or(0, |&(_, came)| came) as f64;
    let later_bytes = REPEATED_BYTES as f64 - within_bytes;
    let later_s = second.saturating_sub(second_s).as_secs_f64();
    drop((pair, repeated));

    let strange = noise(2, STRANGE_BYTES);
    let took = |mode| -> anyhow::Result<f64> {
        Ok(self::pair(mode)?.fetch(TARGET, b"", &strange).as_secs_f64())
    };
    let mut deceived = self::pair(Mode::Receiver)?;
    deceived.fetch(TARGET, b"", &noise(3, STRANGE_BYTES));
    Ok(Goodput {
        first_took_s: first.as_secs_f64(),
        second_took_s: second.as_secs_f64(),
        second_rate: REPEATED_BYTES as f64 / second.as_secs_f64() / link_bytes_per_s,
        first_second_rate: within_bytes / link_bytes_per_s,
        later_rate: later_bytes / later_s / link_bytes_per_s,
        off_took_s: took(Mode::Off)?,
        receiver_took_s: took(Mode::Receiver)?,
        deceived_took_s: deceived.fetch(TARGET, b"", &strange).as_secs_f64(),
    })
}

fn pair(mode: Mode) -> anyhow::Result<PacedPair<Remembered>> {
    let trial = Trial {
        series: "noise",
        mode,
        ..USUAL
    };
    trial.pair()
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    fastrand::Rng::with_seed(seed).fill(&mut noise);
    noise
}
