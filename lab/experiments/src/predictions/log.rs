//! An access log and what becomes of it: text all of whose lines have one form, in which PACK
//! finds next to no anchors.

use std::fmt::Write;

/// What becomes of the log, one after the other.
pub(super) const CHANGES: [&str; 4] = [
    "nothing",
    "a new line near the beginning",
    "50 new lines anywhere",
    "the first tenth removed",
];

const LOG_BYTES: usize = 20_000_000;

/// The log, and then the log after each change.
pub(super) fn objects() -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(2011);
    let mut log = String::new();
    let mut second = 0;
    while log.len() < LOG_BYTES {
        second += random.u32(..2);
        line(&mut log, second, &mut random);
    }
    let log = log.into_bytes();
    let near_the_beginning = with_lines(&log, [log.len() / 100], &mut random);
    let mut anywhere: Vec<usize> = (0..50).map(|_| random.usize(..log.len())).collect();
    anywhere.sort_unstable();
    let anywhere = with_lines(&log, anywhere, &mut random);
    let later = log[log.len() / 10..].to_vec();
    vec![log.clone(), log, near_the_beginning, anywhere, later]
}

fn line(log: &mut String, second: u32, random: &mut fastrand::Rng) {
    let (hours, minutes, seconds) = (second / 3600 % 24, second / 60 % 60, second % 60);
    let (subnet, host) = (random.u32(..4), random.u32(1..255));
    let (item, bytes) = (random.u32(1..100_000), random.u32(100..10_000));
    writeln!(
        log,
        "10.0.{subnet}.{host} - - [09/Oct/2025:{hours:02}:{minutes:02}:{seconds:02} +0000] \
         \"GET /api/v1/items/{item} HTTP/1.1\" 200 {bytes}"
    )
    .expect("text grows");
}

/// A new line behind each line that holds one of `places`, which increase.
fn with_lines(
    log: &[u8],
    places: impl IntoIterator<Item = usize>,
    random: &mut fastrand::Rng,
) -> Vec<u8> {
    let (mut edited, mut copied) = (Vec::new(), 0);
    for place in places {
        let rest = &log[place..];
        let end = rest.iter().position(|&byte| byte == b'\n');
        let end = place + end.map_or(rest.len(), |end| end + 1);
        edited.extend_from_slice(&log[copied..end]);
        copied = end;
        let mut new = String::new();
        line(&mut new, 0, random);
        edited.extend_from_slice(new.as_bytes());
    }
    edited.extend_from_slice(&log[copied..]);
    edited
}
