//! Any range of any view has the bytes that it should have.

use std::sync::LazyLock;

use proptest::prelude::*;
use refrain_czip::create::CreateOptions;
use refrain_czip_format::{
    header::Profile,
    method::{Compression, Method},
};

use super::world::{World, letters, options, tar_of};

struct Served {
    world: World,
    views: Vec<(String, Vec<u8>)>,
}

/// Archives of all kinds, of content that repeats, with a cache that does not hold it.
static SERVED: LazyLock<Served> = LazyLock::new(|| {
    let world = World::with(refrain_czip::serve::ServeOptions {
        cache_bytes: 3 << 20,
        ..Default::default()
    });
    let mut tar = tar_of(1, [70_000, 3, 0, 900_000, 512, 40_000].repeat(3));
    tar.extend(tar_of(2, [100_000; 4]));
    let plain = [letters(1, 900_000), vec![0; 300_000], letters(1, 900_000)].concat();
    let mut views = Vec::new();
    let kinds = [
        ("small", options(Profile::Small)),
        ("shared", options(Profile::Shared)),
        (
            "unwoven",
            CreateOptions {
                is_woven: false,
                ..options(Profile::Small)
            },
        ),
        (
            "stored",
            CreateOptions {
                compression: Compression::new(Method::None),
                ..options(Profile::Shared)
            },
        ),
    ];
    for (kind, options) in kinds {
        for (name, content) in [("plain", &plain), ("tar", &tar)] {
            let name = format!("{kind}.{name}");
            let archive = format!("{name}.czip");
            world.archive(&archive, content, &options);
            let stored = std::fs::read(world.path(&archive)).expect("it was made");
            views.push((format!("/{archive}"), stored));
            views.push((format!("/{name}"), content.clone()));
        }
    }
    Served { world, views }
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_range_has_the_bytes_of_the_whole(
        view in any::<prop::sample::Index>(),
        places in any::<[prop::sample::Index; 2]>(),
        is_short in any::<bool>(),
    ) {
        let (path, whole) = &SERVED.views[view.index(SERVED.views.len())];
        let mut places = places.map(|place| place.index(whole.len()));
        places.sort_unstable();
        let [first, mut last] = places;
        if is_short {
            last = last.min(first + 70_000);
        }
        let range = format!("bytes={first}-{last}");
        let answer = SERVED.world.get(path, &[("Range", &range)]);
        prop_assert_eq!(answer.status, 206);
        let expected = format!("bytes {first}-{last}/{}", whole.len());
        prop_assert_eq!(answer.header("content-range"), Some(&*expected));
        prop_assert!(answer.body == whole[first..=last], "{} {}", path, range);
    }
}

#[test]
fn wholes_are_whole_for_clients_at_once() {
    std::thread::scope(|scope| {
        for (path, whole) in &SERVED.views {
            for _ in 0..3 {
                scope.spawn(move || {
                    let answer = SERVED.world.get(path, &[]);
                    assert!(answer.body == *whole, "{path}");
                });
            }
        }
    });
}
