//! Captures replayed over sockets through a pair, beside the estimate of its column.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use refrain_analysis::{blocks::Blocks, columns::ALL, run::Columns};
use refrain_capture::{Direction, Flow, FlowNumber, Sink, Time};
use refrain_link::LinkConfig;
use refrain_relay::Rate;
use serde::{Deserialize, Serialize};

use super::{Setup, is_set_aside, name, read_streams};
use crate::{
    chapters::Figures,
    over_link::OverLink,
    targets::{Target, all_of, at_most},
};

/// Longer pauses of a capture are cut to this, for the estimate too.
const PAUSE: Duration = Duration::from_millis(500);

const MEMORY_BYTES: u64 = 4 << 30;

/// Captures with fewer bytes have no bound of their own.
const BYTES_MIN: u64 = 1_000_000;

#[derive(Serialize, Deserialize)]
pub(super) struct Replays {
    captures: Vec<Replay>,
}

#[derive(Serialize, Deserialize)]
struct Replay {
    name: String,
    is_set_aside: bool,
    flows: usize,
    app_bytes: u64,
    estimated_bytes: u64,
    real_bytes: u64,
}

impl Replay {
    fn difference(&self) -> f64 {
        100.0 * (self.estimated_bytes as f64 / self.real_bytes as f64 - 1.0)
    }
}

impl Replays {
    /// The sums of all, or of those that are set aside.
    fn sum(&self, only_set_aside: bool) -> Replay {
        let parts = self
            .captures
            .iter()
            .filter(|it| it.is_set_aside || !only_set_aside);
        let mut sum = Replay {
            name: if only_set_aside {
                "all that are set aside"
            } else {
                "all"
            }
            .to_owned(),
            is_set_aside: only_set_aside,
            flows: 0,
            app_bytes: 0,
            estimated_bytes: 0,
            real_bytes: 0,
        };
        for part in parts {
            sum.flows += part.flows;
            sum.app_bytes += part.app_bytes;
            sum.estimated_bytes += part.estimated_bytes;
            sum.real_bytes += part.real_bytes;
        }
        sum
    }
}

impl Figures<Setup<'_>> for Replays {
    const NAME: &'static str = "replays";
    const TITLE: &'static str = "Replays over sockets";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let mut captures = Vec::new();
        for path in &setup.captures {
            let script = script(path).with_context(|| path.display().to_string())?;
            let (app_bytes, estimated_bytes) = estimate(&script);
            let real_bytes = replay(&script, app_bytes, setup.refrain)
                .with_context(|| path.display().to_string())?;
            let name = name(path);
            let replay = Replay {
                is_set_aside: is_set_aside(&name),
                name,
                flows: script.flows.len(),
                app_bytes,
                estimated_bytes,
                real_bytes,
            };
            eprintln!("{}: {:+.2} %", replay.name, replay.difference());
            captures.push(replay);
        }
        Ok(Self { captures })
    }

    fn targets(&self) -> Vec<Target> {
        let sum = self.sum(false).difference();
        let large = self.captures.iter().filter(|it| it.app_bytes >= BYTES_MIN);
        let near = large
            .clone()
            .filter(|it| it.difference().abs() <= 5.0)
            .count();
        vec![
            Target {
                what: "estimate of all captures, compared with their replays",
                asked: "within 2 %",
                measured: Some(at_most(sum.abs(), 2.0, format!("{sum:+.2} %"))),
            },
            Target {
                what: "estimate of each capture with 1 MB or more",
                asked: "within 5 %",
                measured: Some(all_of(near, large.count())),
            },
        ]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "The connections of each capture, replayed with its timing through two gateways with `--effort max`. They run over\n\
             the lab's link (100 Mbit/s, 5 ms each way). *Estimated* is the column `refrain-max`. Pauses above {} ms are cut\n\
             to that in both.\n\
             Bytes are those of all lanes in both directions, handshakes and TLS included. Captures marked with * were set\n\
             aside.\n\n\
             | capture | connections | application bytes | estimated | over sockets | difference % |\n\
             |---|--:|--:|--:|--:|--:|",
            PAUSE.as_millis()
        )?;
        for replay in self
            .captures
            .iter()
            .chain(&[self.sum(true), self.sum(false)])
        {
            writeln!(
                page,
                "| {}{} | {} | {} | {} | {} | {:+.2} |",
                replay.name,
                if replay.is_set_aside { " *" } else { "" },
                replay.flows,
                replay.app_bytes,
                replay.estimated_bytes,
                replay.real_bytes,
                replay.difference()
            )?;
        }
        Ok(())
    }
}

/// A capture's bytes in order, with pauses cut.
#[derive(Default)]
struct Script {
    events: Vec<Event>,
    last: Time,
    now: Duration,
    flows: HashMap<FlowNumber, Flow>,
}

struct Event {
    at: Duration,
    flow: FlowNumber,
    action: Action,
}

enum Action {
    Bytes(Direction, Vec<u8>),
    End,
}

impl Script {
    fn push(&mut self, flow: FlowNumber, at: Time, action: Action) {
        if self.last != Time::default() {
            let passed = Duration::from_nanos(at.0.saturating_sub(self.last.0));
            self.now += passed.min(PAUSE);
        }
        self.last = self.last.max(at);
        self.events.push(Event {
            at: self.now,
            flow,
            action,
        });
    }
}

impl Sink for Script {
    fn opened(&mut self, flow: FlowNumber, ends: &Flow) {
        self.flows.insert(flow, *ends);
    }

    fn came(&mut self, flow: FlowNumber, direction: Direction, at: Time, bytes: &[u8]) {
        self.push(flow, at, Action::Bytes(direction, bytes.to_vec()));
    }

    fn missed(&mut self, _: FlowNumber, _: Direction, _: u64) {}

    fn closed(&mut self, flow: FlowNumber) {
        self.push(flow, self.last, Action::End);
    }
}

fn script(path: &Path) -> anyhow::Result<Script> {
    let mut script = Script::default();
    read_streams(path, &mut script)?;
    Ok(script)
}

fn estimate(script: &Script) -> (u64, u64) {
    let kinds = ALL.iter().filter(|kind| kind.name == "refrain-max");
    let kinds: Vec<_> = kinds.copied().collect();
    let mut blocks = Blocks::new(Columns::start(&kinds, 1, MEMORY_BYTES), |_| None);
    let mut opened = HashSet::new();
    let first = script.flows.values().min_by_key(|flow| flow.began);
    let first = *first.expect("a capture has connections");
    for event in &script.events {
        if opened.insert(event.flow) {
            // As in the replay, all flows have one target, and so one lane.
            blocks.opened(event.flow, &first);
        }
        match &event.action {
            Action::Bytes(direction, bytes) => {
                blocks.came(
                    event.flow,
                    *direction,
                    Time(event.at.as_nanos() as u64 + 1),
                    bytes,
                );
            }
            Action::End => blocks.closed(event.flow),
        }
    }
    let analysis = blocks.analysis();
    (analysis.totals.total(), analysis.columns[0].outcome.total())
}

/// Bytes of a direction, as they are written.
type Half = mpsc::Sender<Vec<u8>>;

/// Directions from the origin whose connections have not arrived, by number.
type Waiting = Arc<Mutex<HashMap<u64, mpsc::Receiver<Vec<u8>>>>>;

fn replay(script: &Script, app: u64, refrain: &Path) -> anyhow::Result<u64> {
    // Connections at the origin, by the number that they begin with.
    let waiting = Waiting::default();
    let origin = {
        let waiting = Arc::clone(&waiting);
        Arc::new(move |mut stream: TcpStream| -> io::Result<()> {
            let mut number = [0; 4];
            stream.read_exact(&mut number)?;
            let number = u64::from(u32::from_le_bytes(number));
            let own = waiting.lock().expect("no panic").remove(&number);
            let Some(own) = own else { return Ok(()) };
            both(stream, own)
        })
    };
    let link = LinkConfig {
        rate: Some(Rate::mbit(100)),
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    };
    let over = OverLink::start(&link, origin)?;
    let effort = ["--effort", "max"];
    let pair = over.pair(refrain, &effort, &effort)?;
    let address = pair.address;
    over.client(|| {
        let mut halves: HashMap<FlowNumber, [Half; 2]> = HashMap::new();
        let mut threads = Vec::new();
        let began = Instant::now();
        for event in &script.events {
            if let Some(left) = event.at.checked_sub(began.elapsed()) {
                thread::sleep(left);
            }
            if !halves.contains_key(&event.flow) && matches!(event.action, Action::Bytes(..)) {
                let (up, from_up) = mpsc::channel();
                let (down, from_down) = mpsc::channel();
                waiting
                    .lock()
                    .expect("no panic")
                    .insert(event.flow.0, from_down);
                let _ = up.send((event.flow.0 as u32).to_le_bytes().to_vec());
                threads.push(client(address, from_up)?);
                halves.insert(event.flow, [up, down]);
            }
            match &event.action {
                Action::Bytes(direction, bytes) => {
                    let _ = halves[&event.flow][*direction as usize].send(bytes.clone());
                }
                Action::End => {
                    halves.remove(&event.flow);
                }
            }
        }
        drop(halves);
        for thread in threads {
            let _ = thread.join();
        }
        Ok(())
    })?;
    thread::sleep(Duration::from_millis(500));
    let near = pair.near()?;
    let carried = near.sent.app_bytes + near.received.app_bytes;
    ensure!(carried >= app, "only {carried} of {app} bytes were carried");
    Ok(near.sent.link_bytes + near.received.link_bytes)
}

fn client(
    address: SocketAddr,
    own: mpsc::Receiver<Vec<u8>>,
) -> io::Result<thread::JoinHandle<io::Result<()>>> {
    let stream = TcpStream::connect(address)?;
    Ok(thread::spawn(move || both(stream, own)))
}

/// Writes all bytes of the channel, reads all from the other end, and ends its side when the channel does.
fn both(mut stream: TcpStream, own: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reading = stream.try_clone()?;
    let reader = thread::spawn(move || io::copy(&mut reading, &mut io::sink()));
    while let Ok(bytes) = own.recv() {
        stream.write_all(&bytes)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let _ = reader.join();
    Ok(())
}
