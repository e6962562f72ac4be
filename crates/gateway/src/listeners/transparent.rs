//! Connections that the kernel redirected here: each is a flow to its original destination.

use std::{io, sync::Arc};

use super::Client;
use crate::redirected::original_target;

impl Client {
    pub(super) async fn transparent(self) -> io::Result<()> {
        // First: whatever happens from here on, the client sees a reset and not an end.
        self.reset()?;
        let listener = Arc::clone(&self.listener);
        if listener.gateway.gate.is_probe(self.tcp.peer_addr()?) {
            return Ok(());
        }
        let redirected = listener.redirected.as_ref();
        let names = redirected.map(|redirected| &*redirected.names);
        match original_target(&self.tcp, names) {
            Ok(target) => self.carry("redirected", &target).await,
            Err(error) => {
                let reason = format!("reset a connection from {}: {error}", self.address);
                listener.refuse(&error, reason);
                Ok(())
            }
        }
    }
}
