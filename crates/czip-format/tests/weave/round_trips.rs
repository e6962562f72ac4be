//! What is woven comes back: any bytes, any split, from any restart point.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::archives::{self, Member, extended, file, tar};
use crate::streams::{assert_round_trip, pieces, read_all, weave, weave_split};

fn skips() -> impl Strategy<Value = Vec<u64>> {
    vec(prop_oneof![0..600u64, 0..100_000u64], 1..4)
        .prop_filter("gets on", |skips| skips.iter().any(|skip| *skip > 0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tar_archives_come_back(tar in archives::tars(), pieces in pieces(), skips in skips()) {
        assert_round_trip(&tar, &pieces, &skips);
    }
}

proptest! {
    #[test]
    fn any_bytes_come_back(bytes in vec(any::<u8>(), 0..3000), pieces in pieces(), skips in skips()) {
        assert_round_trip(&bytes, &pieces, &skips);
    }

    #[test]
    fn files_come_back_in_order(tars in vec(archives::tars(), 0..5), pieces in pieces()) {
        let files: Vec<&[u8]> = tars.iter().map(Vec::as_slice).collect();
        let told = weave_split(&files, &pieces);
        prop_assert!(told.unweave().unwrap() == tars.concat());
        for restart in &told.restarts {
            let most = tars.concat().len() + 1;
            let back = read_all(&mut told.unweaver(*restart), most).unwrap();
            prop_assert!(back == tars.concat()[restart.plain as usize..]);
        }
    }
}

#[test]
fn restart_points_come_among_headers_that_are_no_members_too() {
    for kind in [b'g', b'L', b'K'] {
        let header = |number: u8| Member {
            kind,
            ..file("header", &vec![number; 500 << 10], 1)
        };
        let plain = tar(&(0..30).map(header).collect::<Vec<_>>(), 2);
        let told = assert_round_trip(&plain, &[70_000], &[100_000]);
        let mut ends: Vec<u64> = told.restarts.iter().map(|restart| restart.plain).collect();
        ends.push(plain.len() as u64);
        // As docs/czip-format.md bounds them, with much to spare.
        assert!(ends.windows(2).all(|pair| pair[1] - pair[0] <= 8 << 20));
    }
}

#[test]
fn restart_points_come_about_every_mib_and_the_first_at_0() {
    let members: Vec<_> = (0..400u64)
        .flat_map(|number| {
            let data = vec![number as u8; 20_000];
            let time = extended(&[("mtime", format!("{number}.5"))]);
            [time, file(&format!("top/{number}"), &data, number)]
        })
        .chain([file("top/large", &vec![7; 5 << 20], 1)])
        .collect();
    for plain in [tar(&members, 2), vec![1; 10 << 20]] {
        let told = assert_round_trip(&plain, &[70_000], &[100_000]);
        let mut ends: Vec<u64> = told.restarts.iter().map(|restart| restart.plain).collect();
        assert_eq!(ends[0], 0);
        ends.push(plain.len() as u64);
        assert!(ends.windows(2).all(|pair| pair[1] - pair[0] <= 2_200_000));
        assert!((9..30).contains(&ends.len()), "{ends:?}");
    }
}

#[test]
fn nothing_is_woven_to_nothing() {
    let told = weave(b"");
    assert_eq!(told, crate::streams::Told::default());
    assert_eq!(told.unweave(), Ok(Vec::new()));
}
