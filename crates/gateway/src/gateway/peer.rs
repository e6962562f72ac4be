//! A peer, its links, and what is known of them.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore, watch},
    time::Instant,
};

use super::choice::Prospect;
use crate::{
    keys::{PublicKey, SharedPeerKeys},
    last_error::Trouble,
    link::SharedLink,
    offered::Targets,
    target::Target,
    tls::ClientTls,
};

/// Checks of one peer at once.
pub(super) const CHECKS_MAX: usize = 4;

/// A peer of the gateway.
pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    keys: Arc<SharedPeerKeys>,
    /// Its links, the youngest last; one at most if this end dials it.
    links: Mutex<Vec<Arc<SharedLink>>>,
    /// The rung of effort that the last lane left its link on.
    effort_rung: Mutex<Option<usize>>,
    pub(crate) trouble: Trouble,
    /// A permit for each check that it may make at once.
    pub(super) checks: Semaphore,
    /// Where its flows may lead.
    pub(super) targets: Targets,
    pub(crate) dialled: Option<Dialled>,
}

/// A peer that this end dials.
pub(crate) struct Dialled {
    pub(crate) address: Target,
    pub(super) tls: ClientTls,
    outlook: Mutex<Outlook>,
    /// Changes with it.
    changes: watch::Sender<()>,
    /// A connection waits for the peer to be dialled, without a rest.
    pub(super) wanted: Notify,
}

/// What the dialler knows of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// A lane is being dialled, and may come up.
    Dialling,
    /// A lane is up.
    Up,
    /// The peer refused the last connection then, or was out of reach. Once its machine takes
    /// connections again, it may be back.
    Refused(Instant),
    /// The peer fell silent while the link was up, or answers no more where it refused before. Its
    /// machine may still take connections: only a handshake says that it is back.
    Silent,
}

impl Peer {
    /// A peer without links, which is dialled at `dial` if this end dials it.
    pub(super) fn new(
        key: PublicKey,
        keys: Arc<SharedPeerKeys>,
        targets: Targets,
        dial: Option<(Target, ClientTls, watch::Sender<()>)>,
    ) -> Peer {
        let trouble = Trouble::default();
        let dialled = dial.map(|(address, tls, changes)| {
            trouble.note("not connected yet".to_owned());
            Dialled {
                address,
                tls,
                outlook: Mutex::new(Outlook::Dialling),
                changes,
                wanted: Notify::new(),
            }
        });
        Peer {
            key,
            keys,
            links: Mutex::default(),
            effort_rung: Mutex::default(),
            checks: Semaphore::new(CHECKS_MAX),
            trouble,
            targets,
            dialled,
        }
    }

    /// Its name, or at a near end its address.
    pub(crate) fn name(&self) -> Option<String> {
        self.keys.load().name(&self.key).map(str::to_owned)
    }

    /// What logs and tables call it.
    pub(super) fn label(&self) -> String {
        self.keys.load().label(&self.key)
    }

    /// Notes what went wrong with its lanes. It is logged if it is news, unless it was `announced`: a
    /// peer that shuts down says so, and that it is gone then is no news.
    pub(super) fn note_error(&self, error: String, announced: bool) {
        match self.trouble.note(error.clone()) {
            true if announced => tracing::debug!(peer = %self.label(), "{error}"),
            true => tracing::warn!(peer = %self.label(), "{error}"),
            false => {}
        }
    }

    /// A lane of `link` has ended: the next link begins with the effort that this one came to.
    pub(super) fn remember_effort(&self, link: &SharedLink) {
        let rung = link.with(|link, _| link.effort_rung());
        *self.effort_rung.lock().expect("held for a moment") = Some(rung);
    }

    /// The rung of effort that a link had come to, if there was one.
    pub(super) fn effort_rung(&self) -> Option<usize> {
        *self.effort_rung.lock().expect("held for a moment")
    }

    /// Whether a lane to it has ended.
    fn had_lanes(&self) -> bool {
        self.effort_rung().is_some()
    }

    /// How this end dials it.
    pub(super) fn dialled(&self) -> &Dialled {
        self.dialled.as_ref().expect("this end dials it")
    }

    /// Its links, to read and to change.
    pub(super) fn lock_links(&self) -> MutexGuard<'_, Vec<Arc<SharedLink>>> {
        self.links.lock().expect("held for a moment")
    }

    pub(crate) fn links(&self) -> Vec<Arc<SharedLink>> {
        self.lock_links().clone()
    }

    /// How it stands for a flow that came then. One that this end does not dial is there within
    /// `dead_after` of the loss of its last lane, or of this end's start: so long flows wait. For one that this end
    /// dials, and that had lanes, a flow waits for `dead_after`.
    ///
    /// A flow that no other peer could take follows this end's hello at once. With others to turn to it
    /// waits for the answer, since a request is not sent to two peers.
    pub(super) fn prospect(
        &self,
        came: Instant,
        started: Instant,
        dead_after: Duration,
        is_only: bool,
    ) -> Prospect<Arc<SharedLink>> {
        let links = self.links();
        if let Some(link) = links.iter().rev().find(|link| link.is_up()) {
            let link = Arc::clone(link);
            return match link.with(|link, _| link.peer_is_draining()) {
                true => Prospect::Leaving(link),
                false => Prospect::Up(link),
            };
        }
        if let Some(dialled) = &self.dialled {
            let takes_early =
                |link: &&Arc<SharedLink>| link.with(|link, _| link.takes_early_flows());
            if let Some(link) = links.last().filter(takes_early).filter(|_| is_only) {
                return Prospect::Up(Arc::clone(link));
            }
            // One that had lanes has as long to answer as one that has some.
            let until = self.had_lanes().then_some(came + dead_after);
            let awaited = match until {
                Some(until) if until <= Instant::now() => Prospect::Gone,
                until => Prospect::Awaited(until),
            };
            return match dialled.outlook() {
                Outlook::Dialling | Outlook::Up => awaited,
                // It may be back since.
                Outlook::Refused(at) if at < came => awaited,
                Outlook::Refused(_) | Outlook::Silent => Prospect::Gone,
            };
        }
        let since = links.last().and_then(|link| link.lanes_gone_at());
        let until = since.unwrap_or(started) + dead_after;
        match Instant::now() < until {
            true => Prospect::Awaited(Some(until)),
            false => Prospect::Gone,
        }
    }

    /// A flow waits for it: one that refused before is dialled without a rest.
    pub(super) fn want_dial(&self) {
        if let Some(dialled) = &self.dialled
            && let Outlook::Refused(_) = dialled.outlook()
        {
            dialled.wanted.notify_one();
        }
    }
}

impl Dialled {
    pub(super) fn outlook(&self) -> Outlook {
        *self.outlook.lock().expect("held for a moment")
    }

    pub(super) fn note_outlook(&self, outlook: Outlook) {
        let mut present = self.outlook.lock().expect("held for a moment");
        if std::mem::replace(&mut *present, outlook) != outlook {
            self.changes.send_replace(());
        }
    }

    /// The peer gave a sign of life that ends such an outlook.
    pub(super) fn is_back_from(&self, ends: impl Fn(Outlook) -> bool) {
        if ends(self.outlook()) {
            self.note_outlook(Outlook::Dialling);
        }
    }
}
