//! Connections of a forward: each is a flow to one target.

use std::{io, sync::Arc, time::Duration};

use super::Client;
use crate::refusal::Refusal;

impl Client {
    pub(super) async fn forward(self) -> io::Result<()> {
        let listener = Arc::clone(&self.listener);
        let target = listener.way_in.target.as_ref();
        let target = target.expect("a forward has a target");
        let peer = listener.gateway.config.role.peer();
        let refused = |refusal: Refusal| {
            let reason = refusal.describe(peer);
            listener.refuse(
                &refusal,
                format!("refused a forwarded connection to {target}: {reason}"),
            );
        };
        match self.open(target).await {
            Ok(flow) => {
                // Bytes flow before the target has answered: a refusal resets them.
                self.run(flow, Vec::new())
                    .await
                    .into_iter()
                    .for_each(refused);
                Ok(())
            }
            Err(refusal) => {
                refused(refusal);
                socket2::SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO))
            }
        }
    }
}
