//! `refrain explain`: the reasons why a flow's data was not saved, and the setting that would change it.

use refrain_codec::{MissedRepeats, marker::SamplingPeriod};
use refrain_proto::{
    Compressed, Exclusion, Format, Mode, TrafficClass, counters::LayerCounters, link::FlowStatus,
};
use serde::{Deserialize, Serialize};

use crate::{
    gateway::Gateway,
    http_proxy::AcceptEncoding,
    options::{
        ACCEPT_ENCODING, CACHE_SIZE, EFFORT, EXCLUDE, HTTP_PROXY, MODE, OPEN, OptionSpec, Role,
    },
    status::{Effort, Flow, class_name},
    target::{FlowTarget, Host},
    units::decimal_bytes,
};

/// A cause of a smaller share of the bytes on the link is not worth a setting.
const WORTH_PERCENT: u64 = 10;

/// Nor is one of fewer bytes.
const WORTH_BYTES: u64 = 1000;

/// Less new content does not show the worth of effort.
const EFFORT_BYTES_MIN: u64 = 256 << 10;

/// Fewer samples do not tell that the cache was too small.
const MISSED_MIN: u32 = 3;

/// One flow, and the reasons for its bytes on the link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Explanation {
    /// The flow, as `refrain status` shows it.
    pub flow: Flow,
    /// Seconds since it ended; none while it is open.
    pub ended_s: Option<f64>,
    /// Which end finds repeats, as this end wants it.
    pub mode: String,
    /// The effort of this end's sender, now or when the flow ended.
    pub effort: Effort,
    /// Bytes that crossed the link from this end, by causes.
    pub sent: Vec<Cause>,
    /// Bytes that crossed the link to this end, by causes.
    pub received: Vec<Cause>,
    /// The setting that would have saved most of it; none if there is none.
    pub advice: Option<Advice>,
}

/// A reason why bytes crossed the link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cause {
    /// `encrypted`, `excluded`, `compressed`, `evicted`, `uncached`, `new`, or `headers`.
    pub cause: String,
    /// Bytes on the link.
    pub link_bytes: u64,
    /// The formats of compressed content that were seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formats: Vec<String>,
    /// The cache that would have been large enough, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sufficient_cache_bytes: Option<u64>,
    /// The cause in words.
    pub text: String,
}

/// A setting that would have changed it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Advice {
    /// The option, with its value where one follows from the flow.
    pub setting: String,
    /// Where, and under which conditions.
    pub text: String,
}

/// A kind of cause, with the details that advice needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Encrypted(Exclusion),
    Excluded,
    Compressed,
    Evicted,
    Uncached,
    New,
    Headers,
}

/// A cause, before it is put in words.
#[derive(Debug)]
struct Found {
    kind: Kind,
    is_sent: bool,
    link_bytes: u64,
    formats: Vec<Format>,
    sufficient_cache_bytes: Option<u64>,
}

/// One direction of a flow.
struct Direction<'a> {
    is_sent: bool,
    layers: &'a LayerCounters,
    class: TrafficClass,
    compressed: &'a Compressed,
    /// Repeats that a larger cache would have found: only the sending end knows them.
    missed: Option<&'a MissedRepeats>,
    cache_bytes: u64,
    is_predicted: bool,
}

/// The settings of this end that matter here.
#[derive(Clone, Copy, Debug)]
struct Own {
    role: Role,
    mode: Mode,
    asks_for_plain: bool,
}

/// The flows that a page asks for.
pub(crate) enum Asked {
    /// The last ones that ended.
    Last(usize),
    /// All with this number, of any peer.
    Number(u64),
}

/// Explains flows of a gateway: open ones, then those that ended, the last first.
pub(crate) fn explain(gateway: &Gateway, asked: &Asked) -> Vec<Explanation> {
    let mut explanations = Vec::new();
    if let Asked::Number(number) = *asked {
        for (peer, _) in gateway.peers() {
            let label = gateway.label(&peer.key);
            for flow in peer.links().iter().flat_map(|link| link.status().flows) {
                if flow.id.0 == number {
                    explanations.push(Explanation::of(&flow, &label, None, gateway));
                }
            }
        }
    }
    let ended = &gateway.totals.ended_flows;
    let ended = match *asked {
        Asked::Last(count) => ended.find(count, |_| true),
        Asked::Number(number) => ended.find(usize::MAX, |ended| ended.flow.id.0 == number),
    };
    for ended in ended {
        let label = gateway.label(&ended.peer);
        let ended_s = Some(ended.ended.elapsed().as_secs_f64());
        let explained = Explanation::of(&ended.flow, &label, ended_s, gateway);
        explanations.push(explained);
    }
    explanations
}

impl Explanation {
    fn of(flow: &FlowStatus, peer: &str, ended_s: Option<f64>, gateway: &Gateway) -> Explanation {
        let target = FlowTarget::from_wire(&flow.target).ok();
        let policy = gateway.policy.load();
        let asks_for_plain = target.as_ref().is_some_and(|target| {
            policy.accept_encoding(&target.target) == AcceptEncoding::Identity
        });
        let own = Own {
            role: gateway.config.role,
            mode: gateway.config.mode,
            asks_for_plain,
        };
        Self::with(flow, peer, ended_s, target.as_ref(), own)
    }

    fn with(
        flow: &FlowStatus,
        peer: &str,
        ended_s: Option<f64>,
        target: Option<&FlowTarget>,
        own: Own,
    ) -> Explanation {
        let sent = Direction {
            is_sent: true,
            layers: &flow.sent,
            class: flow.class,
            compressed: &flow.sent_compressed,
            missed: Some(&flow.missed),
            cache_bytes: flow.link.sent_cache_bytes,
            is_predicted: flow.send_predictions.is_some(),
        };
        let received = Direction {
            is_sent: false,
            layers: &flow.received,
            class: flow.received_class,
            compressed: &flow.received_compressed,
            missed: None,
            cache_bytes: flow.link.received_cache_bytes,
            is_predicted: flow.receive_predictions.is_some(),
        };
        let found = [sent.causes(), received.causes()];
        let advice = advise(&found, flow, target, own);
        let [sent, received] =
            [(&sent, &found[0]), (&received, &found[1])].map(|(direction, found)| {
                let causes = found
                    .iter()
                    .map(|found| direction.in_words(found, flow, own));
                causes.collect()
            });
        Explanation {
            flow: Flow::of(flow, peer),
            ended_s,
            mode: own.mode.to_string(),
            effort: Effort::of(flow.link.effort, flow.link.effort_reason),
            sent,
            received,
            advice,
        }
    }
}

impl Direction<'_> {
    /// The causes of bytes on the link, the greatest first.
    fn causes(&self) -> Vec<Found> {
        let layers = self.layers;
        let headers = layers.block_bytes.saturating_sub(layers.packed_bytes);
        let mut left = layers.packed_bytes;
        let mut causes = vec![self.found(Kind::Headers, headers)];
        let mut take = |kind, bytes: u64| {
            let found = self.found(kind, bytes.min(left));
            left -= found.link_bytes;
            found
        };
        match self.class {
            TrafficClass::Excluded(Exclusion::Rule) => causes.push(take(Kind::Excluded, u64::MAX)),
            TrafficClass::Excluded(why) => causes.push(take(Kind::Encrypted(why), u64::MAX)),
            _ if self.cache_bytes == 0 && !self.is_predicted => {
                causes.push(take(Kind::Uncached, u64::MAX));
            }
            _ => {
                let missed = self.missed.filter(|missed| missed.missed() >= MISSED_MIN);
                let share = missed.map_or(0.0, |missed| {
                    f64::from(missed.missed()) / f64::from(missed.sampled)
                });
                causes.push(Found {
                    sufficient_cache_bytes: missed.and_then(MissedRepeats::sufficient_cache_bytes),
                    ..take(Kind::Evicted, (layers.packed_bytes as f64 * share) as u64)
                });
                causes.push(Found {
                    formats: self.compressed.formats().collect(),
                    ..take(
                        Kind::Compressed,
                        (self.compressed.bytes as f64 * (1.0 - share)) as u64,
                    )
                });
                causes.push(take(Kind::New, u64::MAX));
            }
        }
        causes.retain(|cause| cause.link_bytes > 0);
        causes.sort_by_key(|cause| core::cmp::Reverse(cause.link_bytes));
        causes
    }

    fn found(&self, kind: Kind, link_bytes: u64) -> Found {
        Found {
            kind,
            is_sent: self.is_sent,
            link_bytes,
            formats: Vec::new(),
            sufficient_cache_bytes: None,
        }
    }

    fn in_words(&self, found: &Found, flow: &FlowStatus, own: Own) -> Cause {
        let formats: Vec<&str> = found.formats.iter().map(|format| format.name()).collect();
        let (cause, text) = match found.kind {
            Kind::Encrypted(why) => {
                let by = class_name(TrafficClass::Excluded(why));
                (
                    "encrypted",
                    format!("encrypted ({by}): nothing in it repeats"),
                )
            }
            Kind::Excluded => ("excluded", "excluded by a rule".to_owned()),
            Kind::Compressed => {
                let formats = match formats.is_empty() {
                    true => "of an unknown format, or encrypted".to_owned(),
                    false => formats.join(", "),
                };
                let text = format!("compressed content ({formats}): it repeats only as a whole");
                ("compressed", text)
            }
            Kind::Evicted => {
                let cache = decimal_bytes(self.cache_bytes);
                let enough = found.sufficient_cache_bytes.unwrap_or(0);
                let enough = decimal_bytes(enough);
                let text = format!(
                    "seen before, but the cache of {cache} did not have it any more; {enough} would have been enough"
                );
                ("evicted", text)
            }
            Kind::Uncached => (
                "uncached",
                format!("mode {}: there is no cache of this direction", own.mode),
            ),
            Kind::New => {
                let number = flow.id.0;
                let text = match self.is_sent {
                    true => "new content, compressed".to_owned(),
                    false => format!(
                        "new content, or older than the cache: `refrain explain {number}` at the other end shows which"
                    ),
                };
                ("new", text)
            }
            Kind::Headers => ("headers", "headers of frames".to_owned()),
        };
        Cause {
            cause: cause.to_owned(),
            link_bytes: found.link_bytes,
            formats: formats.into_iter().map(str::to_owned).collect(),
            sufficient_cache_bytes: found.sufficient_cache_bytes,
            text,
        }
    }
}

/// The setting for the greatest cause that has one.
fn advise(
    found: &[Vec<Found>; 2],
    flow: &FlowStatus,
    target: Option<&FlowTarget>,
    own: Own,
) -> Option<Advice> {
    let all: u64 = found.iter().flatten().map(|found| found.link_bytes).sum();
    let mut worth: Vec<&Found> = found.iter().flatten().collect();
    worth.retain(|found| {
        found.link_bytes >= WORTH_BYTES && found.link_bytes * 100 >= all * WORTH_PERCENT
    });
    worth.sort_by_key(|found| core::cmp::Reverse(found.link_bytes));
    let mut advices = worth.into_iter();
    advices.find_map(|found| found.advice(flow, target, own))
}

impl Found {
    fn advice(&self, flow: &FlowStatus, target: Option<&FlowTarget>, own: Own) -> Option<Advice> {
        let advice = |option: &OptionSpec, value: &str, text: &str| {
            let setting = format!("{} {value}", option.flag()).trim_end().to_owned();
            let text = text.to_owned();
            Some(Advice { setting, text })
        };
        let is_reduced = flow.link.effort.period_bytes > SamplingPeriod::DEFAULT.bytes() as u16;
        match self.kind {
            Kind::Encrypted(Exclusion::Tls) => {
                let name =
                    target.and_then(|target| match (&target.target.host, target.target.port) {
                        (Host::Domain(name), 443) => Some(name.clone()),
                        (Host::Domain(_), _) => Some(target.target.to_string()),
                        _ => None,
                    });
                let name = name.unwrap_or_else(|| "NAME".to_owned());
                let text = "at the near end, if you own this service: the near end then ends its TLS, with a \
                            certificate of your own CA (see `refrain ca`)";
                advice(&OPEN, &name, text)
            }
            Kind::Excluded => advice(&EXCLUDE, "", "remove the rule that names this target"),
            Kind::Evicted => {
                let bytes = self.sufficient_cache_bytes?;
                let size = format!("{}MiB", bytes >> 20);
                advice(
                    &CACHE_SIZE,
                    &size,
                    "at both ends; --memory must be large enough",
                )
            }
            Kind::Uncached => advice(&MODE, "auto", "at both ends"),
            Kind::Compressed if self.is_encoded() && own.role == Role::Near => {
                let is_of_proxy = target.is_some_and(|target| target.exchanges.is_some());
                match (is_of_proxy, own.asks_for_plain) {
                    (true, true) => None,
                    (true, false) => {
                        let text = "the near end then asks the server for plain content";
                        advice(&ACCEPT_ENCODING, "identity", text)
                    }
                    (false, _) => {
                        let text = "for clients that do not use it yet: the near end then asks servers for plain content. Files that \
                                    a server has in this format stay so";
                        advice(&HTTP_PROXY, "PORT", text)
                    }
                }
            }
            Kind::New if self.is_sent && self.link_bytes >= EFFORT_BYTES_MIN && is_reduced => {
                let text =
                    "at this end: the encoder saved processor time, and looked for fewer repeats";
                advice(&EFFORT, "max", text)
            }
            Kind::Encrypted(_) | Kind::Compressed | Kind::New | Kind::Headers => None,
        }
    }

    /// Whether a server may have compressed it for the client alone.
    fn is_encoded(&self) -> bool {
        let mut formats = self.formats.iter();
        formats.any(|format| {
            matches!(
                format,
                Format::Gzip | Format::Zstd | Format::Brotli | Format::Deflate
            )
        })
    }
}

#[cfg(test)]
mod tests;
