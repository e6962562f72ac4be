use super::*;
use crate::limits::LANES_MAX;
use proptest::prelude::*;

fn samples() -> Vec<Frame<'static>> {
    let flow = FlowId(300);
    vec![
        Frame::Open {
            flow,
            credit_bytes: 1 << 18,
            excluded: true,
            target: "example.org:80",
        },
        Frame::Accept {
            flow,
            credit_bytes: 7,
            excluded: false,
        },
        Frame::Refuse {
            flow,
            code: 3,
            text: "connection refused",
        },
        Frame::Block(BlockFrame {
            flow,
            len: 65_536,
            offset: Some(1 << 20),
            position_step: Some(-70_000),
            is_secret: false,
            check: 0x0123_4567_89ab_cdef,
            tokens: Stream {
                compressed: false,
                bytes: b"\x00\x08\x00",
            },
            literals: Stream {
                compressed: true,
                bytes: b"literals",
            },
        }),
        Frame::End {
            flow,
            plain_bytes: 99_000,
            check: 77,
            lanes: LaneList(&[3, 0x80, 1]),
        },
        Frame::Reset { flow, code: 1 },
        Frame::Credit {
            flow,
            bytes: 1 << 24,
        },
        Frame::Ack { blocks: u64::MAX },
        Frame::LaneClosed {
            lane: LaneId(5),
            blocks: 900,
            answered: true,
        },
        Frame::Ping {
            nonce: 1,
            answer_bytes: 4096,
            padding: b".",
        },
        Frame::Pong {
            nonce: 1,
            padding: b"",
        },
        Frame::Drain,
        Frame::Stalled,
        Frame::Spare,
        Frame::Moved { flow, by: -70_000 },
        Frame::Abort {
            text: "a block's check failed",
        },
    ]
}

#[test]
fn every_frame_returns_from_any_split() {
    for frame in samples() {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(
                Frame::read(&bytes[..cut]),
                Ok(None),
                "{frame:?} cut at {cut}"
            );
        }
        if let Frame::Block(block) = frame {
            assert_eq!(block.wire_bytes(), bytes.len());
        }
        bytes.push(0xff);
        assert_eq!(Frame::read(&bytes), Ok(Some((frame, bytes.len() - 1))));
    }
}

#[test]
fn lengths_beyond_the_limits_are_refused_before_the_body_comes() {
    let mut bytes = vec![BLOCK];
    push_varint(&mut bytes, FRAME_BYTES_MAX as u64 + 1);
    assert_eq!(
        Frame::read(&bytes),
        Err(FrameError::TooLong(FRAME_BYTES_MAX as u64 + 1))
    );
    assert_eq!(Frame::read(&[0]), Err(FrameError::UnknownType(0)));
    assert_eq!(Frame::read(&[200]), Err(FrameError::UnknownType(200)));
    let mut bytes = vec![PING];
    bytes.extend([0xff; 11]);
    assert_eq!(Frame::read(&bytes), Err(FrameError::Malformed(PING)));
}

#[test]
fn bytes_after_a_body_are_refused() {
    assert_eq!(
        Frame::read(&[DRAIN, 1, 0]),
        Err(FrameError::Malformed(DRAIN))
    );
    assert_eq!(
        Frame::read(&[LANE_CLOSED, 3, 2, 2, 2]),
        Err(FrameError::Malformed(LANE_CLOSED))
    );
}

#[test]
fn a_list_of_lanes_is_bounded_and_comes_back() {
    let mut bytes = Vec::new();
    let lanes = [LaneId(0), LaneId(700), LaneId(5)];
    let list = LaneList::write(lanes.into_iter(), &mut bytes);
    assert!(list.iter().eq(lanes));
    assert!(LaneList::take(&mut &[1; LANES_MAX][..]).is_some());
    assert!(LaneList::take(&mut &[1; LANES_MAX + 1][..]).is_none());
    assert!(LaneList::take(&mut &[0x80][..]).is_none());
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes: Vec<u8>, kind in TYPES) {
        let _ = Frame::read(&bytes);
        let mut framed = vec![kind];
        push_varint(&mut framed, bytes.len() as u64);
        framed.extend(&bytes);
        let _ = Frame::read(&framed);
    }

    #[test]
    fn flipped_frames_never_panic(which in 0usize..samples().len(), at: usize, with: u8) {
        let mut bytes = Vec::new();
        samples()[which].write(&mut bytes);
        let at = at % bytes.len();
        bytes[at] ^= with;
        let _ = Frame::read(&bytes);
    }
}
