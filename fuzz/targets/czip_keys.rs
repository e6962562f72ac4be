//! What opens an encrypted archive. The first byte says what the rest is: 0 the keys section of an
//! archive that somebody made to do harm; 1 the file of an identity; 2 recipients, one a line; else the
//! file of a group secret. All of it may be an error, in bounded time and memory.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use refrain_czip::crypt::{GroupSecret, Identities, Recipients, unwrap};

/// An ssh key of each kind, one of them locked: no passphrase is given.
static IDENTITIES: LazyLock<Identities> = LazyLock::new(|| {
    let mut identities = Identities::new();
    for key in [
        &include_bytes!("../../crates/czip/tests/suite/encryption/ssh/ed25519")[..],
        include_bytes!("../../crates/czip/tests/suite/encryption/ssh/rsa"),
        include_bytes!("../../crates/czip/tests/suite/encryption/ssh/locked"),
    ] {
        identities.add("identity", key).expect("a key");
    }
    identities
});

fuzz_target!(|data: &[u8]| match data {
    [0, keys @ ..] => drop(unwrap(keys, &IDENTITIES, &mut |_| None)),
    [1, identity @ ..] => drop(Identities::new().add("identity", identity)),
    [2, recipients @ ..] => {
        let recipients = String::from_utf8_lossy(recipients);
        let lines: Vec<&str> = recipients.lines().collect();
        drop(Recipients::parse(&lines));
    }
    [_, secret @ ..] => drop(GroupSecret::parse(secret)),
    [] => {}
});
