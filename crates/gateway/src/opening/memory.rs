//! Which clients refuse the certificates of this end's CA, and which names cannot be opened. Their connections pass.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::Mutex,
    time::{Duration, Instant},
};

use super::Refused;

/// The most that is remembered of each kind.
const ENTRIES_MAX: usize = 10_000;

/// The most that `status` names of each kind.
const SHOWN_MAX: usize = 100;

/// How long connections pass after a refusal. It doubles with each further one.
const FIRST: Duration = Duration::from_secs(3600);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How long the connections to a name pass that could not be opened.
const NAME: Duration = Duration::from_secs(600);

/// Two silent ends within this time are a refusal. One may be a browser that connects in advance.
const SILENT: Duration = Duration::from_secs(60);

/// What is remembered.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Known>);

#[derive(Default)]
struct Known {
    clients: HashMap<(IpAddr, String), Client>,
    /// Until when.
    names: HashMap<String, Instant>,
}

#[derive(Clone, Copy)]
struct Client {
    has_succeeded: bool,
    silent: Option<Instant>,
    passes_until: Option<Instant>,
    /// For how long after the next refusal.
    next: Duration,
    seen: Instant,
}

impl Memory {
    /// Whether a connection of this client to this name passes as it is.
    pub(crate) fn passes(&self, client: IpAddr, name: &str, now: Instant) -> bool {
        let known = self.lock();
        let is_later = |until: &Instant| *until > now;
        let client = known.clients.get(&(client, name.to_owned()));
        known.names.get(name).is_some_and(is_later)
            || client.is_some_and(|client| client.passes_until.as_ref().is_some_and(is_later))
    }

    /// A client uses a connection that was opened.
    pub(crate) fn succeeded(&self, client: IpAddr, name: &str, now: Instant) {
        let mut known = self.lock();
        let entry = known.client(client, name, now);
        *entry = Client {
            has_succeeded: true,
            ..Client::new(now)
        };
    }

    /// A client's connection was lost by this. Returns for how long its further ones pass, if they do.
    pub(crate) fn refused(
        &self,
        client: IpAddr,
        name: &str,
        refused: Refused,
        now: Instant,
    ) -> Option<Duration> {
        let mut known = self.lock();
        let entry = known.client(client, name, now);
        entry.seen = now;
        let is_certain = match refused {
            Refused::Certificate | Refused::Incompatible => true,
            Refused::Silently => {
                let before = entry.silent.replace(now);
                !entry.has_succeeded && before.is_some_and(|before| now - before <= SILENT)
            }
        };
        if !is_certain {
            return None;
        }
        let passes = entry.next;
        entry.passes_until = Some(now + passes);
        entry.next = (2 * passes).min(LONGEST);
        entry.silent = None;
        Some(passes)
    }

    /// Connections to this name cannot be opened. Returns whether this is new.
    pub(crate) fn cannot_open(&self, name: &str, now: Instant) -> bool {
        let mut known = self.lock();
        make_room(&mut known.names, |&until| until);
        known
            .names
            .insert(name.to_owned(), now + NAME)
            .is_none_or(|until| until <= now)
    }

    /// How many clients and how many names pass.
    pub(crate) fn counts(&self, now: Instant) -> (usize, usize) {
        let known = self.lock();
        let passes = |client: &&Client| client.passes_until.is_some_and(|until| until > now);
        let clients = known.clients.values().filter(passes).count();
        let names = known.names.values().filter(|&&until| until > now).count();
        (clients, names)
    }

    /// Some of the clients that refuse, with the name, and some of the names that pass.
    pub(crate) fn passing(&self, now: Instant) -> (Vec<String>, Vec<String>) {
        let known = self.lock();
        let is_later = |until: &Instant| *until > now;
        let clients = known.clients.iter();
        let clients =
            clients.filter(|(_, client)| client.passes_until.as_ref().is_some_and(is_later));
        let clients = clients.map(|((address, name), _)| format!("{address} to {name}"));
        let names = known.names.iter().filter(|(_, until)| is_later(until));
        let names = names.map(|(name, _)| name.clone());
        (some_of(clients), some_of(names))
    }

    /// Forgets all, as after a change of the CA.
    pub(crate) fn clear(&self) {
        *self.lock() = Known::default();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().expect("held for a moment")
    }
}

impl Known {
    fn client(&mut self, client: IpAddr, name: &str, now: Instant) -> &mut Client {
        let key = (client, name.to_owned());
        if !self.clients.contains_key(&key) {
            make_room(&mut self.clients, |client| client.seen);
        }
        self.clients.entry(key).or_insert_with(|| Client::new(now))
    }
}

impl Client {
    fn new(now: Instant) -> Client {
        Client {
            has_succeeded: false,
            silent: None,
            passes_until: None,
            next: FIRST,
            seen: now,
        }
    }
}

/// The first of them in their order.
fn some_of(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut texts: Vec<String> = texts.collect();
    texts.sort_unstable();
    texts.truncate(SHOWN_MAX);
    texts
}

/// Removes the oldest half of a table that is full.
fn make_room<K: Hash + Eq, V>(table: &mut HashMap<K, V>, age: impl Fn(&V) -> Instant) {
    if table.len() < ENTRIES_MAX {
        return;
    }
    let mut ages: Vec<Instant> = table.values().map(&age).collect();
    let middle = ages.len() / 2;
    let (_, &mut median, _) = ages.select_nth_unstable(middle);
    table.retain(|_, value| age(value) > median);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_refusal_is_remembered_for_twice_as_long_each_time() {
        let (memory, mut now) = (Memory::default(), Instant::now());
        for hours in [1, 2, 4, 8, 16, 24, 24] {
            assert!(!memory.passes(CLIENT, "a", now));
            let passes = memory.refused(CLIENT, "a", Refused::Certificate, now);
            assert_eq!(passes, Some(Duration::from_secs(hours * 3600)));
            assert!(memory.passes(CLIENT, "a", now + passes.unwrap() - SECOND));
            assert!(!memory.passes(CLIENT, "b", now), "another name");
            assert!(
                !memory.passes([192, 0, 2, 1].into(), "a", now),
                "another client"
            );
            now += passes.unwrap() + SECOND;
        }
        memory.succeeded(CLIENT, "a", now);
        assert_eq!(
            memory.refused(CLIENT, "a", Refused::Certificate, now),
            Some(FIRST)
        );
        memory.clear();
        assert!(!memory.passes(CLIENT, "a", now));
    }

    #[test]
    fn silent_ends_count_twice_within_a_minute_and_never_of_a_client_that_succeeded() {
        let (memory, now) = (Memory::default(), Instant::now());
        let silent = |now| memory.refused(CLIENT, "a", Refused::Silently, now);
        assert_eq!(silent(now), None);
        assert_eq!(silent(now + 61 * SECOND), None, "too late");
        assert_eq!(silent(now + 62 * SECOND), Some(FIRST));
        memory.succeeded(CLIENT, "a", now);
        assert_eq!(silent(now), None);
        assert_eq!(silent(now), None);
    }

    #[test]
    fn a_name_passes_for_ten_minutes() {
        let (memory, now) = (Memory::default(), Instant::now());
        assert!(memory.cannot_open("a", now));
        assert!(!memory.cannot_open("a", now));
        assert!(memory.passes(CLIENT, "a", now + NAME - SECOND));
        assert!(!memory.passes(CLIENT, "a", now + NAME));
        memory.refused(CLIENT, "b", Refused::Certificate, now);
        assert_eq!(memory.counts(now), (1, 1));
        let shown = (vec![format!("{CLIENT} to b")], vec!["a".to_owned()]);
        assert_eq!(memory.passing(now), shown);
        assert_eq!(memory.passing(now + FIRST), (Vec::new(), Vec::new()));
        assert_eq!(memory.counts(now + NAME), (1, 0));
        assert_eq!(memory.counts(now + FIRST), (0, 0));
    }

    #[test]
    fn a_flood_keeps_the_youngest() {
        let (memory, now) = (Memory::default(), Instant::now());
        for number in 0..3 * ENTRIES_MAX as u32 {
            let later = now + number * Duration::from_millis(1);
            memory.refused(CLIENT, &number.to_string(), Refused::Certificate, later);
            memory.cannot_open(&number.to_string(), later);
        }
        let known = memory.lock();
        assert!(known.clients.len() <= ENTRIES_MAX && known.names.len() <= ENTRIES_MAX);
        let last = (3 * ENTRIES_MAX - 1).to_string();
        assert!(known.clients.contains_key(&(CLIENT, last.clone())));
        assert!(known.names.contains_key(&last));
    }
}
