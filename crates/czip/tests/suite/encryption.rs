//! Encryption of archives, from outside: what `docs/czip-format.md` and `docs/threat-model.md` promise.

mod age_command;
mod frames;
mod keys;
mod parts;
mod worked_example;

use refrain_czip::crypt::GroupSecret;

/// A group secret, another for each `byte`.
fn group_secret(byte: u8) -> GroupSecret {
    GroupSecret::parse(format!("{byte:02x}").repeat(32).as_bytes()).expect("64 digits")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
