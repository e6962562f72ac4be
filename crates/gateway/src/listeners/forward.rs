//! Connections of a forward: each is a flow to one target.

use std::{io, time::Duration};

use super::Client;
use crate::target::Target;

impl Client {
    pub(super) async fn forward(self, target: &Target) -> io::Result<()> {
        let listener = self.listener;
        match self.open(target).await {
            Ok(opened) => {
                // Bytes flow before the target has answered: a refusal resets them.
                if let Some(refusal) = self.run(opened.flow, Vec::new()).await {
                    tracing::info!(%listener, %target, %refusal, "refused a forwarded connection");
                }
                Ok(())
            }
            Err(refusal) => {
                tracing::info!(%listener, %target, %refusal, "refused a forwarded connection");
                socket2::SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO))
            }
        }
    }
}
