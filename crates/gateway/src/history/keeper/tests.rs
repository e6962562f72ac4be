use std::time::Duration;

use super::*;
use refrain_codec::{
    chunk::{
        hash::{ChunkDigest, ChunkHasher},
        stream::ChunkBounds,
    },
    marker::PackMask,
};
use refrain_proto::predictions::history::Predict;
use std::path::PathBuf;

use crate::{keys::PublicKey, units::ByteSize};

const REALM: &str = "example";

pub(in crate::history) fn options(store: PathBuf, also: Vec<PathBuf>) -> HistoryOptions {
    HistoryOptions {
        store,
        size: ByteSize(64 << 20),
        also,
        realms: [(PublicKey([0; 32]), REALM.to_owned())].into(),
        predict: Predict::default(),
        mask: PackMask::default(),
        bounds: ChunkBounds::default(),
        hasher: ChunkHasher::default(),
    }
}

fn open(options: &HistoryOptions) -> Result<Keeper, HistoryError> {
    Keeper::open(options, Arc::new(Shared::new(options)))
}

fn digest(chunk: &[u8]) -> ChunkDigest {
    ChunkHasher::default().digest(chunk)
}

fn learn(keeper: &mut Keeper, chunks: [&'static [u8]; 3]) {
    let recipe = RecipeNumber(1);
    let learnt = chunks.map(|chunk| HistoryRequest::Learn {
        recipe,
        digest: digest(chunk),
        bytes: chunk.into(),
        follow: None,
    });
    let begin = HistoryRequest::Begin {
        recipe,
        opening: Some(7),
    };
    let end = HistoryRequest::End { recipe };
    for request in [begin].into_iter().chain(learnt).chain([end]) {
        keeper
            .asked(0, Realm::named(REALM), request)
            .expect("the disk works");
    }
    let own = keeper.own.get();
    own.map_or(Ok(()), |own| own.sync())
        .expect("the disk works");
}

/// What is wrong with the only neighbour.
fn trouble(keeper: &Keeper) -> Option<String> {
    keeper.neighbours().swap_remove(0).trouble
}

/// What the first flow brought, as each of the stores tells it.
fn told(keeper: &mut Keeper) -> Vec<Vec<Vec<u8>>> {
    let wanted = Wanted {
        flow: refrain_proto::FlowId(0),
        request: 0,
        chunks_max: 9,
        bytes_max: 999,
    };
    let realm = Realm::named(REALM);
    let sources = 0..=keeper.also.len();
    let told = sources.map(|source| {
        let source_of = keeper.source(source).expect("it is there");
        let place = source_of.openings(realm, OpeningKey(7))[0];
        let found = keeper.read(source, place, wanted).chunks;
        found.iter().map(|chunk| chunk.bytes.to_vec()).collect()
    });
    told.collect()
}

#[test]
fn what_was_confirmed_wrongly_is_told_by_no_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
    let verses: [&[u8]; 3] = [b"verse one", b"refrain", b"verse two"];
    let mut neighbour = open(&options(other.clone(), vec![])).expect("a store");
    learn(&mut neighbour, verses);
    let mut keeper = open(&options(own, vec![other])).expect("a store");
    learn(&mut keeper, verses);
    assert_eq!(told(&mut keeper), [verses, verses]);
    let forget = |digest| HistoryRequest::Forget { digest };
    for chunk in [b"refrain", b"unknown"] {
        let asked = keeper.asked(0, Realm::named(REALM), forget(digest(chunk)));
        asked.expect("no error");
    }
    let left = [verses[0], verses[2]];
    assert_eq!(told(&mut keeper), [left, left]);
    // The neighbour's own view is its own.
    assert_eq!(told(&mut neighbour), [verses]);
    // It came again: it is new.
    learn(&mut keeper, verses);
    assert_eq!(told(&mut keeper), [verses.to_vec(), left.to_vec()]);
}

#[test]
fn a_neighbour_may_come_later_and_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
    let verses: [&[u8]; 3] = [b"verse one", b"refrain", b"verse two"];
    let also = vec![other.clone()];
    let mut keeper = open(&options(own.clone(), also)).expect("a store");
    let wrong = trouble(&keeper).expect("nothing is there");
    let named = format!("--store-also: \"{}\"", other.display());
    assert!(wrong.contains(&named), "{wrong}");
    // It names this one, and is as new.
    let also = vec![own];
    let mut neighbour = open(&options(other.clone(), also)).expect("a store");
    assert_eq!(trouble(&neighbour), None);
    learn(&mut neighbour, verses);
    learn(&mut keeper, [b"verse three", b"refrain", b"verse four"]);
    keeper.tick().expect("the disk works");
    assert_eq!(trouble(&keeper), None);
    assert_eq!(told(&mut keeper)[1], verses);

    drop(neighbour);
    let elsewhere = folder.path().join("elsewhere");
    std::fs::rename(&other, &elsewhere).expect("moved");
    // What comes is kept all the same.
    learn(&mut keeper, [b"verse five", b"refrain", b"verse six"]);
    keeper.has_news = true;
    keeper.tick().expect("the disk works");
    assert!(trouble(&keeper).is_some() && !keeper.has_news);
    std::fs::rename(&elsewhere, &other).expect("moved");
    keeper.tick().expect("the disk works");
    assert_eq!(trouble(&keeper), None);
    assert_eq!(told(&mut keeper)[1], verses);
}

#[test]
fn a_neighbour_that_cuts_otherwise_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
    let coarse = HistoryOptions {
        mask: PackMask::with_bits(14).expect("valid"),
        ..options(other.clone(), vec![])
    };
    drop(open(&coarse).expect("a store"));
    let error = open(&options(own, vec![other.clone()]));
    let error = error
        .err()
        .expect("no chunk would meet another")
        .to_string();
    let named = format!("--store-also: store \"{}\"", other.display());
    assert!(error.contains(&named), "{error}");
}

#[test]
fn a_store_that_the_disk_refuses_is_tried_again_and_neighbours_answer_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
    let verses: [&[u8]; 3] = [b"verse one", b"refrain", b"verse two"];
    let mut neighbour = open(&options(other.clone(), vec![])).expect("a store");
    learn(&mut neighbour, verses);

    std::fs::create_dir(&own).expect("made");
    std::fs::write(own.join("format"), "rubbish").expect("written");
    let mut keeper = open(&options(own.clone(), vec![other])).expect("traffic goes on");
    let trouble = keeper.shared.trouble.last().expect("it is told").text;
    assert!(
        trouble.contains("own/format") && trouble.contains("tried again within 60 s"),
        "{trouble}"
    );
    learn(&mut keeper, verses);
    keeper.tick().expect("nothing is written");
    assert!(keeper.source(0).is_none());

    std::fs::remove_file(own.join("format")).expect("removed");
    let patience = Instant::now() + Duration::from_secs(20);
    while keeper.shared.trouble.last().is_some() {
        assert!(Instant::now() < patience, "it is tried again");
        std::thread::sleep(Duration::from_millis(50));
        keeper.look_at_own();
    }
    learn(&mut keeper, verses);
    assert_eq!(told(&mut keeper), [verses, verses]);
}

#[test]
fn what_somebody_has_to_see_to_is_refused_and_damage_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    let good = options(store.clone(), vec![]);
    let refused = |options: &HistoryOptions| open(options).err().map(|error| error.to_string());
    let keeper = open(&good).expect("a store");
    let in_use = refused(&good).expect("another has it");
    assert!(in_use.contains("uses this store"), "{in_use}");
    drop(keeper);
    let coarse = HistoryOptions {
        mask: PackMask::with_bits(14).expect("valid"),
        ..good.clone()
    };
    assert!(refused(&coarse).is_some_and(|error| error.contains("was made with")));
    let small = HistoryOptions {
        size: ByteSize(1 << 20),
        ..good.clone()
    };
    assert!(refused(&small).is_some_and(|error| error.contains("too small")));
    let foreign = options(folder.path().to_owned(), vec![]);
    assert!(refused(&foreign).is_some_and(|error| error.contains("not a store")));
    // A file is where a folder should be, at the end of the path or on the way.
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("written");
    for store in [file.clone(), file.join("store"), file.join("deep/store")] {
        let error = refused(&options(store, vec![])).expect("no disk gets over that");
        assert!(error.contains("file"), "{error}");
    }

    std::fs::write(store.join("format"), "rubbish").expect("written");
    let keeper = open(&good).expect("traffic goes on");
    assert!(keeper.shared.trouble.last().is_some());
}
