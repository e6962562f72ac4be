//! Puts what several threads have worked on back in order.

use std::collections::VecDeque;

/// Takes numbered things in any order, and gives them in that of their numbers, from 0 on.
///
/// It holds no more than there are between the lowest number that is missing and the highest that
/// came: what is under way at once.
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    /// That of the first place.
    next: u64,
    waiting: VecDeque<Option<T>>,
}

impl<T> InOrder<T> {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Takes the one with this number, which comes once.
    pub(crate) fn put(&mut self, number: u64, item: T) {
        let place = usize::try_from(number - self.next).expect("what is under way fits memory");
        if place >= self.waiting.len() {
            self.waiting.resize_with(place + 1, || None);
        }
        debug_assert!(self.waiting[place].is_none());
        self.waiting[place] = Some(item);
    }

    /// The next one, if it has come.
    pub(crate) fn take(&mut self) -> Option<T> {
        let item = self.waiting.front_mut()?.take()?;
        self.waiting.pop_front();
        self.next += 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_comes_in_any_order_leaves_in_that_of_numbers(
            numbers in Just((0..50_u64).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut in_order = InOrder::new();
            let mut left = Vec::new();
            for (count, number) in (1..).zip(numbers) {
                in_order.put(number, number);
                left.extend(std::iter::from_fn(|| in_order.take()));
                prop_assert!(left.len() <= count);
            }
            prop_assert!(left.into_iter().eq(0..50));
        }
    }
}
