//! What may change while a gateway runs: rules and time-outs, replaced whole on SIGHUP.

use std::sync::{Arc, RwLock};

use crate::{
    access::Access,
    config::{CommonConfig, Timeouts},
    rules::{AllowRules, ExcludeRules},
};

/// Rules and time-outs that new flows obey.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Where this end connects to for its peer.
    pub allow: AllowRules,
    /// What is sent as it is.
    pub exclude: ExcludeRules,
    /// Who may use the listeners for applications.
    pub access: Access,
    /// When to give up.
    pub timeouts: Timeouts,
}

/// The policy of the moment.
#[derive(Debug)]
pub struct SharedPolicy(RwLock<Arc<Policy>>);

impl SharedPolicy {
    /// The policy that `config` states.
    pub fn new(config: &CommonConfig) -> SharedPolicy {
        SharedPolicy(RwLock::new(Arc::new(Policy::of(config))))
    }

    /// The present policy.
    pub fn load(&self) -> Arc<Policy> {
        Arc::clone(&self.0.read().expect("held for a moment"))
    }

    /// From now on, the policy that `config` states.
    pub fn replace(&self, config: &CommonConfig) {
        *self.0.write().expect("held for a moment") = Arc::new(Policy::of(config));
    }
}

impl Policy {
    fn of(config: &CommonConfig) -> Policy {
        Policy {
            allow: config.allow.clone(),
            exclude: config.exclude.clone(),
            access: config.access.clone(),
            timeouts: config.timeouts,
        }
    }
}
