//! What last went wrong, and when: for those who look later.

use std::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

/// An error, and when it was last met.
#[derive(Debug, Clone)]
pub struct LastError {
    /// In words.
    pub text: String,
    /// When it was last met.
    pub at: Instant,
}

/// The last error of something, until it goes well again.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Mutex<Option<LastError>>);

impl LastError {
    /// One that is met now.
    pub(crate) fn new(text: String) -> Self {
        Self {
            text,
            at: Instant::now(),
        }
    }

    /// Seconds since it was last met.
    pub fn age_s(&self) -> f64 {
        self.at.elapsed().as_secs_f64()
    }
}

impl Trouble {
    /// It goes wrong; says whether in another way than before.
    pub(crate) fn note(&self, text: String) -> bool {
        let mut last = self.lock();
        let is_new = last.as_ref().is_none_or(|last| last.text != text);
        *last = Some(LastError::new(text));
        is_new
    }

    /// It goes well; says whether it did not before.
    pub(crate) fn clear(&self) -> bool {
        self.lock().take().is_some()
    }

    pub(crate) fn last(&self) -> Option<LastError> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<LastError>> {
        self.0.lock().expect("held for a moment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_again_is_no_news_and_has_a_new_time() {
        let trouble = Trouble::default();
        assert!(!trouble.clear());
        assert!(trouble.note("a".to_owned()));
        let first = trouble.last().expect("an error").at;
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(!trouble.note("a".to_owned()));
        let last = trouble.last().expect("an error");
        assert!(last.at > first && last.age_s() < 60.0);
        assert!(trouble.note("b".to_owned()) && trouble.clear());
        assert!(trouble.last().is_none());
    }
}
