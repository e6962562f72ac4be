//! `refrain doctor`: what is wrong on this machine, and what to do. It changes nothing.
//!
//! A check is a function in the file of its area, and a row of [`CHECKS`]. All checks run at once, each in a thread of
//! its own: one that hangs is reported, and delays no other. What several of them need is in [`Context`].

mod answers;
mod clients;
mod clock;
mod configuration;
mod context;
mod firewall;
mod gateways;
mod input_filter;
mod interception;
mod keeper;
mod kernel;
mod path;
mod peers;
mod rules;
mod sites;
mod sockets;

use std::{
    io::{self, Write},
    path::PathBuf,
    process,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::table::{count, printable};
use context::Context;

/// How long all checks may take.
const WITHIN: Duration = Duration::from_secs(10);

/// The checks in the order of the report: area, name, function.
const CHECKS: &[(&str, &str, Check)] = &[
    ("gateways", "running", gateways::running),
    ("gateways", "link", gateways::links),
    ("gateways", "store", gateways::stores),
    ("gateways", "memory", gateways::memory),
    ("gateways", "open files", gateways::open_files),
    ("configuration", "file", configuration::file),
    ("configuration", "options", configuration::options),
    ("configuration", "key", configuration::key),
    ("configuration", "store", configuration::store),
    ("configuration", "listener", configuration::listeners),
    ("configuration", "in use", configuration::in_use),
    ("peers", "peer", peers::peers),
    ("peers", "site", sites::sites),
    ("path", "route", path::routes),
    ("path", "interface", path::missing_interfaces),
    ("path", "forwarding", path::forwarding),
    ("path", "path back", path::reverse_path_filter),
    ("kernel", "system", kernel::system),
    ("kernel", "refrain run", kernel::network_of_a_program),
    ("kernel", "nft", kernel::nft),
    ("kernel", "congestion", kernel::congestion),
    ("kernel", "IPv6", kernel::ipv6),
    ("interception", "rules", rules::rules),
    ("interception", "answers", answers::answers),
    ("interception", "gate", interception::gate),
    ("interception", "listener", interception::listener),
    ("interception", "clients", clients::clients),
    ("interception", "capability", interception::capability),
    (
        "interception",
        "control group",
        interception::control_groups,
    ),
    ("interception", "far end", interception::far_ends),
    ("interception", "other rules", interception::other_rules),
    ("interception", "input filter", input_filter::input_filter),
    ("interception", "QUIC", interception::quic),
    ("clock", "clock", clock::clock),
];

type Check = fn(&Context) -> Vec<Finding>;

#[derive(clap::Args)]
pub(crate) struct DoctorArguments {
    /// Check this configuration file of a near end or a far end too
    #[arg(long, value_name = "FILE", env = "REFRAIN_CONFIG", hide_env = true)]
    config: Option<PathBuf>,
    /// Print one JSON object with all findings
    #[arg(long)]
    json: bool,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// It may be as somebody wants it.
    Note,
    Problem,
    /// It could not be checked.
    Skipped,
}

#[derive(Debug, Serialize)]
struct Finding {
    area: &'static str,
    check: &'static str,
    state: State,
    text: String,
    /// The next step.
    advice: Option<String>,
}

impl Finding {
    fn new(state: State, text: impl Into<String>) -> Finding {
        Finding {
            area: "",
            check: "",
            state,
            text: text.into(),
            advice: None,
        }
    }

    fn ok(text: impl Into<String>) -> Finding {
        Finding::new(State::Ok, text)
    }

    fn note(text: impl Into<String>) -> Finding {
        Finding::new(State::Note, text)
    }

    fn problem(text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding::new(State::Problem, text).advise(advice)
    }

    fn skipped(text: impl Into<String>) -> Finding {
        Finding::new(State::Skipped, text)
    }

    fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }
}

pub(crate) fn run(arguments: &DoctorArguments) -> anyhow::Result<()> {
    let findings = examine(Context::new(arguments.config.clone()), CHECKS, WITHIN);
    let problems = number_of(&findings, State::Problem);
    let mut out = io::stdout().lock();
    match arguments.json {
        true => {
            let version = env!("CARGO_PKG_VERSION");
            let report = serde_json::json!({ "version": version, "findings": findings });
            writeln!(out, "{report}")?;
        }
        false => print(&findings, &mut out)?,
    }
    out.flush()?;
    match problems {
        0 => Ok(()),
        // The report has named them.
        _ => process::exit(1),
    }
}

/// Runs the checks, all at once. Those that do not end in time are problems too.
fn examine(
    context: Context,
    checks: &[(&'static str, &'static str, Check)],
    within: Duration,
) -> Vec<Finding> {
    let (context, deadline) = (Arc::new(context), Instant::now() + within);
    let begin = |&(area, check, look): &(&'static str, &'static str, Check)| {
        let (send, found) = channel();
        let context = Arc::clone(&context);
        thread::spawn(move || send.send(look(&context)));
        (area, check, found)
    };
    let running: Vec<_> = checks.iter().map(begin).collect();
    let findings = running.into_iter().flat_map(|(area, check, found)| {
        let left = deadline.saturating_duration_since(Instant::now());
        let findings = end(&found, left, within).into_iter();
        findings.map(move |finding| Finding {
            area,
            check,
            ..finding
        })
    });
    findings.collect()
}

fn end(found: &Receiver<Vec<Finding>>, left: Duration, within: Duration) -> Vec<Finding> {
    match found.recv_timeout(left) {
        Ok(findings) => findings,
        Err(RecvTimeoutError::Timeout) => vec![Finding::problem(
            format!("this check did not end within {within:?}"),
            "look for a disk, a name server or a program that hangs",
        )],
        Err(RecvTimeoutError::Disconnected) => vec![Finding::problem(
            "this check failed because of a bug",
            "please report it, with the message above",
        )],
    }
}

fn number_of(findings: &[Finding], state: State) -> u64 {
    let of_state = findings.iter().filter(|finding| finding.state == state);
    of_state.count() as u64
}

/// A round trip. A short one is not zero.
fn milliseconds(milliseconds: f64) -> String {
    match milliseconds < 0.1 {
        true => "below 0.1 ms".to_owned(),
        false => format!("{milliseconds:.1} ms"),
    }
}

/// The numbers of findings, then a line for each, below the name of its area.
fn print(findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    let [problems, notes, skipped] =
        [State::Problem, State::Note, State::Skipped].map(|state| number_of(findings, state));
    writeln!(
        out,
        "{}, {}, {skipped} skipped",
        count(problems, "problem", "problems"),
        count(notes, "note", "notes")
    )?;
    let width = findings.iter().map(|finding| finding.check.len());
    let width = width.max().unwrap_or(0);
    let mut area = "";
    for finding in findings {
        if finding.area != area {
            area = finding.area;
            writeln!(out, "{area}")?;
        }
        let state = match finding.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Problem => "problem",
            State::Skipped => "skipped",
        };
        let lines = finding.text.lines().map(str::trim);
        // Names and errors of others may have anything in them.
        let text = printable(lines.collect::<Vec<_>>().join(" "));
        let advice = finding.advice.iter().map(printable);
        let advice: String = advice.map(|advice| format!("; next: {advice}")).collect();
        writeln!(
            out,
            "  {state:<7}  {:<width$}  {text}{advice}",
            finding.check
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_hangs_or_panics_is_a_problem_and_hides_no_other() {
        let checks: &[(_, _, Check)] = &[
            ("one", "hangs", |_| {
                thread::sleep(Duration::from_secs(60));
                Vec::new()
            }),
            ("one", "panics", |_| panic!("on purpose")),
            ("two", "works", |_| vec![Finding::ok("fine")]),
        ];
        // To print a panic takes long on a busy machine.
        let context = Context::new(None);
        let findings = examine(context, checks, Duration::from_secs(5));
        let states: Vec<_> = findings.iter().map(|finding| finding.state).collect();
        assert_eq!(states, [State::Problem, State::Problem, State::Ok]);
        assert!(findings[0].text.contains("did not end"));
        assert!(findings[1].text.contains("bug"));
    }

    #[test]
    fn a_short_round_trip_is_not_zero() {
        assert_eq!(milliseconds(0.04), "below 0.1 ms");
        assert_eq!(milliseconds(0.1), "0.1 ms");
        assert_eq!(milliseconds(52.34), "52.3 ms");
    }

    #[test]
    fn lines_are_aligned_below_their_areas_and_obey_no_names() {
        let finding = |area, check, finding| Finding {
            area,
            check,
            ..finding
        };
        let findings = [
            finding("gateways", "link", Finding::ok("up")),
            finding(
                "gateways",
                "a store",
                Finding::problem("full\n\u{1b}", "clean"),
            ),
            finding("clock", "clock", Finding::skipped("none")),
        ];
        let mut out = Vec::new();
        print(&findings, &mut out).expect("memory");
        let expected = "1 problem, 0 notes, 1 skipped\ngateways\n  ok       link     up\n  \
                        problem  a store  full \\u{1b}; next: clean\nclock\n  skipped  clock    none\n";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }
}
