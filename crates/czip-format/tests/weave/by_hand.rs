//! Streams written by hand, as the format's page says: what both directions could have wrong alike.

use crate::streams::Told;

/// The blocks of tar members of these types, all fields of which are zeros but for what times and
/// `sizes` bring.
fn blocks(kinds: &[u8], sizes: &[&[u8; 12]], times: Vec<u8>) -> Vec<Vec<u8>> {
    let mut fields = Vec::new();
    for (at, kind) in kinds.iter().enumerate() {
        match sizes.get(at) {
            Some(size) => fields.extend([&[*kind, 16], &size[..]].concat()),
            None => fields.extend([*kind, 0]),
        }
    }
    let told = Told {
        weave: vec![4, kinds.len() as u8],
        content: b"content".to_vec(),
        fields,
        times,
        ..Told::default()
    };
    let plain = told.unweave().unwrap();
    plain.chunks(512).map(<[u8]>::to_vec).collect()
}

#[test]
fn the_extended_time_is_of_one_member_and_below_its_end() {
    for (text, mtime) in [
        ("20 mtime=8589934590.9\n", b"77777777776\0"),
        ("20 mtime=8589934591\n", &[0; 12]),
        ("30 mtime=18446744073709551617\n", &[0; 12]),
        ("10 mtime=\n", &[0; 12]),
        ("9 xmtime=7\n", &[0; 12]),
        ("9 mtime=7\n9 mtime=8\n", b"00000000010\0"),
    ] {
        let size = format!("{:011o}\0", text.len());
        let times = [b"\x08", size.as_bytes(), text.as_bytes(), &[0, 0]].concat();
        let blocks = blocks(b"x05", &[], times);
        assert_eq!(blocks.len(), 4);
        assert!(blocks[1].starts_with(text.as_bytes()));
        assert_eq!(&blocks[2][136..148], mtime, "{text}");
        assert_eq!(blocks[3][136..148], [0; 12], "{text}");
    }
}

#[test]
fn a_size_ends_where_its_digits_do_and_is_none_of_links_and_folders() {
    let blocks = blocks(b"0123456", &[b"     5 77777"; 7], vec![0; 7]);
    assert_eq!(blocks.len(), 8);
    assert!(blocks[1].starts_with(b"conte\0"));
    assert_eq!(blocks[7][156], b'6');
}

#[test]
fn a_header_is_its_type_and_its_checksum_at_least() {
    let [header] = &blocks(b"0", &[], vec![0])[..] else {
        panic!("one block");
    };
    let mut expected = [0; 512];
    expected[148..157].copy_from_slice(b"000460\0 0");
    assert_eq!(header[..], expected);
}
