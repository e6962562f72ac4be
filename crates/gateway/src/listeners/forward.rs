//! Connections of a forward: each is a flow to one target.

use std::{io, sync::Arc, time::Duration};

use socket2::SockRef;

use super::Client;
use crate::{flow::FlowHandle, intercept::handling::Carriage, refusal::Refusal, target::Target};

impl Client {
    pub(super) async fn forward(self) -> io::Result<()> {
        let listener = Arc::clone(&self.listener);
        let target = listener.way_in.target.as_ref();
        let target = target.expect("a forward has a target");
        let how = self.plain_carriage(target);
        self.carry("forwarded", target, how, Vec::new()).await
    }

    /// Passes `early` and then the bytes of a client that speaks to its target from the start: it learns of a refusal by
    /// a reset.
    pub(super) async fn carry(
        self,
        kind: &str,
        target: &Target,
        how: Carriage,
        early: Vec<u8>,
    ) -> io::Result<()> {
        let opened = self.open(target, how).await;
        self.carry_opened(kind, target, opened, early).await
    }

    /// The same with a flow that was opened, or refused.
    pub(super) async fn carry_opened(
        self,
        kind: &str,
        target: &Target,
        opened: Result<FlowHandle, Refusal>,
        early: Vec<u8>,
    ) -> io::Result<()> {
        let listener = Arc::clone(&self.listener);
        let peer = listener.gateway.config.role.peer();
        let refused = |refusal: Refusal| {
            let reason = refusal.describe(peer);
            listener.note_limit(&refusal);
            listener.refuse(
                &refusal,
                format!("refused a {kind} connection to {target}: {reason}"),
            );
        };
        match opened {
            Ok(flow) => {
                // Bytes flow before the target has answered: a refusal resets them.
                self.run(flow, early).await.into_iter().for_each(refused);
                Ok(())
            }
            Err(refusal) => {
                refused(refusal);
                self.reset()
            }
        }
    }

    /// Has the client's connection end by a reset, now and in the case of this process's death.
    pub(super) fn reset(&self) -> io::Result<()> {
        SockRef::from(self.connection.tcp()?).set_linger(Some(Duration::ZERO))
    }
}
