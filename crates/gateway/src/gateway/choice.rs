//! Which peer a new flow goes to: a function of the peers in their order, of the rules, and of how
//! the peers stand.

use std::ops::ControlFlow;

use tokio::time::Instant;

/// How a peer stands for a new flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prospect<L> {
    /// It has a link with a lane.
    Up(L),
    /// The same, and it shuts down.
    Leaving(L),
    /// It may have one soon: until then, or until more is known.
    Awaited(Option<Instant>),
    /// It is known to be gone now.
    Gone,
}

/// Whether new flows go to a peer, where nothing names another for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Whether they do.
    pub(crate) serves: bool,
    /// Why.
    pub(crate) reason: &'static str,
}

/// The turns of peers in their order.
pub(super) fn turns<L>(peers: impl IntoIterator<Item = Prospect<L>>) -> impl Iterator<Item = Turn> {
    let mut is_any_up = false;
    peers.into_iter().enumerate().map(move |(index, peer)| {
        let reason = match (&peer, is_any_up, index) {
            (Prospect::Leaving(_), ..) => "it shuts down",
            (Prospect::Awaited(_) | Prospect::Gone, ..) => "it is down",
            (Prospect::Up(_), true, _) => "one before it is up",
            (Prospect::Up(_), false, 0) => "it is up and first in order",
            (Prospect::Up(_), false, _) => "it is the first that is up",
        };
        let is_up = matches!(peer, Prospect::Up(_));
        let serves = is_up && !is_any_up;
        is_any_up |= is_up;
        Turn { serves, reason }
    })
}

/// The peers that a flow may go to, in order: the one that its listener names, else those that rules
/// name for its target, else all.
pub(super) fn candidates<P: Copy + PartialEq>(all: &[P], named: Option<P>, routed: &[P]) -> Vec<P> {
    match named {
        Some(peer) => vec![peer],
        None if routed.is_empty() => all.to_vec(),
        None => routed.to_vec(),
    }
}

/// The first of the candidates that is up. While none is, and any may be, the flow waits. One that
/// shuts down is the last resort: it refuses the flow, and says why. Nothing is asked of those behind one that
/// is up.
pub(super) fn choose<L>(candidates: impl IntoIterator<Item = Prospect<L>>) -> Prospect<L> {
    use Prospect::{Awaited, Gone, Leaving, Up};
    let better = |best, next| {
        ControlFlow::Continue(match (best, next) {
            (Up(link), _) | (_, Up(link)) => return ControlFlow::Break(Up(link)),
            (Awaited(one), Awaited(other)) => Awaited(one.into_iter().chain(other).min()),
            (Awaited(until), _) | (_, Awaited(until)) => Awaited(until),
            (Leaving(link), _) | (_, Leaving(link)) => Leaving(link),
            (Gone, Gone) => Gone,
        })
    };
    match candidates.into_iter().try_fold(Gone, better) {
        ControlFlow::Break(chosen) | ControlFlow::Continue(chosen) => chosen,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// All lists of up to `length` of these.
    fn lists<T: Clone>(of: &[T], length: usize) -> Vec<Vec<T>> {
        let mut all = vec![Vec::new()];
        let mut last = all.clone();
        for _ in 0..length {
            let longer = last.iter().flat_map(|list: &Vec<T>| {
                let more = |one: &T| [&list[..], std::slice::from_ref(one)].concat();
                of.iter().map(more).collect::<Vec<_>>()
            });
            last = longer.collect();
            all.extend(last.clone());
        }
        all
    }

    #[test]
    fn the_first_peer_that_is_up_is_chosen_and_one_that_may_come_is_waited_for() {
        let now = Instant::now();
        let [soon, later] = [1, 2].map(|seconds| Some(now + Duration::from_secs(seconds)));
        let states = [
            Prospect::Up(()),
            Prospect::Leaving(()),
            Prospect::Awaited(None),
            Prospect::Awaited(soon),
            Prospect::Awaited(later),
            Prospect::Gone,
        ];
        for list in lists(&states, 4) {
            let numbered = list.iter().enumerate().map(|(index, state)| match state {
                Prospect::Up(()) => Prospect::Up(index),
                Prospect::Leaving(()) => Prospect::Leaving(index),
                Prospect::Awaited(until) => Prospect::Awaited(*until),
                Prospect::Gone => Prospect::Gone,
            });
            let first_up = list.iter().position(|state| *state == Prospect::Up(()));
            let awaited = list.iter().filter_map(|state| match state {
                Prospect::Awaited(until) => Some(*until),
                _ => None,
            });
            let awaited: Vec<Option<Instant>> = awaited.collect();
            let leaving = list.iter();
            let mut leaving = leaving.map(|state| *state == Prospect::Leaving(()));
            let expected = match (first_up, awaited.as_slice()) {
                (Some(index), _) => Prospect::Up(index),
                (None, []) => leaving
                    .position(|leaves| leaves)
                    .map_or(Prospect::Gone, Prospect::Leaving),
                (None, waits) => Prospect::Awaited(waits.iter().flatten().min().copied()),
            };
            let mut asked = 0;
            let numbered = numbered.inspect(|_| asked += 1);
            assert_eq!(choose(numbered), expected, "{list:?}");
            let last = first_up.map_or(list.len(), |index| index + 1);
            assert_eq!(asked, last, "{list:?}");
            let turns = turns(list.iter().copied());
            let serving = turns.map(|turn| turn.serves).enumerate();
            let serving: Vec<usize> = serving.filter(|it| it.1).map(|it| it.0).collect();
            assert_eq!(serving, Vec::from_iter(first_up), "{list:?}");
        }
    }

    #[test]
    fn a_listener_that_names_a_peer_comes_before_rules_and_rules_before_the_order() {
        for all in lists(&[1, 2, 3], 3) {
            for routed in lists(&[1, 2, 3], 2) {
                for named in [None, Some(1), Some(4)] {
                    let expected = match named {
                        Some(peer) => vec![peer],
                        None if !routed.is_empty() => routed.clone(),
                        None => all.clone(),
                    };
                    assert_eq!(candidates(&all, named, &routed), expected);
                }
            }
        }
    }
}
