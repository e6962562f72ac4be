//! Signals that ask to end: Ctrl-C, SIGTERM, and SIGHUP when the terminal goes. What is being done is
//! given up, and what is to be tidied up is.

use std::{
    io,
    ops::ControlFlow,
    process,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
};

/// What a signal's number is added to, as shells do: the exit code of who it ended.
pub(crate) const EXIT_CODE_BASE: u8 = 128;

/// The exit code of who ends by a hangup.
pub(crate) const HANGUP: u8 = EXIT_CODE_BASE + 1;

/// Whether somebody asked to end, and how. Shared by its clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    /// The exit code of who is ended so; 0 while nobody asked.
    exit_code: Arc<AtomicU8>,
}

impl Interrupt {
    /// Takes signals from now on. A second one ends the program at once.
    pub(crate) fn listen() -> io::Result<Self> {
        let interrupt = Self::default();
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let mut signals = {
            let _entered = runtime.enter();
            Signals::listen()?
        };
        let first = interrupt.clone();
        let started = thread::Builder::new().spawn(move || {
            first.set(runtime.block_on(signals.next()));
            process::exit(runtime.block_on(signals.next()).into());
        });
        match started {
            Ok(_) => Ok(interrupt),
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                Err(io::Error::new(error.kind(), reason))
            }
        }
    }

    /// Somebody asked, in a way that gives this exit code.
    pub(crate) fn set(&self, exit_code: u8) {
        self.exit_code.store(exit_code, Ordering::Relaxed);
    }

    /// # Errors
    /// Once somebody asked.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        match self.exit_code.load(Ordering::Relaxed) {
            0 => Ok(()),
            exit_code => Err(Interrupted { exit_code }),
        }
    }

    /// Whether to go on, as those that report their progress are told.
    pub(crate) fn flow(&self) -> ControlFlow<()> {
        match self.check() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    /// What became of something: after a signal, its error is that.
    pub(crate) fn or<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        match self.check() {
            Ok(()) => result,
            Err(interrupted) => result.map_err(|_| interrupted.into()),
        }
    }
}

/// The signals that ask to end.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    /// Takes them, within a runtime. A hangup stays ignored where `nohup` has it so.
    pub(crate) fn listen() -> io::Result<Self> {
        Self::with_hangup(!is_ignored(SignalKind::hangup()))
    }

    /// Takes them, and a hangup if that means something.
    pub(crate) fn with_hangup(has_hangup: bool) -> io::Result<Self> {
        let hangup = has_hangup.then(|| signal(SignalKind::hangup()));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: hangup.transpose()?,
        })
    }

    /// Waits for the next one: the exit code of who ends by it.
    pub(crate) async fn next(&mut self) -> u8 {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = hangup => return HANGUP,
        };
        EXIT_CODE_BASE + kind.as_raw_value() as u8
    }
}

/// Whether whoever started the program has it ignore a signal; told on Linux alone.
pub(crate) fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}

/// Why not all was done.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted {
    /// The exit code that says so.
    pub exit_code: u8,
}
