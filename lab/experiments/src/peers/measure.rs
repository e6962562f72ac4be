//! The turns of one place: each way begins its turn with programs that have just started.

use std::{path::Path, process::Command, thread, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    content::Content,
    place::{Kind, Place},
    ways::{Http, Ready, Stage, WAYS, Way},
    web::Web,
};
use crate::{machine, over_link};

/// How many new connections a turn makes, bytes of the answer to each, and of the larger one.
const NEW_CONNECTIONS: usize = 5;
const SMALL_BYTES: usize = 100;
const LARGE_BYTES: usize = 1 << 20;

/// Debian's packages of the programs.
const PACKAGES: [&str; 7] = [
    "haproxy",
    "libnginx-mod-http-brotli-filter",
    "nginx",
    "openssh-server",
    "rsync",
    "squid",
    "zstd",
];

/// How long a connection is idle.
pub(super) const IDLE: Duration = Duration::from_secs(5);

/// What is measured, and how often.
pub(super) struct Setup<'a> {
    pub refrain: &'a Path,
    pub contents: &'a [Content],
    /// The folder of all files.
    pub files: &'a Path,
    /// Parts of the names of ways; all without one.
    pub ways: &'a [String],
    pub runs: usize,
}

/// All that was measured at a place, turn by turn.
#[derive(Serialize, Deserialize)]
pub(super) struct Figures {
    pub machine: String,
    pub version: String,
    /// The load when it began.
    pub load: f64,
    pub date: String,
    pub runs: usize,
    /// Debian's packages of the programs, with their versions.
    pub packages: String,
    /// What a check of the link measured.
    pub link: Option<String>,
    pub contents: Vec<Measured>,
    pub rows: Vec<Row>,
}

/// A content, for the page.
#[derive(Serialize, Deserialize)]
pub(super) struct Measured {
    pub name: String,
    pub title: String,
    /// Of the first transfer, the second one and the next versions.
    pub bytes: [u64; 3],
}

/// A way, or why there is nothing of it.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    pub way: String,
    pub missing: Option<String>,
    /// By content.
    pub transfers: Vec<Vec<Transfer>>,
    pub connections: Vec<Connections>,
}

/// A turn on a content: the first transfer, the second one, the next versions.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Transfer {
    pub seconds: [f64; 3],
    /// Both ways, with headers.
    pub link_bytes: Option<[u64; 3]>,
    /// Of answers of the origin in all three, if it is asked by HTTP.
    pub origin_bytes: Option<u64>,
}

/// A turn on connections, in seconds from the connect, or from the request where one was idle.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Connections {
    pub new_first_bytes: Vec<f64>,
    pub new_large: f64,
    pub idle_first_byte: f64,
    pub idle_large: f64,
}

/// Measures at a place of that kind.
pub(super) fn measure(setup: &Setup<'_>, kind: &Kind) -> anyhow::Result<Figures> {
    let place = kind.start()?;
    let link = place.link.as_ref().map(|link| over_link::check(link));
    let link = link.transpose()?.map(|checked| checked.to_string());
    drop(place);
    let mut figures = Figures {
        machine: machine::processor(),
        version: machine::version(),
        load: machine::load(),
        date: machine::date()?,
        runs: setup.runs,
        packages: packages(),
        link,
        contents: setup.contents.iter().map(Measured::of).collect(),
        rows: Vec::new(),
    };
    let is_asked = |way: &&Way| {
        let mut parts = setup.ways.iter();
        way.is_wanted() && (setup.ways.is_empty() || parts.any(|part| way.name.contains(part)))
    };
    let ways: Vec<&Way> = WAYS.iter().filter(is_asked).collect();
    for way in &ways {
        figures.rows.push(Row {
            way: way.name.to_owned(),
            missing: way.missing().map(|needed| {
                format!("not measured: {needed} is not installed (lab/setup --peers)")
            }),
            transfers: setup.contents.iter().map(|_| Vec::new()).collect(),
            connections: Vec::new(),
        });
    }
    let chapters = (0..setup.contents.len()).map(Some).chain([None]);
    let chapters: Vec<Option<usize>> = chapters.collect();
    for run in 0..setup.runs {
        for &chapter in &chapters {
            for turn in 0..ways.len() {
                let number = (turn + run) % ways.len();
                take_turn(
                    setup,
                    kind,
                    ways[number],
                    &mut figures.rows[number],
                    chapter,
                );
            }
        }
    }
    Ok(figures)
}

/// One turn of a way, on a content or on connections. A way that fails has no further turns.
fn take_turn(setup: &Setup<'_>, kind: &Kind, way: &Way, row: &mut Row, chapter: Option<usize>) {
    if row.missing.is_some() {
        return;
    }
    let name = format!("{}, {}", kind.name, way.name);
    let result = (|| {
        let place = kind.start()?;
        let web = Web::start(&place, setup.files)?;
        let stage = Stage {
            place: &place,
            web: &web,
            refrain: setup.refrain,
        };
        let mut ready = way.start(stage)?;
        match (chapter, &ready) {
            (Some(number), _) => {
                let content = &setup.contents[number];
                let transfer = transfer(stage, &mut ready, content)?;
                eprintln!("{name}, {}: {transfer:?}", content.name);
                row.transfers[number].push(transfer);
            }
            (None, Ready::Http(http)) => {
                let connections = http.at_client(|| connections(http))?;
                eprintln!("{name}, connections: {connections:?}");
                row.connections.push(connections);
            }
            // They have no connections of clients.
            (None, Ready::Rsync(_) | Ready::ZstdPatch(_)) => (),
        }
        anyhow::Ok(())
    })();
    if let Err(error) = result {
        eprintln!("{name}: {error:#}");
        row.missing = Some(format!("failed: {error:#}"));
    }
}

fn transfer(
    stage: Stage<'_>,
    ready: &mut Ready<'_>,
    content: &Content,
) -> anyhow::Result<Transfer> {
    let Stage { place, web, .. } = stage;
    let (mut seconds, mut link_bytes) = ([0.0; 3], [0; 3]);
    let mut before = settled_bytes(place);
    let sent_before = web.sent_bytes()?;
    for (phase, objects) in content.phases().into_iter().enumerate() {
        for object in &content.objects[objects] {
            seconds[phase] += ready.transfer(object)?.as_secs_f64();
        }
        let after = settled_bytes(place);
        link_bytes[phase] = after - before;
        before = after;
    }
    let is_http = matches!(ready, Ready::Http(_));
    Ok(Transfer {
        seconds,
        link_bytes: place.link.is_some().then_some(link_bytes),
        origin_bytes: is_http
            .then(|| anyhow::Ok(web.sent_bytes()? - sent_before))
            .transpose()?,
    })
}

/// Bytes on the link so far, once those on their way have come.
fn settled_bytes(place: &Place) -> u64 {
    place.settle();
    place.link_bytes()
}

fn connections(http: &Http<'_>) -> anyhow::Result<Connections> {
    let seconds = |time: Duration| time.as_secs_f64();
    // What programs make ready for their first client is not measured.
    http.transfer_fresh(&mut None, LARGE_BYTES)?;
    let mut new_first_bytes = Vec::new();
    for _ in 0..NEW_CONNECTIONS {
        let [first, _] = http.transfer_fresh(&mut None, SMALL_BYTES)?;
        new_first_bytes.push(seconds(first));
    }
    let mut connection = None;
    let [_, new_large] = http.transfer_fresh(&mut connection, LARGE_BYTES)?;
    thread::sleep(IDLE);
    let [idle_first_byte, idle_large] = http.transfer_fresh(&mut connection, LARGE_BYTES)?;
    Ok(Connections {
        new_first_bytes,
        new_large: seconds(new_large),
        idle_first_byte: seconds(idle_first_byte),
        idle_large: seconds(idle_large),
    })
}

/// As far as they are installed.
fn packages() -> String {
    let mut command = Command::new("dpkg-query");
    command.args(["--show", "--showformat=${Package} ${Version}, "]);
    let output = command.args(PACKAGES).output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    String::from_utf8_lossy(&text)
        .trim_end_matches(", ")
        .to_owned()
}

impl Measured {
    fn of(content: &Content) -> Self {
        Self {
            name: content.name.to_owned(),
            title: content.title.to_owned(),
            bytes: [0, 1, 2].map(|phase| content.bytes(phase)),
        }
    }
}
