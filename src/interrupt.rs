//! Ctrl-C: what is being done is given up, and what is to be tidied up is.

use std::{
    error::Error,
    fmt, io,
    ops::ControlFlow,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

/// The exit code of a program that Ctrl-C ended: 128 and the signal's number.
pub const EXIT_CODE: u8 = 130;

/// Whether Ctrl-C was pressed. Shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes Ctrl-C from now on. A second one ends the program at once.
    pub fn listen() -> io::Result<Self> {
        let interrupt = Self::default();
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let mut signals = {
            let _entered = runtime.enter();
            signal(SignalKind::interrupt())?
        };
        let first = interrupt.clone();
        thread::spawn(move || {
            runtime.block_on(signals.recv());
            first.set();
            runtime.block_on(signals.recv());
            process::exit(EXIT_CODE.into());
        });
        Ok(interrupt)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// After Ctrl-C.
    pub fn check(&self) -> Result<(), Interrupted> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Interrupted),
            false => Ok(()),
        }
    }

    /// Whether to go on, as those that report their progress are told.
    pub fn flow(&self) -> ControlFlow<()> {
        match self.check() {
            Ok(()) => ControlFlow::Continue(()),
            Err(Interrupted) => ControlFlow::Break(()),
        }
    }

    /// What became of something: after Ctrl-C, its error is that.
    pub fn or<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        match self.check() {
            Ok(()) => result,
            Err(interrupted) => result.map_err(|_| interrupted.into()),
        }
    }
}

/// Why not all was done.
#[derive(Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl Error for Interrupted {}
