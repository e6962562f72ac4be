//! Frames and names: equal where they must be shared, different where nobody must know, refused when changed.

use proptest::{collection::vec, prelude::*};
use refrain_czip::crypt::{
    FrameError, FrameKey, GroupKeys, GroupSecret, GroupSecretError, open_frame, padded_bytes,
    stored_frame_bytes,
};

use crate::encryption::group_secret;

proptest! {
    #[test]
    fn a_frame_opens_to_what_was_sealed(frame in vec(any::<u8>(), 1..3000), padded: bool, secret: Option<u8>) {
        let secret = secret.map(group_secret);
        let writer = GroupKeys::new(secret.as_ref());
        let sealed = writer.seal_frame(frame.clone(), padded);
        prop_assert_eq!(sealed.stored.len(), stored_frame_bytes(frame.len(), padded));

        let reader = GroupKeys::new(secret.as_ref());
        for group in [Some(&reader), None] {
            prop_assert_eq!(open_frame(group, &sealed.key, sealed.stored.clone(), padded), Ok(frame.clone()));
        }
    }

    #[test]
    fn equal_frames_of_a_group_are_stored_equally_and_in_another_group_share_no_block(
        frame in vec(any::<u8>(), 16..500),
        padded: bool,
    ) {
        let stored = |secret: Option<&GroupSecret>| GroupKeys::new(secret).seal_frame(frame.clone(), padded);
        let [none, again, one, other] =
            [stored(None), stored(None), stored(Some(&group_secret(1))), stored(Some(&group_secret(2)))];
        prop_assert_eq!(&none.stored, &again.stored);
        prop_assert_eq!(&none.key, &again.key);
        for (left, right) in [(&none, &one), (&none, &other), (&one, &other)] {
            prop_assert_ne!(&left.key, &right.key);
            for (left, right) in left.stored.chunks(16).zip(right.stored.chunks(16)) {
                prop_assert!(left.len() < 16 || left != right);
            }
        }
    }

    #[test]
    fn names_are_equal_in_a_group_alone(plain in vec(any::<u8>(), 0..500)) {
        let name = |secret: Option<&GroupSecret>| GroupKeys::new(secret).name(&plain);
        prop_assert_eq!(name(Some(&group_secret(1))), name(Some(&group_secret(1))));
        let plain_archive: [u8; 20] = *blake3::hash(&plain).as_bytes().first_chunk().unwrap();
        let names = [plain_archive, name(None), name(Some(&group_secret(1))), name(Some(&group_secret(2)))];
        for (index, name) in names.iter().enumerate() {
            prop_assert!(!names[..index].contains(name));
        }
    }

    #[test]
    fn what_differs_in_a_bit_or_in_padding_has_another_key(frame in vec(any::<u8>(), 1..300), bit: prop::sample::Index) {
        let keys = GroupKeys::new(None);
        let mut other = frame.clone();
        let bit = bit.index(frame.len() * 8);
        other[bit / 8] ^= 1 << (bit % 8);
        let key = |frame: &[u8], padded| keys.seal_frame(frame.to_vec(), padded).key;
        prop_assert_ne!(key(&frame, false), key(&other, false));
        prop_assert_ne!(key(&frame, false), key(&frame, true));
    }

    #[test]
    fn a_flipped_bit_a_cut_and_another_key_are_refused(
        frame in vec(any::<u8>(), 1..300),
        padded: bool,
        at: prop::sample::Index,
    ) {
        let keys = GroupKeys::new(None);
        let sealed = keys.seal_frame(frame, padded);
        let open = |key: &FrameKey, stored: &[u8]| open_frame(Some(&keys), key, stored.to_vec(), padded);

        let mut flipped = sealed.stored.clone();
        let bit = at.index(flipped.len() * 8);
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(open(&sealed.key, &flipped), Err(FrameError::Broken));

        let cut = &sealed.stored[..at.index(sealed.stored.len())];
        prop_assert_eq!(open(&sealed.key, cut), Err(FrameError::Broken));

        let mut key = sealed.key.clone();
        key.0[at.index(32)] ^= 1;
        prop_assert_eq!(open(&key, &sealed.stored), Err(FrameError::Broken));
    }

    #[test]
    fn padding_leaves_of_a_length_its_class(frame_bytes in 1_usize..200_000) {
        let stored = stored_frame_bytes(frame_bytes, true);
        let text = stored - 16;
        // A frame is never cut, and grows by its last byte and 12 % at most.
        prop_assert!(text > frame_bytes);
        prop_assert!((text as f64) <= (frame_bytes + 1) as f64 * 1.12);
        // All lengths of a class look the same, and its longest needs no zeros.
        prop_assert_eq!(padded_bytes(text), text);
        prop_assert_eq!(stored_frame_bytes(text - 1, true), stored);
        // Only so many leading bits as the number of bits has bits are not zero.
        let bits = usize::BITS - text.leading_zeros();
        let kept = usize::BITS - (bits - 1).leading_zeros();
        prop_assert_eq!(text % (1 << (bits - 1).saturating_sub(kept)), 0);
    }
}

#[test]
fn padded_lengths_are_few() {
    let mut lengths: Vec<_> = (32 << 10..64 << 10)
        .map(|bytes| stored_frame_bytes(bytes, true))
        .collect();
    lengths.dedup();
    assert_eq!(lengths.len(), 16);
}

#[test]
fn padded_lengths_are_those_of_the_paper() {
    for (bytes, padded) in [
        (1, 1),
        (2, 2),
        (8, 8),
        (9, 10),
        (100, 104),
        (1000, 1024),
        (1025, 1088),
        (1 << 20, 1 << 20),
    ] {
        assert_eq!(padded_bytes(bytes), padded, "{bytes}");
    }
}

#[test]
fn padding_that_is_not_as_written_is_refused() {
    let keys = GroupKeys::new(None);
    let no_end = vec![0; 64];
    let too_much = [&[0, 1, 2, 128][..], &[0; 60]].concat();
    let too_little = [&[7; 98][..], &[128]].concat();
    for text in [no_end, too_much, too_little, vec![1, 2, 3]] {
        let sealed = keys.seal_frame(text, false);
        assert_eq!(
            open_frame(Some(&keys), &sealed.key, sealed.stored, true),
            Err(FrameError::Padding)
        );
    }
}

#[test]
fn who_knows_a_key_cannot_pass_off_another_frame_to_a_member() {
    // The key is that of a frame whose content the forger knows; the text is his.
    let group = GroupKeys::new(None);
    let key = group
        .seal_frame(b"\0what everybody has".to_vec(), false)
        .key;
    let mut forged = b"\0what nobody wrote".to_vec();
    refrain_czip_format::seal::seal(&key.0, [0; 12], &[], &mut forged);
    assert_eq!(
        open_frame(Some(&group), &key, forged, false),
        Err(FrameError::KeyOfAnother)
    );
}

#[test]
fn another_group_secret_is_noticed() {
    let writer = GroupKeys::new(Some(&group_secret(1)));
    let sealed = writer.seal_frame(b"\0frame".to_vec(), false);
    for secret in [None, Some(group_secret(2))] {
        let reader = GroupKeys::new(secret.as_ref());
        assert_eq!(
            open_frame(Some(&reader), &sealed.key, sealed.stored.clone(), false),
            Err(FrameError::KeyOfAnother)
        );
    }
}

#[test]
fn a_group_secret_is_64_hexadecimal_digits_and_nothing_else() {
    let digits = "0123456789abcdefABCDEF0123456789".repeat(2);
    let name = |content: &str| {
        GroupKeys::new(Some(&GroupSecret::parse(content.as_bytes()).unwrap())).name(b"x")
    };
    assert_eq!(
        name(&digits),
        name(&format!(" \r\n{}\n", digits.to_lowercase()))
    );
    let refused = |content: &str| GroupSecret::parse(content.as_bytes()).unwrap_err();
    assert_eq!(refused(""), GroupSecretError::Length { digits: 0 });
    assert_eq!(
        refused(&digits[1..]),
        GroupSecretError::Length { digits: 63 }
    );
    assert_eq!(
        refused("correct horse battery staple, thirty-two bytes"),
        GroupSecretError::Length { digits: 46 }
    );
    assert_eq!(
        refused(&digits.replacen('F', "g", 1)),
        GroupSecretError::Digit { at: 21 }
    );
}

#[test]
fn secrets_do_not_show_when_they_are_printed_for_debugging() {
    let keys = GroupKeys::new(Some(&group_secret(0xab)));
    let sealed = keys.seal_frame(b"\0frame".to_vec(), false);
    let shown = format!("{:?} {keys:?} {:?}", group_secret(0xab), sealed.key);
    assert_eq!(shown, "GroupSecret(..) GroupKeys(..) FrameKey(..)");
}
