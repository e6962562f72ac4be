//! dev: one series over a paced pair
use clap::Parser;
use refrain_codec::{chunk::stream::ChunkBounds, geometry::CacheGeometry, marker::PackMask};
use refrain_proto::{
    LinkConfig, Mode,
    by_receiver::history::{HistoryConfig, Predict},
};
use refrain_sim::{
    paced::{PacedPair, Way},
    remembered::Remembered,
};
use std::time::Duration;

/// dev
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 100.0)]
    mbit: f64,
    #[arg(long, default_value_t = 50.0)]
    rtt: f64,
    #[arg(long, default_value_t = 16)]
    unsent: u64,
    #[arg(long, default_value_t = 65536)]
    block: usize,
    #[arg(long, default_value = "fetch it, please")]
    request: String,
    #[arg(long)]
    aligned: bool,
    #[arg(long, default_value = "receiver")]
    mode: Mode,
    #[arg(long, default_value_t = 13)]
    bits: u8,
    #[arg(long, default_value_t = 2048)]
    min: usize,
    #[arg(long, default_value_t = 32768)]
    max: usize,
    #[arg(long, default_value_t = 256)]
    cache: usize,
    #[arg(long)]
    differ: bool,
    #[arg(long)]
    each: bool,
    files: Vec<std::path::PathBuf>,
}
fn main() {
    let o = Options::parse();
    let history = HistoryConfig {
        predict: if o.aligned {
            Predict::Aligned
        } else {
            Predict::Window
        },
        mask: PackMask::with_bits(o.bits).expect("bits"),
        bounds: ChunkBounds::new(o.min, o.max).expect("bounds"),
        ..HistoryConfig::default()
    };
    let far = LinkConfig {
        mode: o.mode,
        block_bytes_max: o.block,
        ..LinkConfig::with_cache(CacheGeometry::new(o.cache << 20).expect("c"))
    };
    let near = LinkConfig {
        history: Some(history),
        ..far.clone()
    };
    let way = Way {
        bytes_per_s: o.mbit * 125_000.0,
        round_trip: Duration::from_secs_f64(o.rtt / 1000.0),
        unsent_bytes: o.unsent << 10,
    };
    let mut pair = PacedPair::new(way, near, far, Remembered::default());
    let began = std::time::Instant::now();
    let mut took = Duration::ZERO;
    let mut before = 0;
    for (n, f) in o.files.iter().enumerate() {
        let c = std::fs::read(f).expect("file");
        let target = if o.differ {
            format!("t{n}:80")
        } else {
            "t:80".into()
        };
        let t = pair.fetch(&target, o.request.as_bytes(), &c);
        took += t;
        if o.each {
            let s = pair.near_status();
            let conf = s.received.layers.confirmed_bytes;
            println!(
                "{} {} {:.2}% {:.2?}",
                f.display(),
                c.len(),
                100.0 * (conf - before) as f64 / c.len() as f64,
                t
            );
            before = conf;
        }
    }
    let (n, f) = (pair.near_status(), pair.far_status());
    let app = n.received.layers.app_bytes as f64;
    let pc = |b: u64| 100.0 * b as f64 / app;
    println!(
        "app {:.1} MB known {:.2}% confirmed {:.2}% down {:.3}% up {:.3}% took {:.1}s ({:.1} Mbit/s) cpu {:.1}s",
        app / 1e6,
        100.0 * pair.history.known_bytes as f64 / pair.history.learnt_bytes as f64,
        pc(n.received.layers.confirmed_bytes),
        pc(n.received.link_bytes),
        pc(f.received.link_bytes),
        took.as_secs_f64(),
        app * 8.0 / 1e6 / took.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    println!("made {:?}\ntaken {:?}", n.offers_made, f.offers_taken);
}
