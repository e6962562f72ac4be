//! The books of both ends of a direction.

use super::*;
use proptest::prelude::*;

const HOME: LaneId = LaneId(0);
const WINDOW_BYTES: u64 = 300_000;

/// A flow at both ends.
struct Both {
    id: FlowId,
    send: Option<SendCredit>,
    receive: ReceiveCredit,
    carried: usize,
    held: usize,
}

/// Both ends of a direction.
struct Direction {
    now: Moment,
    send: SendWindow,
    receive: ReceiveWindow,
}

impl Direction {
    fn new() -> Self {
        let mut send = SendWindow::default();
        send.share(WINDOW_BYTES);
        let mut receive = ReceiveWindow::new(WINDOW_BYTES);
        receive.is_shared(true);
        let now = Moment::default();
        Self { now, send, receive }
    }

    fn open(&self, number: u64) -> Both {
        Both {
            id: FlowId(number),
            send: Some(SendCredit::default()),
            receive: ReceiveCredit::new(),
            carried: 0,
            held: 0,
        }
    }

    fn write(&mut self, flow: &mut Both, bytes: usize) {
        if let Some(credit) = &mut flow.send {
            let most = credit.floor_left() + self.send.allowance(credit);
            let bytes = bytes.min(most as usize);
            self.send.written(credit, bytes);
            flow.carried += bytes;
        }
    }

    fn deliver(&mut self, flow: &mut Both, bytes: usize) {
        let bytes = bytes.min(flow.carried);
        let result = flow.receive.received(&mut self.receive, bytes);
        result.expect("an honest sender keeps within the window");
        flow.carried -= bytes;
        flow.held += bytes;
    }

    fn take(&mut self, flow: &mut Both, bytes: usize, is_home: bool, is_lost: bool) {
        let bytes = bytes.min(flow.held);
        flow.held -= bytes;
        let is_last = flow.send.is_none();
        let report = flow
            .receive
            .taken(&mut self.receive, bytes, is_last, is_home);
        if let Some(report) = report.filter(|_| is_home || !is_lost) {
            self.report(flow, report);
        }
    }

    /// At least so many bytes are written, come and are taken.
    fn carry(&mut self, flow: &mut Both, bytes: u64) {
        let end = flow.receive.taken_bytes + bytes;
        while flow.receive.taken_bytes < end {
            self.write(flow, 64 << 10);
            self.deliver(flow, usize::MAX);
            self.take(flow, usize::MAX, true, false);
        }
    }

    fn report(&mut self, flow: &mut Both, bytes: u64) {
        match &mut flow.send {
            Some(credit) => {
                let news = self.send.credited(self.now, flow.id, credit, bytes, 0);
                news.expect("no more than was sent");
            }
            None => self.send.credited_over(flow.id, bytes),
        }
    }

    /// The sender has said END.
    fn end(&mut self, flow: &mut Both) {
        if let Some(credit) = flow.send.take() {
            self.send.forget(flow.id, HOME, credit, 0);
        }
    }

    /// All comes and is taken, and the flow is over at both ends.
    fn finish(&mut self, mut flow: Both) {
        self.end(&mut flow);
        self.deliver(&mut flow, usize::MAX);
        self.take(&mut flow, usize::MAX, true, false);
        if let Some(report) = flow.receive.forget(&mut self.receive) {
            self.send.credited_over(flow.id, report);
        }
    }

    fn assert_empty(&self) {
        assert_eq!((self.send.excess_bytes, self.send.unproven_bytes), (0, 0));
        assert_eq!((self.receive.excess_bytes, self.send.over.len()), (0, 0));
    }
}

proptest! {
    /// Whatever is lost beside home lanes.
    #[test]
    fn nothing_is_left_of_flows_that_are_over(
        steps in prop::collection::vec((0usize..4, 0u8..8, 1usize..200_000), 1..300)
    ) {
        let mut direction = Direction::new();
        let mut opened = 4;
        let mut flows: Vec<Both> = (0..opened).map(|number| direction.open(number)).collect();
        for (index, step, bytes) in steps {
            let flow = &mut flows[index];
            match step {
                0..3 => direction.write(flow, bytes),
                3 => direction.deliver(flow, bytes),
                4 => direction.take(flow, bytes, true, false),
                5 => direction.take(flow, bytes, false, bytes % 2 == 0),
                6 => direction.end(flow),
                _ => {
                    opened += 1;
                    let flow = core::mem::replace(flow, direction.open(opened));
                    direction.finish(flow);
                }
            }
        }
        flows.into_iter().for_each(|flow| direction.finish(flow));
        direction.assert_empty();
    }
}

#[test]
fn a_flow_that_is_reset_counts_until_the_other_end_has_let_go() {
    let mut direction = Direction::new();
    let mut flow = direction.open(0);
    direction.write(&mut flow, 100_000);
    direction.end(&mut flow);
    let counted = 100_000 - CREDIT_FLOOR_BYTES;
    assert_eq!(direction.send.excess_bytes, counted);
    direction.send.let_go_of_lane(LaneId(1));
    assert_eq!(direction.send.excess_bytes, counted);
    direction.send.let_go(flow.id);
    direction.assert_empty();
}

#[test]
fn flows_that_are_not_proven_share_half_of_the_window() {
    let mut direction = Direction::new();
    let mut flows: Vec<Both> = (0..20).map(|number| direction.open(number)).collect();
    let proven = &mut flows[0];
    direction.carry(proven, PROVEN_BYTES);
    for flow in &mut flows[1..] {
        direction.write(flow, usize::MAX);
    }
    assert_eq!(direction.send.unproven_bytes, WINDOW_BYTES / 2);
    // One whose reader took something gets more, and less than an eighth.
    direction.deliver(&mut flows[2], usize::MAX);
    direction.take(&mut flows[2], usize::MAX, true, false);
    direction.write(&mut flows[2], usize::MAX);
    let earned = direction.send.unproven_bytes - WINDOW_BYTES / 2;
    assert!(
        (WAKE_BYTES..=WINDOW_BYTES / 8).contains(&earned),
        "{earned}"
    );
    // It gets its share of what they leave.
    direction.write(&mut flows[0], usize::MAX);
    let proven_bytes = direction.send.excess_bytes - direction.send.unproven_bytes;
    assert_eq!(proven_bytes, (WINDOW_BYTES / 2 - earned) / 2);
}

#[test]
fn a_reader_that_has_taken_what_kernels_hold_proves_nothing() {
    let mut direction = Direction::new();
    let mut flow = direction.open(0);
    direction.carry(&mut flow, PROVEN_BYTES / 2);
    assert!(!flow.send.as_ref().expect("it is open").is_proven);
    direction.carry(&mut flow, PROVEN_BYTES / 2);
    assert!(flow.send.as_ref().expect("it is open").is_proven);
}

#[test]
fn a_flow_is_proven_for_three_round_trips_after_a_credit() {
    let round_trip = Duration::from_millis(100);
    let at = |ms| Moment::default() + Duration::from_millis(ms);
    let mut direction = Direction::new();
    let mut flow = direction.open(0);
    direction.carry(&mut flow, PROVEN_BYTES);
    let taken = flow.receive.reported_bytes();
    direction.write(&mut flow, 60_000);
    let credit = flow.send.as_mut().expect("it is open");
    let mut look = |ms, credit: &mut SendCredit| {
        let stale = direction.send.next_stale(at(ms), round_trip);
        if let Some(id) = stale {
            let window = &mut direction.send;
            window.look_at_proof(at(ms), round_trip, id, credit);
        }
        let mut credited = |bytes| direction.send.credited(at(ms), flow.id, credit, bytes, 0);
        match ms {
            200 => credited(taken + 20_000).map(drop),
            600 => credited(taken + 40_000).map(drop),
            _ => Ok(()),
        }
        .expect("no more than was sent");
        credit.is_proven
    };
    let proven = [200, 300, 499, 500, 600].map(|ms| look(ms, credit));
    assert_eq!(proven, [true, true, true, false, true]);
}

#[test]
fn an_end_of_version_1_widens_floors_by_more_credit_than_was_outstanding() {
    let mut window = SendWindow::default();
    let mut credit = SendCredit::default();
    window.written(&mut credit, 10_000);
    // 4,000 of them have not left.
    let credited = window.credited(Moment::default(), FlowId(0), &mut credit, 20_000, 4_000);
    assert_eq!(credited, Ok(true));
    assert_eq!(credit.floor_left(), CREDIT_FLOOR_BYTES + 14_000 - 4_000);
    window.forget(FlowId(0), HOME, credit, 4_000);
    assert_eq!((window.excess_bytes, window.unproven_bytes), (0, 0));
}
