//! What applications handed over and what reached them: where promise P1 is checked.
//!
//! Delivered bytes are at any time the first of those that were written; where a flow
//! ends without an error, they are all of them.

use std::collections::BTreeMap;

use refrain_proto::FlowId;

use crate::{End, Failure};

/// A flow among all that a run ever has: instances of the link at both ends, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowKey {
    pub(crate) near_instance: u64,
    pub(crate) far_instance: u64,
    pub(crate) flow: FlowId,
}

/// All flows of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    flows: BTreeMap<FlowKey, FlowRecord>,
}

/// One flow.
#[derive(Debug, Default)]
pub(crate) struct FlowRecord {
    /// What either end sends, by the end that sends it.
    directions: [DirectionRecord; 2],
    /// By an application: a reset is then to be expected.
    pub(crate) was_cut_short: bool,
    was_offered: bool,
}

#[derive(Debug, Default)]
struct DirectionRecord {
    /// All that its application will ever write.
    content: Vec<u8>,
    written: usize,
    /// Before a changed bit made the flow begin anew, more may have been.
    ever_written: usize,
    finished: bool,
    delivered: usize,
}

impl Ledger {
    /// The record of `key`, made with `contents` if it is new.
    pub(crate) fn open(
        &mut self,
        key: FlowKey,
        contents: impl FnOnce() -> [Vec<u8>; 2],
    ) -> &mut FlowRecord {
        self.flows.entry(key).or_insert_with(|| FlowRecord {
            directions: contents().map(|content| DirectionRecord {
                content,
                ..DirectionRecord::default()
            }),
            ..FlowRecord::default()
        })
    }

    pub(crate) fn record(&mut self, key: FlowKey) -> &mut FlowRecord {
        self.flows
            .get_mut(&key)
            .expect("a flow is recorded before anything happens to it")
    }
}

impl FlowRecord {
    /// What `from` still has to write.
    pub(crate) fn unwritten(&self, from: End) -> &[u8] {
        let direction = &self.directions[from as usize];
        &direction.content[direction.written..]
    }

    pub(crate) fn content_bytes(&self, from: End) -> usize {
        self.directions[from as usize].content.len()
    }

    pub(crate) fn written(&mut self, from: End, bytes: usize) {
        let direction = &mut self.directions[from as usize];
        direction.written += bytes;
        direction.ever_written = direction.ever_written.max(direction.written);
    }

    pub(crate) fn finished(&mut self, from: End) {
        self.directions[from as usize].finished = true;
    }

    /// The flow reached the gateway at `end`, which happens once, whatever was replayed.
    /// A changed bit can give an opening another flow's number, or make one of any frame:
    /// where that is `pardonable`, the flow begins anew.
    pub(crate) fn offered(
        &mut self,
        end: End,
        flow: FlowId,
        pardonable: bool,
    ) -> Result<(), Failure> {
        if core::mem::replace(&mut self.was_offered, true) {
            if !pardonable {
                return Err(Failure::OfferedTwice(flow));
            }
            self.directions[end as usize].written = 0;
        }
        Ok(())
    }

    /// `bytes` that `from` wrote reached the application at the other end.
    pub(crate) fn delivered(
        &mut self,
        from: End,
        flow: FlowId,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let direction = &mut self.directions[from as usize];
        let at = direction.delivered;
        if direction.content[at..direction.ever_written].starts_with(bytes) {
            direction.delivered += bytes.len();
            Ok(())
        } else {
            Err(Failure::WrongBytes { flow, from, at })
        }
    }

    /// The application at the other end saw the end of what `from` wrote, and no error.
    pub(crate) fn ended(&self, from: End, flow: FlowId) -> Result<(), Failure> {
        let direction = &self.directions[from as usize];
        if direction.finished && direction.delivered == direction.content.len() {
            return Ok(());
        }
        Err(Failure::CutShort {
            flow,
            from,
            delivered: direction.delivered,
            written: direction.written,
        })
    }
}
