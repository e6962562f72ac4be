//! Private parts: each opens in its place, in its archive, unchanged, and nowhere else.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};
use refrain_czip::crypt::{ArchiveKey, Place, PrivateKey, SealBroken};

fn places() -> impl Strategy<Value = Place> {
    (0..4, 0..5_u8, prop_oneof![0..3_u64, Just(u64::MAX)]).prop_map(
        |(kind, stream, row)| match kind {
            0 => Place::Lengths { stream, row },
            1 => Place::References { stream, row },
            2 => Place::Keys { stream, row },
            _ => Place::WeaveIndex { row },
        },
    )
}

fn private_key(byte: u8) -> PrivateKey {
    PrivateKey::new(&ArchiveKey::from_bytes([byte; 32]))
}

proptest! {
    #[test]
    fn a_part_opens_in_its_place_and_in_no_other(
        part in vec(any::<u8>(), 0..500),
        place in places(),
        other in places(),
    ) {
        let stored = private_key(1).seal_part(place, part.clone());
        prop_assert_eq!(stored.len(), part.len() + 16);
        prop_assert_eq!(private_key(1).open_part(place, stored.clone()), Ok(part));
        prop_assert_eq!(private_key(2).open_part(place, stored.clone()), Err(SealBroken));
        if other != place {
            prop_assert_eq!(private_key(1).open_part(other, stored), Err(SealBroken));
        }
    }

    #[test]
    fn a_flipped_bit_and_a_cut_are_refused(part in vec(any::<u8>(), 0..100), at: prop::sample::Index) {
        let place = Place::Lengths { stream: 0, row: 0 };
        let stored = private_key(1).seal_part(place, part);
        let mut flipped = stored.clone();
        flipped[at.index(stored.len())] ^= 1 << at.index(8);
        prop_assert_eq!(private_key(1).open_part(place, flipped), Err(SealBroken));
        let cut = stored[..at.index(stored.len())].to_vec();
        prop_assert_eq!(private_key(1).open_part(place, cut), Err(SealBroken));
    }

    #[test]
    fn a_private_root_vouches_for_the_header_before_its_digest_and_for_the_root(
        root in vec(any::<u8>(), 1..300),
        at: prop::sample::Index,
    ) {
        let key = private_key(1);
        let header: [u8; 256] = std::array::from_fn(|at| at as u8);
        let stored = key.seal_private_root(&header, &root, b"private".to_vec());
        prop_assert_eq!(key.open_private_root(&header, &root, stored.clone()), Ok(b"private".to_vec()));

        for byte in 0..256 {
            let mut other_header = header;
            other_header[byte] ^= 1;
            let opened = key.open_private_root(&other_header, &root, stored.clone());
            prop_assert_eq!(opened.is_ok(), byte >= 152);
        }

        let mut other_root = root.clone();
        other_root[at.index(root.len())] ^= 1;
        prop_assert_eq!(key.open_private_root(&header, &other_root, stored.clone()), Err(SealBroken));
        prop_assert_eq!(key.open_private_root(&header, &root[1..], stored), Err(SealBroken));
    }
}

#[test]
fn equal_parts_in_two_places_share_no_block() {
    let mut stored = vec![private_key(1).seal_private_root(&[0; 256], &[], vec![0; 64])];
    for row in [0, 1, 255, 256, 1 << 32, 1 << 63, u64::MAX] {
        for stream in 0..5 {
            for place in [
                Place::Lengths { stream, row },
                Place::References { stream, row },
                Place::Keys { stream, row },
            ] {
                stored.push(private_key(1).seal_part(place, vec![0; 64]));
            }
        }
        stored.push(private_key(1).seal_part(Place::WeaveIndex { row }, vec![0; 64]));
    }
    let blocks: BTreeSet<&[u8]> = stored.iter().flat_map(|part| part.chunks(16)).collect();
    assert_eq!(blocks.len(), stored.len() * 5);
}

#[test]
fn a_private_root_is_no_part() {
    let stored = private_key(1).seal_private_root(&[0; 256], &[], vec![1]);
    for place in [
        Place::Lengths { stream: 0, row: 0 },
        Place::WeaveIndex { row: 0 },
    ] {
        assert_eq!(
            private_key(1).open_part(place, stored.clone()),
            Err(SealBroken)
        );
    }
}

#[test]
fn archive_keys_are_drawn_anew() {
    let [one, other] = [(); 2].map(|()| ArchiveKey::generate().unwrap());
    assert_ne!(one.as_bytes(), other.as_bytes());
    assert_eq!(
        format!("{one:?} {:?}", PrivateKey::new(&other)),
        "ArchiveKey(..) PrivateKey(..)"
    );
}
