//! What `refrain doctor --json` found.

use std::process::Output;

use serde_json::Value;

pub(crate) struct Findings {
    findings: Vec<Value>,
    code: Option<i32>,
}

impl Findings {
    /// Reads the output of the command.
    #[track_caller]
    pub(crate) fn of(output: &Output) -> Findings {
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
        let findings = report["findings"].as_array().expect("findings").clone();
        for finding in &findings {
            let is_known =
                ["ok", "note", "problem", "skipped"].map(|state| finding["state"] == state);
            assert!(is_known.contains(&true), "{finding}");
            let needs_advice = finding["state"] == "problem";
            assert!(!needs_advice || finding["advice"].is_string(), "{finding}");
        }
        let code = output.status.code();
        Findings { findings, code }
    }

    /// The problems, as `area check: text`. They decide the exit code.
    #[track_caller]
    pub(crate) fn problems(&self) -> Vec<String> {
        let problems = self
            .findings
            .iter()
            .filter(|finding| finding["state"] == "problem");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let problems = problems.map(|finding| {
            let parts = ["area", "check", "text"].map(|part| text(&finding[part]));
            format!("{} {}: {}", parts[0], parts[1], parts[2])
        });
        let problems: Vec<_> = problems.collect();
        assert_eq!(
            self.code,
            Some(i32::from(!problems.is_empty())),
            "{problems:?}"
        );
        problems
    }

    /// How many findings a check has.
    pub(crate) fn count(&self, check: &str) -> usize {
        let findings = self.findings.iter();
        findings.filter(|found| found["check"] == check).count()
    }

    /// Whether a check found anything with this part in its text or its advice.
    pub(crate) fn has(&self, check: &str, part: &str) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| {
            let text = format!("{} {}", finding["text"], finding["advice"]);
            finding["check"] == check && text.contains(part)
        })
    }

    /// Whether a check found this, with all of these parts in its text and its advice.
    #[track_caller]
    pub(crate) fn expect(&self, state: &str, check: &str, parts: &[&str]) {
        let is_it = |finding: &&Value| {
            let text = format!("{} {}", finding["text"], finding["advice"]);
            finding["state"] == state
                && finding["check"] == check
                && parts.iter().all(|part| text.contains(part))
        };
        let found = self.findings.iter().find(is_it);
        assert!(
            found.is_some(),
            "no {state} of {check} with {parts:?}: {:#?}",
            self.findings
        );
    }
}
