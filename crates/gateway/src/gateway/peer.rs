//! A peer, its links, and what is known of them.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::choice::Prospect;
use crate::{
    keys::PublicKey, last_error::Trouble, link::SharedLink, offered::Targets, tls::ClientTls,
};

/// A peer of the gateway.
pub(super) struct Peer {
    pub(super) key: PublicKey,
    /// Its links, the youngest last; one at most if this end dials it.
    links: Mutex<Vec<Arc<SharedLink>>>,
    pub(super) trouble: Trouble,
    /// Where its flows may lead.
    pub(super) targets: Targets,
    pub(super) dialled: Option<Dialled>,
}

/// A peer that this end dials.
pub(super) struct Dialled {
    pub(super) address: String,
    pub(super) tls: ClientTls,
    outlook: Mutex<Outlook>,
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
    pub(super) fn new(key: PublicKey, targets: Targets, dial: Option<(String, ClientTls)>) -> Peer {
        let trouble = Trouble::default();
        let dialled = dial.map(|(address, tls)| {
            trouble.note("not connected yet".to_owned());
            Dialled {
                address,
                tls,
                outlook: Mutex::new(Outlook::Dialling),
                wanted: Notify::new(),
            }
        });
        Peer {
            key,
            links: Mutex::default(),
            trouble,
            targets,
            dialled,
        }
    }

    /// Its links, to read and to change.
    pub(super) fn lock_links(&self) -> MutexGuard<'_, Vec<Arc<SharedLink>>> {
        self.links.lock().expect("held for a moment")
    }

    pub(super) fn links(&self) -> Vec<Arc<SharedLink>> {
        self.lock_links().clone()
    }

    /// How it stands for a flow that came then. One that this end does not dial is there within
    /// `dead_after` of the loss of its last lane, or of this end's start: so long flows wait.
    pub(super) fn prospect(
        &self,
        came: Instant,
        (started, dead_after): (Instant, Duration),
    ) -> Prospect<Arc<SharedLink>> {
        let links = self.links();
        if let Some(up) = links.iter().rev().find(|link| link.is_up()) {
            return Prospect::Up(Arc::clone(up));
        }
        if let Some(dialled) = &self.dialled {
            return match dialled.outlook() {
                Outlook::Dialling | Outlook::Up => Prospect::Awaited(None),
                // It may be back since.
                Outlook::Refused(at) if at < came => Prospect::Awaited(None),
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

    /// Says whether that is news.
    pub(super) fn set_outlook(&self, outlook: Outlook) -> bool {
        let mut present = self.outlook.lock().expect("held for a moment");
        std::mem::replace(&mut *present, outlook) != outlook
    }
}
