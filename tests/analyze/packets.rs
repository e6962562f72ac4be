//! Captures that tests make: Ethernet, IPv4, TCP.

/// The bytes of a segment.
const SEGMENT: usize = 1_448;

pub(crate) struct Capture {
    /// Of each packet: nanoseconds, and its frame.
    packets: Vec<(u64, Vec<u8>)>,
    now: u64,
    pub(crate) client: [u8; 4],
    pub(crate) server: [u8; 4],
}

impl Default for Capture {
    fn default() -> Self {
        Self::beginning_at(1_700_000_000)
    }
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

impl Capture {
    pub(crate) fn beginning_at(second: u64) -> Self {
        Self {
            packets: Vec::new(),
            now: second * 1_000_000_000,
            client: [10, 0, 0, 1],
            server: [10, 0, 1, 1],
        }
    }

    /// A connection with a request and an answer.
    pub(crate) fn exchange(&mut self, port: u16, request: &[u8], answer: &[u8]) {
        self.begin(port);
        self.segment(true, port, 1, ACK, request);
        self.now += 20_000_000;
        let mut sent = 1;
        for part in answer.chunks(SEGMENT) {
            self.segment(false, port, sent, ACK, part);
            sent = sent.wrapping_add(part.len() as u32);
        }
        self.segment(false, port, sent, ACK | FIN, b"");
        self.segment(true, port, 1 + request.len() as u32, ACK | FIN, b"");
        self.now += 20_000_000;
    }

    /// A handshake of 20 ms.
    pub(crate) fn begin(&mut self, port: u16) {
        self.segment(true, port, 0, SYN, b"");
        self.now += 20_000_000;
        self.segment(false, port, 0, SYN | ACK, b"");
        self.segment(true, port, 1, ACK, b"");
    }

    /// A first packet only.
    pub(crate) fn first_packet(&mut self, port: u16) {
        self.segment(true, port, 0, SYN, b"");
    }

    fn segment(&mut self, is_up: bool, port: u16, sequence: u32, flags: u8, bytes: &[u8]) {
        let (from, to) = match is_up {
            true => ((self.client, port), (self.server, 80)),
            false => ((self.server, 80), (self.client, port)),
        };
        let mut tcp = Vec::new();
        tcp.extend(from.1.to_be_bytes());
        tcp.extend(to.1.to_be_bytes());
        tcp.extend(sequence.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend([0x50, flags, 255, 255, 0, 0, 0, 0]);
        tcp.extend(bytes);
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + tcp.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend(from.0);
        frame.extend(to.0);
        frame.extend(tcp);
        self.packets.push((self.now, frame));
        self.now += 120_000;
    }

    pub(crate) fn pcap(&self) -> Vec<u8> {
        self.pcap_with(65_535)
    }

    /// The same with only the first bytes of each packet.
    pub(crate) fn pcap_with(&self, snap_length: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, snap_length as u32, 1] {
            out.extend(number.to_le_bytes());
        }
        for (at, frame) in &self.packets {
            let kept = frame.len().min(snap_length);
            let (second, rest) = (at / 1_000_000_000, at % 1_000_000_000);
            for number in [second as u32, rest as u32, kept as u32, frame.len() as u32] {
                out.extend(number.to_le_bytes());
            }
            out.extend(&frame[..kept]);
        }
        out
    }

    pub(crate) fn pcapng(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut block = |kind: u32, body: &[u8]| {
            let padded = body.len().next_multiple_of(4);
            let length = (12 + padded) as u32;
            out.extend(kind.to_le_bytes());
            out.extend(length.to_le_bytes());
            out.extend(body);
            out.extend(vec![0; padded - body.len()]);
            out.extend(length.to_le_bytes());
        };
        block(
            0x0a0d_0d0a,
            &[
                0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255,
            ],
        );
        // Nanoseconds.
        block(
            1,
            &[1, 0, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0],
        );
        for (at, frame) in &self.packets {
            let mut body = Vec::new();
            let (high, low) = ((at >> 32) as u32, *at as u32);
            for number in [0, high, low, frame.len() as u32, frame.len() as u32] {
                body.extend(number.to_le_bytes());
            }
            body.extend(frame);
            block(6, &body);
        }
        out
    }

    /// The same packets, each a second before the one that precedes it.
    pub(crate) fn backwards(mut self) -> Self {
        let first = self.packets.first().map_or(0, |packet| packet.0);
        for (nth, packet) in self.packets.iter_mut().enumerate() {
            packet.0 = first - 1_000_000_000 * nth as u64;
        }
        self
    }
}
