//! Measuring one thing beside its peers, in turns.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Turns that are measured at least, however little time there is.
const TURNS_MIN: usize = 5;

/// One line of the report: the same names as in the JSON.
#[derive(Debug, Serialize)]
pub struct Row {
    pub name: String,
    /// Plain bytes, 10^9 of them, in a second.
    pub gb_per_s: f64,
    #[serde(flatten)]
    pub peer: Option<PeerSpeed>,
}

/// How fast a peer was in the same turns.
#[derive(Debug, Serialize)]
pub struct PeerSpeed {
    #[serde(rename = "peer")]
    pub name: &'static str,
    #[serde(rename = "peer_gb_per_s")]
    pub gb_per_s: f64,
    /// Our speed over the peer's, the median of all turns.
    pub ratio: f64,
}

/// A turn of work: takes some plain bytes, and says how many.
pub type Turn<'a> = Box<dyn FnMut() -> usize + 'a>;

/// Something of ours, and what it is measured beside.
pub struct Contest<'a> {
    ours: Turn<'a>,
    peers: Vec<(&'static str, Turn<'a>)>,
}

impl<'a> Contest<'a> {
    pub fn new(ours: impl FnMut() -> usize + 'a) -> Self {
        Self {
            ours: Box::new(ours),
            peers: Vec::new(),
        }
    }

    pub fn beside(mut self, name: &'static str, peer: impl FnMut() -> usize + 'a) -> Self {
        self.peers.push((name, Box::new(peer)));
        self
    }

    /// Lets all take turns for `time`; a row a peer, or one without.
    pub fn measure(mut self, name: &str, time: Duration) -> Vec<Row> {
        let mut ours = Vec::new();
        let mut peers = vec![Vec::new(); self.peers.len()];
        // The first turn warms up what a turn needs.
        (self.ours)();
        for (_, peer) in &mut self.peers {
            peer();
        }
        let start = Instant::now();
        while ours.len() < TURNS_MIN || start.elapsed() < time {
            ours.push(gb_per_s(&mut self.ours));
            for ((_, peer), speeds) in self.peers.iter_mut().zip(&mut peers) {
                speeds.push(gb_per_s(peer));
            }
        }
        let row = |peer| Row {
            name: name.to_owned(),
            gb_per_s: median(&ours),
            peer,
        };
        if self.peers.is_empty() {
            return vec![row(None)];
        }
        let peers = self.peers.iter().zip(&peers);
        let peers = peers.map(|((name, _), speeds)| {
            let ratios: Vec<f64> = ours.iter().zip(speeds).map(|(a, b)| a / b).collect();
            row(Some(PeerSpeed {
                name,
                gb_per_s: median(speeds),
                ratio: median(&ratios),
            }))
        });
        peers.collect()
    }
}

fn gb_per_s(turn: &mut Turn<'_>) -> f64 {
    let start = Instant::now();
    let bytes = turn();
    bytes as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn all_take_turns() {
        let order = RefCell::new(Vec::new());
        let turn = |who: &'static str| {
            let order = &order;
            move || {
                order.borrow_mut().push(who);
                1000
            }
        };
        let contest = Contest::new(turn("ours"))
            .beside("a", turn("a"))
            .beside("b", turn("b"));
        let rows = contest.measure("name", Duration::ZERO);
        assert_eq!(
            *order.borrow(),
            ["ours", "a", "b"].repeat(1 + TURNS_MIN),
            "one to warm up"
        );
        let peers: Vec<_> = rows
            .iter()
            .map(|row| row.peer.as_ref().expect("a peer").name)
            .collect();
        assert_eq!(peers, ["a", "b"]);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
    }
}
