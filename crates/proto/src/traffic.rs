//! What a flow carries, as far as it matters for the way it is sent.

use refrain_codec::entropy::is_full_entropy;

/// How a flow's blocks are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficClass {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// Matched and compressed.
    Ordinary,
    /// Media, archives, layers: they repeat whole, so they are matched sparsely, skip
    /// zstd, and enter the cache, within a share of it.
    FullEntropy,
    /// TLS, SSH, or what a rule names: sent as it is, and never in the cache.
    Excluded,
}

/// First bytes of a TLS record that carries a handshake: type 22, version 3.x.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// First bytes of an SSH identification (RFC 4253, section 4.2).
const SSH_IDENTIFICATION: &[u8] = b"SSH-";

impl TrafficClass {
    /// The class after `block`, the flow's next bytes.
    #[must_use]
    pub fn after(self, block: &[u8]) -> Self {
        match self {
            Self::Excluded => Self::Excluded,
            Self::Unknown if is_encrypted(block) => Self::Excluded,
            Self::Unknown | Self::Ordinary | Self::FullEntropy => match is_full_entropy(block) {
                Some(true) => Self::FullEntropy,
                Some(false) => Self::Ordinary,
                None if self == Self::Unknown => Self::Ordinary,
                None => self,
            },
        }
    }
}

/// Whether a flow that begins with `block` is encrypted by its application.
fn is_encrypted(block: &[u8]) -> bool {
    let tls = block.starts_with(&TLS_HANDSHAKE) && block.get(2).is_none_or(|&minor| minor <= 4);
    tls || block.starts_with(SSH_IDENTIFICATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_flows_are_known_by_their_first_bytes_alone() {
        let client_hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];
        assert_eq!(
            TrafficClass::Unknown.after(&client_hello),
            TrafficClass::Excluded
        );
        assert_eq!(
            TrafficClass::Unknown.after(b"SSH-2.0-OpenSSH_9.9\r\n"),
            TrafficClass::Excluded
        );
        assert_eq!(
            TrafficClass::Excluded.after(b"plain text"),
            TrafficClass::Excluded
        );
        assert_eq!(
            TrafficClass::Unknown.after(b"GET / HTTP/1.1\r\n"),
            TrafficClass::Ordinary
        );
        assert_eq!(
            TrafficClass::Ordinary.after(&client_hello),
            TrafficClass::Ordinary
        );
    }

    #[test]
    fn entropy_is_judged_block_by_block() {
        let text = b"once more, with feeling; ".repeat(100);
        let mut state = 1u32;
        let noise: Vec<u8> = (0..4096)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        let class = TrafficClass::Unknown.after(&text);
        assert_eq!(class, TrafficClass::Ordinary);
        let class = class.after(&noise);
        assert_eq!(class, TrafficClass::FullEntropy);
        assert_eq!(class.after(b"too short to tell"), TrafficClass::FullEntropy);
        assert_eq!(class.after(&text), TrafficClass::Ordinary);
    }
}
