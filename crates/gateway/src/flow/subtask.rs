//! Parts of a task that may end before the task does.

use std::{future::pending, pin::Pin};

/// A part of a task, boxed: its memory is freed when it ends. Many tasks wait for long.
pub(crate) struct Subtask<F>(Option<Pin<Box<F>>>);

impl<F: Future> Subtask<F> {
    pub(crate) fn new(future: F) -> Subtask<F> {
        Subtask(Some(Box::pin(future)))
    }

    /// One that has ended.
    pub(crate) fn none() -> Subtask<F> {
        Subtask(None)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.is_none()
    }

    /// Continues up to its end, which comes once. May be given up at any time.
    pub(crate) async fn end(&mut self) -> F::Output {
        let Some(future) = &mut self.0 else {
            return pending().await;
        };
        let output = future.await;
        self.0 = None;
        output
    }
}
