//! Bytes on their way, and what keeps them from arriving.

use std::time::Duration;

use refrain_proto::{
    LaneFault, LaneId,
    effort::{Unsent, Written},
    hello::Hello,
};

use super::{Step, World, flows::Wish};
use crate::{
    End, Failure, Kind,
    transport::{STALL, Transport},
};

/// The far end waits no longer for the first word on a transport.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How late blocks come on a lane that the sender knows to be dead.
const LATE: Duration = Duration::from_secs(2);

impl World {
    pub(super) fn book_dial(&mut self) {
        if !core::mem::replace(&mut self.dial_is_booked, true) {
            let pause = Duration::from_micros(self.rng.u64(..100_000));
            let at = (self.now() + pause).max(self.no_dial_before);
            self.schedule.at(at, Step::Dial);
        }
    }

    pub(super) fn dial(&mut self) -> Result<(), Failure> {
        self.dial_is_booked = false;
        let (now, link, wanted) = (self.now(), self.near_instance, self.lanes_wanted);
        let number = self.transports.len();
        if now < self.no_dial_before {
            self.book_dial();
            return Ok(());
        }
        let Some(side) = self.link_side(End::Near, link) else {
            return Ok(());
        };
        if side.link.lanes_alive() - side.link.spare_lanes() >= wanted {
            return Ok(());
        }
        let Some(lane) = side.link.dial_lane(now) else {
            return Ok(());
        };
        side.transports.insert(lane, number);
        let mut transport = Transport::new(
            &mut self.rng,
            self.plan.delay_ms_max,
            self.plan.stalls_one_of,
        );
        transport.end(End::Near).lane = Some((link, lane));
        for end in End::BOTH {
            transport.end(end).out.harm = self.rare_harm;
        }
        self.transports.push(transport);
        self.schedule.after(HELLO_TIMEOUT, Step::HelloDue(number));
        self.book_dial();
        self.settle(End::Near, link)
    }

    /// Hands over what the lane has to say, as long as its transport takes it.
    pub(super) fn pump(&mut self, end: End, link: u64, lane: LaneId) {
        let now = self.now();
        loop {
            let Some(side) = self.ends[end as usize].links.get_mut(&link) else {
                return;
            };
            let Some(&transport) = side.transports.get(&lane) else {
                return;
            };
            // A link's last words are not held up.
            let is_over = side.link.fault().is_some();
            let pipe = &mut self.transports[transport].end(end).out;
            if !is_over && !pipe.is_free(now) {
                return;
            }
            let mut bytes = Vec::new();
            side.link.poll_transmit(now, lane, &mut bytes);
            if bytes.is_empty() {
                return;
            }
            let number = self.parcels_sent[end as usize];
            self.parcels_sent[end as usize] += 1;
            let (harm, arrivals) = pipe.send(&mut self.rng, now, number, bytes);
            if let Some(at) = pipe.free_at {
                let took = at.since(now);
                self.schedule.at(
                    at,
                    Step::Room {
                        transport,
                        end,
                        took,
                    },
                );
            }
            for at in arrivals {
                let from = end;
                self.schedule.at(at, Step::Arrive { transport, from });
            }
            if let Some(harm) = harm {
                self.trace(|| format!("  {harm:?} from the {end} end on transport {transport}"));
                self.kinds.note(harm);
                self.rare_harm = self.rare_harm.filter(|&rare| rare != harm);
                (self.is_damaged, self.is_troubled) = (true, true);
                self.transports[transport].is_damaged = true;
            }
        }
    }

    pub(super) fn room(
        &mut self,
        transport: usize,
        end: End,
        took: Duration,
    ) -> Result<(), Failure> {
        let (now, encoding) = (self.now(), self.plan.encoding);
        let side = self.transports[transport].end(end);
        let Some((link, lane)) = side.lane.filter(|_| side.is_open) else {
            return Ok(());
        };
        let Some(free_at) = side.out.free_at else {
            return Ok(());
        };
        if free_at > now {
            let took = took + free_at.since(now);
            self.schedule.at(
                free_at,
                Step::Room {
                    transport,
                    end,
                    took,
                },
            );
            return Ok(());
        }
        if let Some(side) = self.link_side(end, link) {
            let written = Written {
                encoding,
                working: encoding,
                waiting: took,
                bytes: 16_000,
                unsent: match took.is_zero() {
                    true => Unsent::Nothing,
                    false => Unsent::Plenty,
                },
                link_time: encoding / 2,
                is_starting: false,
                loses: took >= STALL,
                // Any bound is right, and most are not round.
                write_bytes_max: Some(16_000 + took.subsec_micros() as usize),
            };
            side.link.transmitted(now, lane, written);
        }
        self.pump(end, link, lane);
        self.settle(end, link)
    }

    pub(super) fn arrive(&mut self, transport: usize, from: End) -> Result<(), Failure> {
        let (now, to) = (self.now(), from.other());
        let sender = self.transports[transport].end(from);
        let held_until = sender.out.held_until;
        if now < held_until {
            self.schedule
                .at(held_until, Step::Arrive { transport, from });
            return Ok(());
        }
        let parcel = sender.out.in_flight.pop_front();
        let parcel = parcel.expect("a parcel arrives once");
        let Some(bytes) = parcel.bytes else {
            return self.transport_broke(transport, to);
        };
        let sender_is_open = sender.is_open;
        let receiver = self.transports[transport].end(to);
        let (is_open, lane) = (receiver.is_open, receiver.lane);
        if is_open && !sender_is_open {
            self.kinds.note(Kind::LateRead);
        }
        let arrived = &mut self.parcel_arrived[from as usize];
        if parcel.number < *arrived {
            self.kinds.note(Kind::Overtaking);
        }
        *arrived = parcel.number.max(*arrived);
        match lane {
            // A task that had read already may hand its bytes over after the end.
            Some((link, lane)) if is_open || self.rng.bool() => {
                self.receive(to, link, lane, &bytes)
            }
            None if is_open => self.arrive_unknown(transport, bytes),
            _ => Ok(()),
        }
    }

    /// Bytes at the far end, on a transport whose hello has not come yet.
    fn arrive_unknown(&mut self, transport: usize, bytes: Vec<u8>) -> Result<(), Failure> {
        let end = self.transports[transport].end(End::Far);
        end.unread.extend(bytes);
        let hello = match Hello::read(&end.unread) {
            Ok(None) => return Ok(()),
            Ok(Some((hello, read))) => {
                end.unread.drain(..read);
                hello
            }
            Err(error) => {
                if !self.is_damaged {
                    let fault = LaneFault::from(error).into();
                    return Err(Failure::FaultForNoReason {
                        end: End::Far,
                        fault,
                    });
                }
                self.close_transport(transport, End::Far);
                return Ok(());
            }
        };
        let link = hello.instance;
        let Ok(lane) = self.accept_lane(&hello) else {
            self.close_transport(transport, End::Far);
            return Ok(());
        };
        if let Some(side) = self.link_side(End::Far, link) {
            side.transports.insert(lane, transport);
        }
        let end = self.transports[transport].end(End::Far);
        end.lane = Some((link, lane));
        let rest = core::mem::take(&mut end.unread);
        self.settle(End::Far, link)?;
        self.receive(End::Far, link, lane, &rest)
    }

    pub(super) fn hello_due(&mut self, transport: usize) {
        if self.transports[transport].end(End::Far).lane.is_none() {
            self.close_transport(transport, End::Far);
        }
    }

    /// `end` learns that the transport is of no more use.
    pub(super) fn transport_broke(&mut self, transport: usize, end: End) -> Result<(), Failure> {
        let side = self.transports[transport].end(end);
        if !side.is_open {
            return Ok(());
        }
        let lane = side.lane;
        self.close_transport(transport, end);
        if lane.is_some() && self.has_offers_out(end) {
            self.kinds.note(Kind::LaneLostAmidOffers);
        }
        if let Some((link, lane)) = lane
            && let Some(side) = self.link_side(end, link)
        {
            side.link.close_lane(lane, LaneFault::TransportClosed);
            self.settle(end, link)?;
        }
        Ok(())
    }

    /// `end` closes the transport, and the other end hears of it in its turn.
    pub(super) fn close_transport(&mut self, transport: usize, end: End) {
        let now = self.now();
        let side = self.transports[transport].end(end);
        if !core::mem::replace(&mut side.is_open, false) {
            return;
        }
        let number = self.parcels_sent[end as usize];
        self.parcels_sent[end as usize] += 1;
        if let Some(at) = side.out.close(&mut self.rng, now, number) {
            let from = end;
            self.schedule.at(at, Step::Arrive { transport, from });
        }
    }

    /// What these ends say on the transport from now on is lost.
    pub(super) fn break_off(&mut self, transport: usize, ends: &[End]) {
        let now = self.now();
        self.is_troubled = true;
        for &end in ends {
            let pipe = &mut self.transports[transport].end(end).out;
            pipe.break_off(&mut self.rng, now);
        }
    }

    pub(super) fn cut(&mut self, transport: usize, noticing: &[End]) {
        self.break_off(transport, &End::BOTH);
        for &end in noticing {
            let after = Duration::from_micros(self.rng.u64(..400_000));
            self.schedule.after(after, Step::Notice { transport, end });
        }
    }

    /// Transports that both ends still use, the oldest first.
    fn open_transports(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let transports = self.transports.iter().enumerate();
        transports
            .filter(|(_, transport)| transport.ends.iter().all(|end| end.is_open))
            .map(|(number, _)| number)
    }

    /// A transport that both ends still use, if there is one.
    fn choose_transport(&mut self) -> Option<usize> {
        let open: Vec<usize> = self.open_transports().collect();
        self.rng.choice(open)
    }

    pub(super) fn cut_one(&mut self, noticing: &[End]) {
        if let Some(transport) = self.choose_transport() {
            self.kinds.note(Kind::LaneCut);
            self.cut(transport, noticing);
        }
    }

    pub(super) fn cut_all(&mut self) {
        for transport in 0..self.transports.len() {
            if self.transports[transport]
                .ends
                .iter()
                .any(|end| end.is_open)
            {
                self.cut(transport, &End::BOTH);
            }
        }
    }

    pub(super) fn late_blocks(&mut self, end: End) -> Result<(), Failure> {
        let wish = Wish::large(&mut self.rng);
        let opened = [(); 3].map(|()| self.open(end, Some(wish)));
        self.settle_all(end)?;
        let Some(cut) = opened[0]
            .and_then(|(link, lane)| self.link_side(end, link)?.transports.get(&lane).copied())
        else {
            return Ok(());
        };
        for pause in [450, 500, 550, 600] {
            let wish = Some(wish);
            self.schedule
                .after(Duration::from_millis(pause), Step::Open { end, wish });
        }
        // Word of a dead lane goes on the oldest one that is left.
        let spared = self.open_transports().rfind(|&open| open != cut);
        self.kinds.note(Kind::LaneCut);
        self.cut(cut, &[end]);
        let now = self.now();
        self.transports[cut].end(end).out.held_until = now + LATE;
        // A new lane would carry the word at once.
        self.no_dial_before = self.no_dial_before.max(now + LATE);
        for transport in 0..self.transports.len() {
            if transport != cut && Some(transport) != spared {
                self.stall(transport, LATE + Duration::from_millis(500));
            }
        }
        Ok(())
    }

    pub(super) fn silence_one(&mut self, end: End) {
        if let Some(transport) = self.choose_transport() {
            self.kinds.note(Kind::LaneSilenced);
            let ends = if self.rng.bool() {
                &[end][..]
            } else {
                &End::BOTH
            };
            self.break_off(transport, ends);
        }
    }

    pub(super) fn stall_one(&mut self) {
        if let Some(transport) = self.choose_transport() {
            let pause = Duration::from_millis(self.rng.u64(..1500));
            self.stall(transport, pause);
        }
    }

    /// Nothing arrives or leaves for a while.
    fn stall(&mut self, transport: usize, pause: Duration) {
        let now = self.now();
        // Several in a row can look like silence.
        self.is_troubled = true;
        self.kinds.note(Kind::Stall);
        for end in End::BOTH {
            let pipe = &mut self.transports[transport].end(end).out;
            pipe.stall(now, pause);
            if let Some(at) = pipe.free_at {
                let took = pause;
                self.schedule.at(
                    at,
                    Step::Room {
                        transport,
                        end,
                        took,
                    },
                );
            }
        }
    }

    pub(super) fn harm_one(&mut self, kind: Kind) {
        if matches!(kind, Kind::AlteredConfirmation | Kind::AlteredOffer) {
            // They are rare: whichever comes next.
            self.rare_harm = Some(kind);
            for transport in &mut self.transports {
                for end in End::BOTH {
                    transport.end(end).out.harm = Some(kind);
                }
            }
        } else if let Some(transport) = self.choose_transport() {
            let end = End::BOTH[self.rng.usize(..2)];
            self.transports[transport].end(end).out.harm = Some(kind);
        }
    }
}
