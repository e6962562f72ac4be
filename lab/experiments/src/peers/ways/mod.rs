//! The ways from a client at the near end to files at the far end.

mod files;
mod hops;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::ensure;
use refrain_link::End::{Far, Near};

use super::{
    client::Connection,
    content::Object,
    place::Place,
    web::{BROTLI_MODULE, Coding, Web},
};
use hops::Hop;
pub(super) use hops::WANPROXY;

/// A way.
pub(super) struct Way {
    pub name: &'static str,
    /// Programs and files that must be here.
    pub needs: &'static [&'static str],
    kind: WayKind,
}

enum WayKind {
    /// HTTP from the origin, through programs of which the first is the next to it.
    Http(Coding, &'static [Hop]),
    Rsync,
    ZstdPatch,
}

/// What all ways of a turn share.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a> {
    pub place: &'a Place,
    pub web: &'a Web,
    pub refrain: &'a Path,
}

/// A way that is ready, until dropped.
pub(super) enum Ready<'a> {
    Http(Http<'a>),
    Rsync(files::Rsync<'a>),
    ZstdPatch(files::ZstdPatch<'a>),
}

/// HTTP, with what stands between client and origin.
pub(super) struct Http<'a> {
    stage: Stage<'a>,
    coding: Coding,
    address: std::net::SocketAddr,
    /// The one next to the client ends first.
    _programs: Vec<hops::Programs>,
}

const fn http(
    name: &'static str,
    needs: &'static [&'static str],
    coding: Coding,
    hops: &'static [Hop],
) -> Way {
    Way {
        name,
        needs,
        kind: WayKind::Http(coding, hops),
    }
}

/// The name of the way that others are compared with, and that of the pair.
pub(super) const DIRECT: &str = "direct";
pub(super) const PAIR: &str = "pair";

/// All of them, in the order of the tables.
pub(super) const WAYS: [Way; 15] = [
    http(DIRECT, &[], Coding::Identity, &[]),
    http(PAIR, &[], Coding::Identity, &[Hop::Pair]),
    http(
        "HAProxy twice",
        &["haproxy"],
        Coding::Identity,
        &[Hop::Haproxy(Far), Hop::Haproxy(Near)],
    ),
    http("ssh -C", &["ssh", "sshd"], Coding::Identity, &[Hop::Ssh]),
    Way {
        name: "rsync -z",
        needs: &["rsync"],
        kind: WayKind::Rsync,
    },
    http("nginx gzip", &[], Coding::Gzip, &[]),
    http("nginx brotli", &[BROTLI_MODULE], Coding::Brotli, &[]),
    Way {
        name: "zstd --patch-from",
        needs: &["zstd"],
        kind: WayKind::ZstdPatch,
    },
    http("squid", &["squid"], Coding::Identity, &[Hop::Squid(Near)]),
    http(
        "pair + squid before",
        &["squid"],
        Coding::Identity,
        &[Hop::Pair, Hop::Squid(Near)],
    ),
    http(
        "pair + squid after",
        &["squid"],
        Coding::Identity,
        &[Hop::Squid(Far), Hop::Pair],
    ),
    http(
        "pair + nginx before",
        &[],
        Coding::Identity,
        &[Hop::Pair, Hop::NginxCache(Near)],
    ),
    http(
        "pair + nginx after",
        &[],
        Coding::Identity,
        &[Hop::NginxCache(Far), Hop::Pair],
    ),
    http(
        "WANProxy",
        &[WANPROXY],
        Coding::Identity,
        &[Hop::Wanproxy { zlib: false }],
    ),
    http(
        "WANProxy zlib",
        &[WANPROXY],
        Coding::Identity,
        &[Hop::Wanproxy { zlib: true }],
    ),
];

impl Way {
    /// Whether it is to be measured: others are skipped with a reason, WANProxy without.
    pub(super) fn is_wanted(&self) -> bool {
        !self.needs.contains(&WANPROXY) || std::env::var_os(WANPROXY).is_some()
    }

    /// The first thing that it needs and that is not installed.
    pub(super) fn missing(&self) -> Option<&'static str> {
        let is_missing = |need: &&&str| match **need {
            WANPROXY => false,
            path if path.starts_with('/') => !Path::new(path).exists(),
            program => !crate::czip::are_installed(&[program]),
        };
        self.needs.iter().find(is_missing).copied()
    }

    /// Starts its programs, with empty caches.
    pub(super) fn start<'a>(&self, stage: Stage<'a>) -> anyhow::Result<Ready<'a>> {
        match self.kind {
            WayKind::Rsync => Ok(Ready::Rsync(files::Rsync::start(stage)?)),
            WayKind::ZstdPatch => Ok(Ready::ZstdPatch(files::ZstdPatch::start(stage)?)),
            WayKind::Http(coding, hops) => {
                let mut address = stage.web.address(coding);
                let mut programs = Vec::new();
                for hop in hops {
                    let started = hop.start(stage, address)?;
                    address = started.address;
                    programs.insert(0, started);
                }
                Ok(Ready::Http(Http {
                    stage,
                    coding,
                    address,
                    _programs: programs,
                }))
            }
        }
    }
}

impl Ready<'_> {
    /// Transfers an object and compares it; the time does not include the comparison.
    pub(super) fn transfer(&mut self, object: &Object) -> anyhow::Result<Duration> {
        match self {
            Self::Http(http) => http.transfer(object),
            Self::Rsync(rsync) => rsync.transfer(object),
            Self::ZstdPatch(patch) => patch.transfer(object),
        }
    }
}

impl Http<'_> {
    fn transfer(&self, object: &Object) -> anyhow::Result<Duration> {
        self.at_client(|| {
            let began = Instant::now();
            let mut connection = Connection::open(self.address)?;
            let answer = connection.get(&object.path, self.coding.name())?;
            ensure!(answer.body == object.bytes, "{} differs", object.path);
            Ok(answer.last_byte - began)
        })
    }

    /// Runs `call` at the near end.
    pub(super) fn at_client<R: Send>(
        &self,
        call: impl FnOnce() -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        self.stage.place.at(Near, call)
    }

    /// Transfers a file that nobody has seen before, by that connection or a new one. Gives the time to the first
    /// byte and to the last one.
    pub(super) fn transfer_fresh(
        &self,
        connection: &mut Option<Connection>,
        bytes: usize,
    ) -> anyhow::Result<[Duration; 2]> {
        let fresh = self.stage.web.fresh(bytes)?;
        let began = Instant::now();
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(Connection::open(self.address)?),
        };
        let answer = connection.get(&fresh.path, self.coding.name())?;
        ensure!(answer.body == fresh.bytes, "{} differs", fresh.path);
        Ok([answer.first_byte - began, answer.last_byte - began])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_ways_have_a_name() {
        let names: HashSet<_> = WAYS.iter().map(|way| way.name).collect();
        assert_eq!(names.len(), WAYS.len());
        assert!(names.contains(DIRECT) && names.contains(PAIR));
    }

    #[test]
    fn a_way_without_its_program_is_missing() {
        let way = http(
            "nobody's",
            &["a-program-that-nobody-has"],
            Coding::Identity,
            &[],
        );
        assert_eq!(way.missing(), Some("a-program-that-nobody-has"));
        assert_eq!(WAYS[0].missing(), None);
    }

    /// Those that need no program of ours, as far as they are installed.
    #[test]
    fn ways_bring_versions_and_notice_others() {
        if !crate::czip::are_installed(&["nginx"]) {
            eprintln!("skipped: nginx is not installed (lab/setup)");
            return;
        }
        let files = tempfile::tempdir().expect("a folder");
        let objects = ["a version", "a later version", "a later version"];
        let objects = objects.into_iter().enumerate().map(|(number, text)| {
            let (file, path) = (files.path().join(number.to_string()), number.to_string());
            let bytes = text.repeat(1000).into_bytes();
            std::fs::write(&file, &bytes).expect("room");
            Object { bytes, path, file }
        });
        let objects: Vec<Object> = objects.collect();
        let place = Place::on_loopback();
        let web = Web::start(&place, files.path()).expect("nginx");
        let stage = Stage {
            place: &place,
            web: &web,
            refrain: Path::new("refrain"),
        };
        for way in &WAYS {
            let has_ours = matches!(way.kind, WayKind::Http(_, hops) if hops.iter().any(|hop| matches!(hop, Hop::Pair)));
            // ssh needs an account that it lets in.
            if has_ours || way.name == "ssh -C" || !way.is_wanted() || way.missing().is_some() {
                continue;
            }
            let mut ready = way.start(stage).expect(way.name);
            for object in &objects {
                ready.transfer(object).expect(way.name);
            }
            let forged = Object {
                bytes: b"other bytes".to_vec(),
                path: objects[0].path.clone(),
                file: objects[0].file.clone(),
            };
            let error = ready.transfer(&forged).expect_err(way.name);
            assert!(
                error.to_string().contains("differs"),
                "{}: {error:#}",
                way.name
            );
        }
    }
}
