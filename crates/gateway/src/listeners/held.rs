//! First packets of connections of `refusal=exact`. The firewall holds them while a flow to the target is opened, and they
//! pass or are refused as the target answers. Once such a connection is accepted, it takes its flow over.
//!
//! A packet passes where the answer is not the target's: then the connection is one of a rule without `refusal=exact`.

use std::{collections::BTreeMap, mem::discriminant, net::SocketAddr, sync::Arc, time::Duration};

use refrain_proto::ResetReason;
use tokio::{task::JoinSet, time::timeout};

use super::{REPORT_TIME, open_flow};
use crate::{
    flow::FlowHandle,
    gateway::Gateway,
    intercept::{
        handling::{Carriage, Handling},
        queue::{self, Packet, Queue, Verdict},
        rule::InterceptRule,
    },
    link::Standing,
    options::TRANSPARENT,
    rate_limited_log::RateLimitedLog,
    refusal::Refusal,
    target::Target,
};

/// Has `tasks` decide about the first packets of connections that rules with `refusal=exact` are about.
pub(crate) fn start(gateway: &Arc<Gateway>, tasks: &mut JoinSet<()>) {
    let rules = &gateway.config.intercept;
    let ways_in = gateway.config.ways_in.iter().zip(gateway.ways_in());
    let held = ways_in.filter_map(|(way_in, address)| match way_in.handling {
        Handling::Carry(how) => {
            let is_held = *way_in.option == TRANSPARENT
                && InterceptRule::any_is_exact(rules, way_in.handling);
            is_held.then_some((address.port(), how))
        }
        Handling::ByName { .. } => None,
    });
    // Listeners of both families have one queue.
    let held: BTreeMap<u16, Carriage> = held.collect();
    for (port, how) in held {
        match Queue::bind(port) {
            Ok(queue) => {
                let holder = Arc::new(Holder {
                    gateway: Arc::clone(gateway),
                    queue,
                    how,
                    refusals: RateLimitedLog::new(|line| tracing::info!("{line}")),
                });
                tasks.spawn(holder.run());
            }
            Err(error) if queue::is_permitted() => tracing::warn!(
                "refusal=exact has no effect: cannot take queue {port} of netfilter: {error} (does another program use \
                 it? See /proc/net/netfilter/nfnetlink_queue)"
            ),
            // The configuration warns of it.
            Err(_) => {}
        }
    }
}

/// Decides about the packets of a queue.
struct Holder {
    gateway: Arc<Gateway>,
    queue: Queue,
    how: Carriage,
    refusals: RateLimitedLog,
}

impl Holder {
    async fn run(self: Arc<Holder>) {
        // They end with this task, so that the kernel sees the queue's end.
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                packet = self.queue.next() => match packet {
                    Ok(packet) => drop(connections.spawn(Arc::clone(&self).settle(packet))),
                    Err(error) => {
                        tracing::error!("refusal=exact has no effect any more: cannot read packets: {error}");
                        return;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn settle(self: Arc<Holder>, Packet { id, opens }: Packet) {
        let admits = |client: SocketAddr| self.gateway.policy.load().access.admits(client.ip());
        let Some((client, server)) = opens.filter(|(client, _)| admits(*client)) else {
            return self.queue.decide(id, Verdict::Accept);
        };
        let held = match self.gateway.held.begin(client, server) {
            Ok(held) => held,
            Err(verdict) => return self.queue.decide(id, verdict),
        };
        match self.open(client, server).await {
            Ok(flow) => {
                held.put(flow);
                self.queue.decide(id, Verdict::Accept);
                held.wait().await;
            }
            Err(verdict) => {
                drop(held);
                self.queue.decide(id, verdict);
            }
        }
    }

    /// Opens a flow, and waits until its target was reached. Otherwise, says what becomes of the packet.
    async fn open(&self, client: SocketAddr, server: SocketAddr) -> Result<FlowHandle, Verdict> {
        let (gateway, policy) = (&self.gateway, self.gateway.policy.load());
        if self.how.is_relayed_if_refused && gateway.refused_targets.contains(server) {
            return Err(Verdict::Accept);
        }
        let target = Target::from(server);
        let how = Carriage {
            is_excluded: self.how.is_excluded || policy.excludes(&target),
            ..self.how
        };
        // No link is waited for: without one, the gate is about to close.
        let opened = open_flow(
            gateway,
            target.into(),
            None,
            client.ip(),
            how,
            Duration::ZERO,
        )
        .await;
        let flow = opened.map_err(|refusal| self.refused(server, &refusal))?;
        let within = policy.timeouts.connect + REPORT_TIME;
        match timeout(within, flow.signals().opened()).await {
            Ok(Standing::Open) => Ok(flow),
            Ok(Standing::Refused(refusal)) => Err(self.refused(server, &refusal)),
            // By the time that the client repeats itself, connections go direct, or another lane is there.
            Ok(Standing::Reset(ResetReason::LaneLost)) => Err(Verdict::Drop),
            Ok(Standing::Reset(reason)) => Err(self.refused(server, &Refusal::from_reset(reason))),
            Ok(Standing::Opening) | Err(_) => Err(Verdict::Accept),
        }
    }

    fn refused(&self, server: SocketAddr, refusal: &Refusal) -> Verdict {
        let goes_direct = self.how.is_relayed_if_refused && !refusal.is_by_target();
        if !refusal.is_of_target() {
            return Verdict::Accept;
        }
        if goes_direct {
            self.gateway.refused_targets.add(server);
            return Verdict::Accept;
        }
        let reason = refusal.describe(self.gateway.config.role.peer());
        let refused = format!("refused a redirected connection to {server}: {reason}");
        self.refusals.add(discriminant(refusal), refused);
        Verdict::Refuse
    }
}
