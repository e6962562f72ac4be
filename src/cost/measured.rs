//! What `refrain status --json` says of a run, as far as the cost model needs it.
//!
//! Fields are read by name, and those that are not there are named: a status of another version
//! has more or fewer. Only sums are kept, however many peers the status has.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

/// A status with ten thousand flows has some 10 MB.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// A month of 365 days / 12.
pub const MONTH_HOURS: f64 = 730.0;

/// A run shorter than this says nothing of a month.
const UPTIME_S_MIN: f64 = 1.0;

/// What a run moved from the service to its users, over all links since the gateway started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// How long the gateway has been up.
    pub uptime_s: f64,
    /// Plain bytes of applications; above 0.
    pub app_bytes: f64,
    /// What predictions saved.
    pub predicted_bytes: Option<f64>,
    /// What matching saved of what predictions left; negative where it cost more.
    pub matching_saved_bytes: Option<f64>,
    /// What zstd saved of the rest.
    pub zstd_saved_bytes: Option<f64>,
    /// The names of fields that were looked for in vain.
    pub missing: Vec<&'static str>,
    /// Whether links that are over, as after a restart of the other end, are not in it.
    pub is_of_present_links: bool,
}

/// Why a status cannot be reckoned with.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredError {
    /// Not the JSON that a status is; the parser says where.
    #[error("{}", syntax(.0))]
    Syntax(#[from] serde_json::Error),
    /// It says nothing of how much was moved, or how long that took.
    #[error("it has no `{field}`: is it what `refrain status --json` printed, all of it?")]
    Missing {
        /// What.
        field: &'static str,
    },
    /// It is of neither end, as of another program.
    #[error("its `role` is neither `near` nor `far`: is it what `refrain status --json` printed?")]
    Role,
    /// Nothing went from the service to its users.
    #[error("nothing has been {direction} yet: there is nothing to reckon with")]
    Nothing {
        /// `sent` or `received`, as the gateway sees it.
        direction: &'static str,
    },
    /// More was saved than there was.
    #[error(
        "{what} saved {saved_bytes} of {app_bytes} bytes, by this status, and no more can be saved \
         than there was: was it edited, or joined from several?"
    )]
    TooMuchSaved {
        /// Which layers.
        what: &'static str,
        /// What they saved.
        saved_bytes: f64,
        /// What applications sent.
        app_bytes: f64,
    },
    /// Too short, or no time.
    #[error("the gateway was up for {uptime_s} s: too short to say anything of a month")]
    Uptime {
        /// That.
        uptime_s: f64,
    },
}

/// What is wrong, and what to do, without the parser's words for it.
fn syntax(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let what = match error.is_eof() {
        true => "it ends too early".to_owned(),
        false => format!("line {line}, column {column} is none of it"),
    };
    format!(
        "this is not what `refrain status --json` prints: {what}. Save it again, with `refrain \
         status --admin ADDRESS --json > FILE`"
    )
}

#[derive(Deserialize)]
struct Status {
    role: Option<String>,
    uptime_s: Option<f64>,
    /// Of all links since the gateway started.
    total: Option<Link>,
    #[serde(default)]
    peers: Option<Links>,
}

#[derive(Deserialize)]
struct Link {
    sent: Option<Direction>,
    received: Option<Direction>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Direction {
    app_bytes: Option<u64>,
    prediction_saved_bytes: Option<u64>,
    matching_saved_bytes: Option<i64>,
    zstd_saved_bytes: Option<i64>,
}

/// What links carried, added up as they are read.
#[derive(Default)]
struct Links {
    sent: Sums,
    received: Sums,
}

#[derive(Default)]
struct Sums {
    app_bytes: Option<f64>,
    prediction_saved_bytes: Option<f64>,
    matching_saved_bytes: Option<f64>,
    zstd_saved_bytes: Option<f64>,
}

impl Measured {
    /// Reads a status. A far end's service sends, a near end's users receive.
    ///
    /// # Errors
    /// Where [`MeasuredError`] says.
    pub fn parse(json: &[u8]) -> Result<Self, MeasuredError> {
        let status: Status = serde_json::from_slice(json)?;
        let is_of_present_links = status.total.is_none();
        let links = match (status.total, status.peers) {
            (Some(total), _) => Links::of(total),
            (None, Some(present)) => present,
            (None, None) => return Err(MeasuredError::Missing { field: "peers" }),
        };
        let field = "role";
        let role = status.role.ok_or(MeasuredError::Missing { field })?;
        let (direction, sums) = match role.as_str() {
            "near" => ("received", links.received),
            "far" => ("sent", links.sent),
            _ => return Err(MeasuredError::Role),
        };
        let field = "uptime_s";
        let uptime_s = status.uptime_s.ok_or(MeasuredError::Missing { field })?;
        if uptime_s.is_nan() || uptime_s < UPTIME_S_MIN {
            return Err(MeasuredError::Uptime { uptime_s });
        }
        let app_bytes = sums.app_bytes.unwrap_or(0.0);
        if app_bytes == 0.0 {
            return Err(MeasuredError::Nothing { direction });
        }
        let looked_for = [
            ("prediction_saved_bytes", sums.prediction_saved_bytes),
            ("matching_saved_bytes", sums.matching_saved_bytes),
            ("zstd_saved_bytes", sums.zstd_saved_bytes),
        ];
        let missing = looked_for.into_iter().filter(|(_, sum)| sum.is_none());
        let run = Self {
            uptime_s,
            app_bytes,
            predicted_bytes: sums.prediction_saved_bytes,
            matching_saved_bytes: sums.matching_saved_bytes,
            zstd_saved_bytes: sums.zstd_saved_bytes,
            missing: missing.map(|(name, _)| name).collect(),
            is_of_present_links,
        };
        run.check_saved()?;
        Ok(run)
    }

    /// Each layer has what the one before it left.
    fn check_saved(&self) -> Result<(), MeasuredError> {
        let layers = [
            ("predictions", self.predicted_bytes),
            ("predictions and matching", self.matching_saved_bytes),
            ("predictions, matching and zstd", self.zstd_saved_bytes),
        ];
        let mut saved_bytes = 0.0;
        for (what, of_layer) in layers {
            saved_bytes += of_layer.unwrap_or(0.0);
            if saved_bytes > self.app_bytes {
                let app_bytes = self.app_bytes;
                return Err(MeasuredError::TooMuchSaved {
                    what,
                    saved_bytes,
                    app_bytes,
                });
            }
        }
        Ok(())
    }

    /// What a month of such traffic is, as GB.
    pub fn gb_per_month(&self) -> f64 {
        self.app_bytes / 1e9 * self.times_in_month()
    }

    /// How often the run fits into a month.
    pub fn times_in_month(&self) -> f64 {
        MONTH_HOURS * 3600.0 / self.uptime_s
    }

    /// What predictions kept off the wire, if they were counted.
    pub fn predicted_share(&self) -> Option<f64> {
        self.share(self.predicted_bytes)
    }

    /// What matching kept off the wire, if it was counted; 0 where it cost more than it saved.
    pub fn matched_share(&self) -> Option<f64> {
        self.share(self.matching_saved_bytes)
    }

    /// What both kept off the wire, where both did.
    pub fn both_share(&self) -> Option<f64> {
        let (predicted, matched) = (self.predicted_share()?, self.matched_share()?);
        (predicted > 0.0 && matched > 0.0).then_some((predicted + matched).min(1.0))
    }

    /// What zstd kept off the wire, if it was counted.
    pub fn zstd_share(&self) -> Option<f64> {
        self.share(self.zstd_saved_bytes)
    }

    fn share(&self, saved_bytes: Option<f64>) -> Option<f64> {
        saved_bytes.map(|bytes| (bytes / self.app_bytes).clamp(0.0, 1.0))
    }
}

impl Sums {
    fn add(&mut self, direction: Direction) {
        let add = |sum: &mut Option<f64>, more: Option<f64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0.0) + more);
            }
        };
        let unsigned = |bytes: u64| bytes as f64;
        let signed = |bytes: i64| bytes as f64;
        add(&mut self.app_bytes, direction.app_bytes.map(unsigned));
        add(
            &mut self.prediction_saved_bytes,
            direction.prediction_saved_bytes.map(unsigned),
        );
        add(
            &mut self.matching_saved_bytes,
            direction.matching_saved_bytes.map(signed),
        );
        add(
            &mut self.zstd_saved_bytes,
            direction.zstd_saved_bytes.map(signed),
        );
    }
}

impl Links {
    fn of(total: Link) -> Self {
        let mut links = Self::default();
        links.add(total);
        links
    }

    fn add(&mut self, link: Link) {
        self.sent.add(link.sent.unwrap_or_default());
        self.received.add(link.received.unwrap_or_default());
    }
}

impl<'de> Deserialize<'de> for Links {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Adding;

        impl<'de> Visitor<'de> for Adding {
            type Value = Links;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of peers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut peers: A) -> Result<Links, A::Error> {
                let mut links = Links::default();
                while let Some(link) = peers.next_element::<Link>()? {
                    links.add(link);
                }
                Ok(links)
            }
        }

        deserializer.deserialize_seq(Adding)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn status(role: &str) -> serde_json::Value {
        let direction = |app: u64| {
            json!({
                "app_bytes": app, "link_bytes": 9, "matching_saved_bytes": app / 4,
                "zstd_saved_bytes": -3, "prediction_saved_bytes": app / 2, "new": {"a": []},
            })
        };
        json!({
            "role": role, "uptime_s": 7300.0, "version": "9",
            "peers": [
                {"name": null, "sent": direction(1000), "received": direction(80)},
                {"sent": direction(3000), "received": direction(40)},
            ],
            "flows": [{"sent": direction(77)}],
        })
    }

    fn parse(status: &serde_json::Value) -> Result<Measured, MeasuredError> {
        Measured::parse(status.to_string().as_bytes())
    }

    #[test]
    fn links_add_up_in_the_direction_of_the_service() {
        let far = parse(&status("far")).expect("a status");
        assert_eq!((far.app_bytes, far.uptime_s), (4000.0, 7300.0));
        assert_eq!(far.predicted_share(), Some(0.5));
        assert_eq!(far.matched_share(), Some(0.25));
        assert_eq!(far.zstd_share(), Some(0.0));
        assert!(far.missing.is_empty());
        // 7300 s are 1/360 of a month.
        assert!((far.gb_per_month() - 4000.0 * 360.0 / 1e9).abs() < 1e-12);
        let near = parse(&status("near")).expect("a status");
        assert_eq!(near.app_bytes, 120.0);
    }

    #[test]
    fn a_total_goes_before_the_links_that_are_left() {
        assert!(parse(&status("far")).expect("a status").is_of_present_links);
        let mut whole = status("far");
        let direction = |app_bytes| {
            json!({
                "app_bytes": app_bytes, "prediction_saved_bytes": app_bytes / 10,
                "matching_saved_bytes": app_bytes / 5, "zstd_saved_bytes": app_bytes / 2,
            })
        };
        whole["total"] = json!({"sent": direction(9000), "received": direction(700)});
        let far = parse(&whole).expect("a status");
        assert!(!far.is_of_present_links);
        assert_eq!(far.app_bytes, 9000.0);
        assert_eq!(far.predicted_share(), Some(0.1));
        assert_eq!(far.matched_share(), Some(0.2));
        assert_eq!(far.zstd_share(), Some(0.5));
        whole["role"] = json!("near");
        assert_eq!(parse(&whole).expect("a status").app_bytes, 700.0);
        whole["total"] = json!({"sent": direction(9000)});
        let error = parse(&whole);
        assert!(matches!(error, Err(MeasuredError::Nothing { .. })));
        whole["total"] = json!([7]);
        assert!(matches!(parse(&whole), Err(MeasuredError::Syntax(_))));
    }

    #[test]
    fn no_more_is_saved_than_there_was() {
        for (field, saved_bytes, who) in [
            (
                "prediction_saved_bytes",
                2501,
                "predictions saved 4001 of 4000",
            ),
            (
                "matching_saved_bytes",
                1251,
                "predictions and matching saved 4001",
            ),
            ("zstd_saved_bytes", 1004, "matching and zstd saved 4001"),
        ] {
            let with = |saved_bytes: u64| {
                let mut status = status("far");
                status["peers"][0]["sent"][field] = json!(saved_bytes);
                parse(&status)
            };
            let error = with(saved_bytes).expect_err(field).to_string();
            assert!(error.contains(who), "{error}");
            // All of it may be saved.
            let is_last = field == "zstd_saved_bytes";
            assert!(!is_last || with(saved_bytes - 1).is_ok());
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let mut without = status("far");
        for peer in 0..2 {
            let sent = without["peers"][peer]["sent"].as_object_mut();
            sent.expect("an object").remove("prediction_saved_bytes");
        }
        let measured = parse(&without).expect("a status");
        assert_eq!(measured.missing, ["prediction_saved_bytes"]);
        assert_eq!(measured.predicted_share(), None);
        for field in ["peers", "role", "uptime_s"] {
            let mut without = status("far");
            without.as_object_mut().expect("an object").remove(field);
            let error = parse(&without).expect_err(field).to_string();
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let with = |pointer: &str, value: serde_json::Value| {
            let mut status = status("far");
            *status.pointer_mut(pointer).expect("it is there") = value;
            parse(&status)
        };
        for uptime_s in [json!(0), json!(-5), json!(0.5), json!(1e-300)] {
            let error = with("/uptime_s", uptime_s.clone());
            assert!(
                matches!(error, Err(MeasuredError::Uptime { .. })),
                "{uptime_s}"
            );
        }
        let of_neither_end = with("/role", json!("both"));
        assert!(matches!(of_neither_end, Err(MeasuredError::Role)));
        for (pointer, value) in [
            ("/peers/0/sent/app_bytes", json!(-1)),
            ("/peers/0/sent/app_bytes", json!("many")),
            ("/peers/0/sent/prediction_saved_bytes", json!(0.5)),
            ("/peers/0", json!(7)),
            ("/peers", json!({})),
            ("/uptime_s", json!("long")),
        ] {
            let error = with(pointer, value.clone());
            assert!(
                matches!(error, Err(MeasuredError::Syntax(_))),
                "{pointer} {value}"
            );
        }
        let error = with("/peers", json!([]));
        assert!(matches!(error, Err(MeasuredError::Nothing { .. })));
        for text in [
            "",
            "{",
            "[]",
            "NaN",
            "{\"uptime_s\": 1e999}",
            "null",
            "\u{0}",
        ] {
            assert!(Measured::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        // Nested too deep for a parser that calls itself.
        let deep = format!("{{\"x\": {}", "[".repeat(100_000));
        assert!(Measured::parse(deep.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn shares_are_shares_or_an_error_whatever_the_counters_say(
            app in 1u64.., predicted: u64, matched: i64, uptime_s in 1.0..1e12f64,
        ) {
            let sent = json!({
                "app_bytes": app, "prediction_saved_bytes": predicted,
                "matching_saved_bytes": matched,
            });
            let status = json!({"role": "far", "uptime_s": uptime_s, "peers": [{"sent": sent}]});
            let measured = match parse(&status) {
                Ok(measured) => measured,
                Err(error) => {
                    let is_that = matches!(error, MeasuredError::TooMuchSaved { .. });
                    prop_assert!(is_that, "{error}");
                    return Ok(());
                }
            };
            for share in [measured.predicted_share(), measured.matched_share()] {
                prop_assert!(share.is_some_and(|share| (0.0..=1.0).contains(&share)));
            }
            prop_assert!(measured.both_share().unwrap_or(1.0) <= 1.0);
            prop_assert!(measured.gb_per_month().is_finite());
        }

        #[test]
        fn any_bytes_are_a_status_or_an_error(bytes: Vec<u8>, at in 0usize..400, byte: u8) {
            let _ = Measured::parse(&bytes);
            let mut status = status("far").to_string().into_bytes();
            if let Some(place) = status.get_mut(at) {
                *place = byte;
            }
            let _ = Measured::parse(&status);
        }
    }
}
