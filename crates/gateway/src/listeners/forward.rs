//! Connections of a forward: each is a flow to one target.

use std::{io, net::SocketAddr, time::Duration};

use super::Client;
use crate::{refusal::Refusal, target::Target};

impl Client {
    pub(super) async fn forward(self, target: &Target) -> io::Result<()> {
        let (listener, refusals) = (self.listener, self.refusals.clone());
        match self.open(target).await {
            Ok(flow) => {
                // Bytes flow before the target has answered: a refusal resets them.
                if let Some(refusal) = self.run(flow, Vec::new()).await {
                    refusals.add(refused(listener, target, refusal));
                }
                Ok(())
            }
            Err(refusal) => {
                self.refusals.add(refused(listener, target, refusal));
                socket2::SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO))
            }
        }
    }
}

fn refused(listener: SocketAddr, target: &Target, refusal: Refusal) -> String {
    format!("listener {listener}: refused a forwarded connection to {target}: {refusal}")
}
