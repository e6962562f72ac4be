//! Requests and answers of a flow: however they are split, the same bytes of answers are secret. None is lost or added,
//! and only fields of a head change their order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::http_proxy::secrets::{Exchanges, Part, PrivateAnswers};

fuzz_target!(|input: &[u8]| {
    let Some((&split, bytes)) = input.split_first() else {
        return;
    };
    let policy = match split % 2 {
        0 => PrivateAnswers::Bypass,
        _ => PrivateAnswers::SecretSafe,
    };
    let (requests, answers) = bytes.split_at(usize::from(split).min(bytes.len()));
    let whole = passed(requests, answers, policy, usize::MAX);
    for piece in [1, 7] {
        assert_eq!(passed(requests, answers, policy, piece), whole);
    }
    let mut came: Vec<u8> = whole.into_iter().flat_map(|part| part.bytes).collect();
    let mut expected = answers.to_vec();
    came.sort_unstable();
    expected.sort_unstable();
    assert_eq!(came, expected);
});

fn passed(requests: &[u8], answers: &[u8], policy: PrivateAnswers, piece: usize) -> Vec<Part> {
    let mut exchanges = Exchanges::new(policy);
    requests
        .chunks(piece)
        .for_each(|piece| exchanges.sent(piece));
    let mut parts: Vec<Part> = Vec::new();
    let mut add = |came: Vec<Part>| {
        for part in came {
            match parts.last_mut() {
                Some(last) if last.is_secret == part.is_secret => last.bytes.extend(part.bytes),
                _ => parts.push(part),
            }
        }
    };
    for piece in answers.chunks(piece) {
        let mut came = Vec::new();
        exchanges.came(piece, &mut came);
        add(came);
    }
    let mut held = Vec::new();
    exchanges.finish(&mut held);
    add(held);
    parts
}
