//! Connections of a forward: each is a flow to one target.

use std::{io, sync::Arc, time::Duration};

use super::{BoxFuture, Client, Serve};
use crate::options::{FORWARD, OptionSpec};

pub(super) struct Forward;

impl Serve for Forward {
    fn option(&self) -> &'static OptionSpec {
        &FORWARD
    }

    fn serve(&self, client: Client) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(serve(client))
    }
}

async fn serve(client: Client) -> io::Result<()> {
    let listener = Arc::clone(&client.listener);
    let target = listener.way_in.target.as_ref();
    let target = target.expect("a forward has a target");
    let refused = |refusal| {
        listener.refuse(format!(
            "refused a forwarded connection to {target}: {refusal}"
        ));
    };
    match client.open(target).await {
        Ok(flow) => {
            // Bytes flow before the target has answered: a refusal resets them.
            client
                .run(flow, Vec::new())
                .await
                .into_iter()
                .for_each(refused);
            Ok(())
        }
        Err(refusal) => {
            refused(refusal);
            socket2::SockRef::from(&client.tcp).set_linger(Some(Duration::ZERO))
        }
    }
}
