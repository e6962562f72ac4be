//! The realms of a store, by number.

use std::collections::HashMap;

use super::{NO_REALM, RealmNumber};
use crate::Realm;

/// Realms have small numbers while a store is open.
#[derive(Default)]
pub(crate) struct Realms {
    realms: Vec<Realm>,
    numbers: HashMap<Realm, RealmNumber>,
}

impl Realms {
    pub(crate) fn number(&self, realm: Realm) -> Option<RealmNumber> {
        self.numbers.get(&realm).copied()
    }

    /// The number of a realm, a new one if it has none; nothing if all are taken.
    pub(crate) fn number_or_new(&mut self, realm: Realm) -> Option<RealmNumber> {
        if let Some(number) = self.number(realm) {
            return Some(number);
        }
        let number = RealmNumber::try_from(self.realms.len()).ok();
        let number = number.filter(|&number| number != NO_REALM)?;
        self.realms.push(realm);
        self.numbers.insert(realm, number);
        Some(number)
    }

    pub(crate) fn realm(&self, number: RealmNumber) -> Realm {
        self.realms[usize::from(number)]
    }

    pub(crate) fn len(&self) -> usize {
        self.realms.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Realm> {
        self.realms.iter().copied()
    }
}
