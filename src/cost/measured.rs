//! What `refrain status --json` says of a run, as far as the cost model needs it.
//!
//! Of all that it has, only the sums over all links are read: memory does not grow with peers and flows.

use anyhow::{Context, anyhow, bail, ensure};
use serde::Deserialize;

/// A status with ten thousand flows has some 10 MB.
pub(super) const FILE_BYTES_MAX: u64 = 64 << 20;

/// A month of 365 days / 12.
pub(super) const MONTH_HOURS: f64 = 730.0;

/// A run shorter than this says nothing of a month.
const UPTIME_S_MIN: f64 = 1.0;

/// What a run moved from the service to its users, over all links since the gateway started.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Measured {
    /// How long the gateway has been up.
    pub uptime_s: f64,
    /// Plain bytes of applications; above 0.
    pub app_bytes: f64,
    /// What predictions saved.
    pub predicted_bytes: f64,
    /// What matching saved of what predictions left; negative where it cost more.
    pub matching_saved_bytes: f64,
    /// What zstd saved of the rest.
    pub zstd_saved_bytes: f64,
}

/// What is wrong, and what to do, without the parser's words for it.
fn syntax(error: &serde_json::Error) -> anyhow::Error {
    let (line, column) = (error.line(), error.column());
    let what = match error.is_eof() {
        true => "it is truncated".to_owned(),
        false => format!("line {line}, column {column} is invalid"),
    };
    anyhow!(
        "not the output of `refrain status --json`: {what} (save it again, with `refrain status --admin \
         ADDRESS --json > FILE`)"
    )
}

#[derive(Deserialize)]
struct Status {
    role: Option<String>,
    uptime_s: Option<f64>,
    /// Of all links since the gateway started.
    total: Option<Total>,
}

#[derive(Deserialize)]
struct Total {
    sent: Direction,
    received: Direction,
}

#[derive(Deserialize)]
struct Direction {
    app_bytes: u64,
    prediction_saved_bytes: u64,
    matching_saved_bytes: i64,
    zstd_saved_bytes: i64,
}

impl Measured {
    /// Reads a status. A far end's service sends, a near end's users receive.
    pub(super) fn parse(json: &[u8]) -> anyhow::Result<Self> {
        const OUTPUT: &str = "output of `refrain status --json`";
        ensure!(
            !json.trim_ascii().is_empty(),
            "not the {OUTPUT}: it is empty (did that command fail?)"
        );
        let status: Status = serde_json::from_slice(json).map_err(|error| syntax(&error))?;
        let missing = |field| format!("it has no `{field}`: is it the complete {OUTPUT}?");
        let total = status.total.with_context(|| missing("total"))?;
        let role = status.role.with_context(|| missing("role"))?;
        let (direction, sums) = match role.as_str() {
            "near" => ("received", total.received),
            "far" => ("sent", total.sent),
            _ => bail!("its `role` must be `near` or `far`: is it the {OUTPUT}?"),
        };
        let uptime_s = status.uptime_s.with_context(|| missing("uptime_s"))?;
        ensure!(
            uptime_s >= UPTIME_S_MIN,
            "the gateway was up for {uptime_s:.1} s, which is too short to estimate a month (take the status \
             again later: at least {UPTIME_S_MIN} s are needed, and a day or more gives a useful estimate)"
        );
        ensure!(
            sums.app_bytes > 0,
            "no data was {direction} yet, so there is nothing to estimate (use the pair, then take the status again)"
        );
        let run = Self {
            uptime_s,
            app_bytes: sums.app_bytes as f64,
            predicted_bytes: sums.prediction_saved_bytes as f64,
            matching_saved_bytes: sums.matching_saved_bytes as f64,
            zstd_saved_bytes: sums.zstd_saved_bytes as f64,
        };
        run.check_saved()?;
        Ok(run)
    }

    /// Each layer has what the one before it left.
    fn check_saved(&self) -> anyhow::Result<()> {
        let layers = [
            ("predictions", self.predicted_bytes),
            ("predictions and matching", self.matching_saved_bytes),
            ("predictions, matching and zstd", self.zstd_saved_bytes),
        ];
        let mut saved_bytes = 0.0;
        for (what, of_layer) in layers {
            saved_bytes += of_layer;
            let app_bytes = self.app_bytes;
            ensure!(
                saved_bytes <= app_bytes,
                "invalid status: {what} saved {saved_bytes} of {app_bytes} bytes, more than there were (was it \
                 edited, or joined from several?)"
            );
        }
        Ok(())
    }

    /// What a month of such traffic is, as GB.
    pub(super) fn gb_per_month(&self) -> f64 {
        self.app_bytes / 1e9 * self.times_in_month()
    }

    /// How often the run fits into a month.
    pub(super) fn times_in_month(&self) -> f64 {
        MONTH_HOURS * 3600.0 / self.uptime_s
    }

    /// What predictions kept off the wire.
    pub(super) fn predicted_share(&self) -> f64 {
        self.share(self.predicted_bytes)
    }

    /// What matching kept off the wire; 0 where it cost more than it saved.
    pub(super) fn matched_share(&self) -> f64 {
        self.share(self.matching_saved_bytes)
    }

    /// What both kept off the wire, where both did.
    pub(super) fn both_share(&self) -> Option<f64> {
        let (predicted, matched) = (self.predicted_share(), self.matched_share());
        (predicted > 0.0 && matched > 0.0).then_some((predicted + matched).min(1.0))
    }

    /// What zstd kept off the wire.
    pub(super) fn zstd_share(&self) -> f64 {
        self.share(self.zstd_saved_bytes)
    }

    fn share(&self, saved_bytes: f64) -> f64 {
        (saved_bytes / self.app_bytes).clamp(0.0, 1.0)
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
            "total": {"sent": direction(4000), "received": direction(120)},
            "peers": [{"name": null, "sent": direction(1000)}],
            "flows": [{"sent": direction(77)}],
        })
    }

    fn parse(status: &serde_json::Value) -> anyhow::Result<Measured> {
        Measured::parse(status.to_string().as_bytes())
    }

    #[test]
    fn the_direction_of_the_service_counts() {
        let far = parse(&status("far")).expect("a status");
        assert_eq!((far.app_bytes, far.uptime_s), (4000.0, 7300.0));
        assert_eq!(far.predicted_share(), 0.5);
        assert_eq!(far.matched_share(), 0.25);
        assert_eq!(far.zstd_share(), 0.0);
        // 7300 s are 1/360 of a month.
        assert!((far.gb_per_month() - 4000.0 * 360.0 / 1e9).abs() < 1e-12);
        let near = parse(&status("near")).expect("a status");
        assert_eq!(near.app_bytes, 120.0);
    }

    #[test]
    fn no_more_is_saved_than_there_was() {
        for (field, saved_bytes, who) in [
            (
                "prediction_saved_bytes",
                4001,
                "predictions saved 4001 of 4000",
            ),
            (
                "matching_saved_bytes",
                2001,
                "predictions and matching saved 4001",
            ),
            ("zstd_saved_bytes", 1001, "matching and zstd saved 4001"),
        ] {
            let with = |saved_bytes: u64| {
                let mut status = status("far");
                status["total"]["sent"][field] = json!(saved_bytes);
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
        for field in ["total", "role", "uptime_s"] {
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
        for (pointer, value, part) in [
            ("/uptime_s", json!(0), "too short"),
            ("/uptime_s", json!(-5), "too short"),
            ("/uptime_s", json!(0.5), "too short"),
            ("/uptime_s", json!(1e-300), "too short"),
            ("/role", json!("both"), "its `role` must be"),
            ("/total/sent/app_bytes", json!(-1), "not the output"),
            ("/total/sent/app_bytes", json!("many"), "not the output"),
            (
                "/total/sent/prediction_saved_bytes",
                json!(0.5),
                "not the output",
            ),
            ("/total", json!([7]), "not the output"),
            ("/total", json!({}), "not the output"),
            ("/uptime_s", json!("long"), "not the output"),
            ("/total/sent/app_bytes", json!(0), "no data was sent"),
        ] {
            let error = with(pointer, value.clone()).expect_err(part).to_string();
            assert!(error.contains(part), "{pointer} {value}: {error}");
        }
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
                "matching_saved_bytes": matched, "zstd_saved_bytes": 0,
            });
            let total = json!({"sent": sent, "received": sent});
            let status = json!({"role": "far", "uptime_s": uptime_s, "total": total});
            let measured = match parse(&status) {
                Ok(measured) => measured,
                Err(error) => {
                    let is_that = error.to_string().contains("more than there were");
                    prop_assert!(is_that, "{error}");
                    return Ok(());
                }
            };
            for share in [measured.predicted_share(), measured.matched_share()] {
                prop_assert!((0.0..=1.0).contains(&share));
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
