//! A value that is replaced whole while others use it, as a reload does.

use std::sync::{Arc, PoisonError, RwLock};

/// The value of the moment.
#[derive(Debug, Default)]
pub struct Shared<T>(RwLock<Arc<T>>);

impl<T> Shared<T> {
    /// Shares this value.
    pub fn new(value: T) -> Shared<T> {
        Shared(RwLock::new(Arc::new(value)))
    }

    /// The value as it is now.
    pub fn load(&self) -> Arc<T> {
        // A writer only swaps a pointer, so a poisoned lock still guards a whole value.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the value.
    pub fn replace(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}
