//! What was carried to and from which target, and of which class.

pub use refrain_proto::targets::CarriedBytes;
use refrain_proto::{
    Exclusion, TrafficClass,
    targets::{Carried, TargetCounts},
};
use serde::{Deserialize, Serialize};

/// What was carried of one class for one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetTraffic {
    /// `host:port`; `None` for all targets without a row of their own.
    pub target: Option<String>,
    /// `ordinary`, `full-entropy`, `TLS`, `SSH`, `SMB encryption`, `GSSAPI encryption`, or
    /// `excluded by a rule`.
    pub class: String,
    /// What this end sent.
    pub sent: CarriedBytes,
    /// What this end received.
    pub received: CarriedBytes,
}

impl TargetTraffic {
    /// The rows of a table, those that carried most first, and last those of the other targets.
    pub(crate) fn rows(counts: &TargetCounts) -> Vec<TargetTraffic> {
        let row = |(target, class, carried): (Option<&str>, _, Carried)| TargetTraffic {
            target: target.map(str::to_owned),
            class: class_name(class).to_owned(),
            sent: carried.sent,
            received: carried.received,
        };
        let mut rows: Vec<_> = counts.iter().map(row).collect();
        rows.sort_by_key(|row| (row.target.is_none(), core::cmp::Reverse(row.app_bytes())));
        rows
    }

    /// Plain bytes, both ways.
    pub fn app_bytes(&self) -> u64 {
        self.sent.app_bytes + self.received.app_bytes
    }

    /// Bytes of their frames on the link, both ways.
    pub fn link_bytes(&self) -> u64 {
        self.sent.link_bytes + self.received.link_bytes
    }
}

/// What users call a class.
pub(crate) fn class_name(class: TrafficClass) -> &'static str {
    match class {
        TrafficClass::Unknown | TrafficClass::Ordinary => "ordinary",
        TrafficClass::FullEntropy => "full-entropy",
        TrafficClass::Excluded(Exclusion::Rule) => "excluded by a rule",
        TrafficClass::Excluded(Exclusion::Tls) => "TLS",
        TrafficClass::Excluded(Exclusion::Ssh) => "SSH",
        TrafficClass::Excluded(Exclusion::Smb) => "SMB encryption",
        TrafficClass::Excluded(Exclusion::Gssapi) => "GSSAPI encryption",
    }
}
