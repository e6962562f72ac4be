//! Redirected connections that go to their servers without the link: by a rule, or since the far end refused them.

use std::{
    io,
    net::{Shutdown, SocketAddr},
    pin::pin,
    sync::Arc,
};

use refrain_proto::ResetReason;
use socket2::SockRef;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{Client, REPORT_TIME};
use crate::{
    descriptors::FlowDescriptor,
    flow::{Activity, FlowHandle, LAST_WORDS, failed, prepare},
    intercept::{
        self, ConnectError,
        handling::{Carriage, ClientAddress},
    },
    link::Standing,
    refusal::Refusal,
    target::Target,
};

/// What a client sent is kept until the target was reached: so much of it.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// What is read at once.
const RELAYED_BYTES: usize = 64 << 10;

/// Why the link does not carry a flow.
enum NotCarried {
    /// Nothing was passed on: what the client sent so far can go elsewhere.
    Refused(Refusal, Vec<u8>),
    /// Something may have been.
    Lost(Refusal),
}

impl Client {
    /// Carries a connection, with `header` in front of `early` and all further bytes. If it is refused, it goes direct,
    /// without the header.
    pub(super) async fn carry_or_relay(
        mut self,
        target: &Target,
        server: SocketAddr,
        how: Carriage,
        header: Vec<u8>,
        early: Vec<u8>,
    ) -> io::Result<()> {
        let listener = Arc::clone(&self.listener);
        if listener.gateway.refused_targets.contains(server) {
            return self.relay(server, ClientAddress::Hidden, &early).await;
        }
        match self.open_keeping(target, how, &header, early).await? {
            Ok((flow, rest)) => {
                self.run(flow, rest).await;
                Ok(())
            }
            Err(NotCarried::Refused(refusal, early)) => {
                let peer = listener.gateway.config.role.peer();
                let reason = refusal.describe(peer);
                if refusal.is_by_target() {
                    let refused = format!("refused a redirected connection to {target}: {reason}");
                    listener.refuse(&refusal, refused);
                    return Ok(());
                }
                if refusal.is_of_target() {
                    listener.gateway.refused_targets.add(server);
                }
                listener.pass_by(&refusal, server);
                self.relay(server, ClientAddress::Hidden, &early).await
            }
            Err(NotCarried::Lost(refusal)) => {
                let reason = format!("reset a redirected connection to {target}: {refusal}");
                listener.refuse(&refusal, reason);
                Ok(())
            }
        }
    }

    /// Opens a flow, and sends `header`, `early` and what the client sends with it. Waits until the target was reached,
    /// and keeps the bytes until then. Returns those that were not sent yet.
    async fn open_keeping(
        &mut self,
        target: &Target,
        how: Carriage,
        header: &[u8],
        early: Vec<u8>,
    ) -> io::Result<Result<(FlowHandle, Vec<u8>), NotCarried>> {
        let flow = match self.open(target, how).await {
            Ok(flow) => flow,
            Err(refusal) => return Ok(Err(NotCarried::Refused(refusal, early))),
        };
        let mut kept = [header, &early].concat();
        let mut sent = flow.write_first(&kept);
        let within = self.listener.policy().timeouts.connect + REPORT_TIME;
        let until = tokio::time::sleep(within);
        tokio::pin!(until);
        let mut has_ended = false;
        let standing = loop {
            let is_read = !has_ended && sent == kept.len() && kept.len() < KEPT_BYTES_MAX;
            tokio::select! {
                biased;
                standing = flow.signals().opened() => break standing,
                read = self.connection.read_buf(&mut kept), if is_read => {
                    has_ended = read? == 0;
                    sent += flow.write_first(&kept[sent..]);
                }
                () = &mut until => break Standing::Opening,
            }
        };
        Ok(match standing {
            Standing::Open => Ok((flow, kept.split_off(sent))),
            Standing::Refused(refusal) => {
                Err(NotCarried::Refused(refusal, kept.split_off(header.len())))
            }
            Standing::Reset(ResetReason::LaneLost) if !flow.is_link_up() => {
                Err(NotCarried::Lost(Refusal::LinkDown))
            }
            Standing::Reset(reason) => Err(NotCarried::Lost(Refusal::from_reset(reason))),
            Standing::Opening => Err(NotCarried::Lost(Refusal::TimedOut)),
        })
    }

    async fn connect_directly(
        &self,
        server: SocketAddr,
        client_address: ClientAddress,
    ) -> Result<(TcpStream, FlowDescriptor), Refusal> {
        self.request_came()?;
        let descriptor = self.listener.gateway.descriptors.for_flow()?;
        let connecting = async {
            match client_address {
                ClientAddress::Keep => intercept::connect_for(self.address, server).await,
                _ => intercept::connect(server).await.map_err(ConnectError::Io),
            }
        };
        let within = self.listener.policy().timeouts.connect;
        match timeout(within, connecting).await {
            Ok(Ok(tcp)) => Ok((tcp, descriptor)),
            Ok(Err(ConnectError::Client)) => Err(Refusal::ClientAddress),
            Ok(Err(ConnectError::Io(error))) => Err(Refusal::from_connect_error(&error)),
            Err(_) => Err(Refusal::TimedOut),
        }
    }

    /// Passes `early` and all further bytes to the server without the link.
    pub(super) async fn relay(
        self,
        server: SocketAddr,
        client_address: ClientAddress,
        early: &[u8],
    ) -> io::Result<()> {
        // A drain waits for it.
        let _counted = Arc::clone(&self.listener.gateway.without_link);
        let connected = self.connect_directly(server, client_address).await;
        let (tcp, _of_server) = match connected {
            Ok(connected) => connected,
            Err(refusal) => {
                let reason = format!("refused a redirected connection to {server}: {refusal}");
                self.listener.refuse(&refusal, reason);
                return Ok(());
            }
        };
        let idle = self.listener.policy().timeouts.idle;
        prepare(&tcp);
        let client = self.connection.tcp()?;
        prepare(client);
        let activity = Activity::new();
        tokio::select! {
            ended = both_ways(client, early, &tcp, &activity) => ended?,
            // Both are reset.
            () = activity.idle_for(idle) => return Ok(()),
        }
        // Both directions have ended: what is still on its way is to arrive.
        for ended in [&tcp, client] {
            SockRef::from(ended).set_linger(None)?;
        }
        Ok(())
    }
}

/// Passes the bytes of both directions on, `early` first. If one direction fails, the other may have last bytes, such as
/// a server's answer to a request that it did not read to its end.
async fn both_ways(
    client: &TcpStream,
    early: &[u8],
    server: &TcpStream,
    activity: &Activity,
) -> io::Result<()> {
    let mut up = pin!(pass(client, early, server, activity));
    let mut down = pin!(pass(server, &[], client, activity));
    let (mut is_up_over, mut is_down_over) = (false, false);
    while !(is_up_over && is_down_over) {
        let result = tokio::select! {
            result = &mut up, if !is_up_over => {
                is_up_over = true;
                result
            }
            result = &mut down, if !is_down_over => {
                is_down_over = true;
                result
            }
        };
        let Err(error) = result else { continue };
        activity.note_failure();
        let other = async {
            match (is_up_over, is_down_over) {
                (false, _) => up.await,
                (_, false) => down.await,
                _ => Ok(()),
            }
        };
        // A reset would overtake bytes that were passed on.
        let _ = tokio::join!(timeout(LAST_WORDS, other), sleep(LAST_WORDS));
        return Err(error);
    }
    Ok(())
}

/// Passes `early` and all bytes of `from` on, up to their end.
async fn pass(
    from: &TcpStream,
    early: &[u8],
    to: &TcpStream,
    activity: &Activity,
) -> io::Result<()> {
    let mut buffer = early.to_vec();
    loop {
        let mut rest = &buffer[..];
        while !rest.is_empty() {
            match to.try_write(rest) {
                Ok(written) => {
                    activity.note();
                    rest = &rest[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::select! {
                    writable = to.writable() => writable?,
                    // The sender is gone, and these are its last bytes.
                    error = failed_a_while_ago(from) => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
        // While nothing comes, it has no memory.
        buffer = Vec::new();
        from.readable().await?;
        buffer.reserve_exact(RELAYED_BYTES);
        match from.try_read_buf(&mut buffer) {
            Ok(0) if activity.has_failed() => return Err(io::ErrorKind::ConnectionReset.into()),
            Ok(0) => return SockRef::from(to).shutdown(Shutdown::Write),
            Ok(_) => activity.note(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn failed_a_while_ago(tcp: &TcpStream) -> io::Error {
    let error = failed(tcp).await;
    sleep(LAST_WORDS).await;
    error
}
