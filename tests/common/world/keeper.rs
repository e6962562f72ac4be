//! The processes that keep the rules of a world.

use std::{
    fs::{self, File},
    process::Command,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{USER, World};
use crate::common::eventually;

impl World {
    #[track_caller]
    pub(crate) fn intercept(&self) {
        self.intercept_with(&[]);
    }

    /// `refrain intercept on` with these arguments after those of the near end.
    #[track_caller]
    pub(crate) fn intercept_with(&self, arguments: &[&str]) {
        let config = self.path("near.toml");
        self.keep(&self.site, &on(&config, arguments));
    }

    /// `refrain intercept on` for the far end.
    #[track_caller]
    pub(crate) fn intercept_far(&self) {
        let config = self.path("far.toml");
        let on = ["intercept", "on", "--far", "--config", &config];
        self.keep(&self.service, &on);
    }

    /// Runs this command, in place of the last one there, until the end, and waits until it has loaded the rules.
    #[track_caller]
    pub(crate) fn keep(&self, namespace: &str, arguments: &[&str]) {
        let mut command = self.keeping(namespace);
        self.keep_by(namespace, command.args(arguments));
    }

    /// The same with a command of the caller's. Returns its messages.
    #[track_caller]
    pub(crate) fn keep_by(&self, namespace: &str, command: &mut Command) -> String {
        self.end_keeping(namespace);
        let log = self.path("intercept.log");
        let written = File::create(&log).expect("a log");
        let mut child = command.stderr(written).spawn().expect("it runs");
        let said = eventually("rules that are loaded", || {
            let said = fs::read_to_string(&log).expect("a log");
            if let Some(status) = child.try_wait().expect("a child") {
                panic!("{command:?}: {status}: {said}");
            }
            said.contains("the rules are loaded").then_some(said)
        });
        let mut kept = self.kept.lock().expect("no panic");
        kept.insert(namespace.to_owned(), child);
        said
    }

    /// `refrain` with the capabilities of the unit that keeps rules, and no others.
    pub(crate) fn keeping(&self, namespace: &str) -> Command {
        const UNIT: &str = include_str!("../../../packaging/systemd/refrain-intercept.service");
        let mut lines = UNIT.lines();
        let all = lines.find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let all = all.expect("capabilities").to_lowercase();
        let all: String = all
            .split(' ')
            .map(|one| one.replace("cap_", ",+"))
            .collect();
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{namespace}"))
            .arg("setpriv")
            .arg(format!("--bounding-set=-all{all}"))
            .arg(env!("CARGO_BIN_EXE_refrain"));
        command
    }

    /// Sends a signal to the process that keeps the rules there.
    #[track_caller]
    pub(crate) fn signal_keeper(&self, namespace: &str, signal: Signal) {
        let kept = self.kept.lock().expect("no panic");
        let child = kept.get(namespace).expect("it runs");
        let process = Pid::from_raw(child.id() as i32).expect("a process");
        kill_process(process, signal).expect("it runs");
    }

    /// Ends the process that keeps the rules there, if there is one.
    #[track_caller]
    pub(crate) fn end_keeping(&self, namespace: &str) {
        let kept = self.kept.lock().expect("no panic").remove(namespace);
        if let Some(mut child) = kept {
            let process = Pid::from_raw(child.id() as i32).expect("a process");
            kill_process(process, Signal::TERM).expect("it was not waited for");
            child.wait().expect("it ends");
        }
    }
}

/// The arguments of `refrain intercept on` for the near end with this file, and these.
pub(crate) fn on<'a>(config: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [
        &["intercept", "on", "--config", config, "--user", USER],
        arguments,
    ]
    .concat()
}
