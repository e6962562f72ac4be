//! Connections and their bytes, beside those that tshark finds.

use std::{collections::BTreeMap, fmt::Write, net::SocketAddr, path::Path, process::Command};

use anyhow::{Context, ensure};
use refrain_capture::{Direction, Flow, FlowNumber, Sink, Time};
use serde::{Deserialize, Serialize};

use super::{Setup, name, read_streams};
use crate::{
    chapters::Figures,
    targets::{Target, all_of},
};

#[derive(Serialize, Deserialize)]
pub(super) struct Comparison {
    version: String,
    captures: Vec<Compared>,
}

#[derive(Serialize, Deserialize)]
struct Compared {
    name: String,
    flows: usize,
    flows_of_tshark: usize,
    bytes: u64,
    /// Connections whose bytes differ, although the capture has all of them.
    different: usize,
    /// Connections of which the capture lacks bytes.
    incomplete: usize,
    /// Those of them whose bytes differ: tshark counts missing bytes in its own way.
    incomplete_different: usize,
}

/// A connection's bytes by direction, and whether some are missing.
#[derive(Clone, Default)]
struct Bytes {
    client: Option<SocketAddr>,
    content: [Vec<u8>; 2],
    is_incomplete: bool,
}

#[derive(Default)]
struct Flows(BTreeMap<FlowNumber, Bytes>);

impl Sink for Flows {
    fn opened(&mut self, flow: FlowNumber, ends: &Flow) {
        let client = Some(ends.client);
        self.0.insert(
            flow,
            Bytes {
                client,
                ..Bytes::default()
            },
        );
    }

    fn came(&mut self, flow: FlowNumber, direction: Direction, _: Time, bytes: &[u8]) {
        if let Some(known) = self.0.get_mut(&flow) {
            known.content[direction as usize].extend_from_slice(bytes);
        }
    }

    fn missed(&mut self, flow: FlowNumber, _: Direction, _: u64) {
        if let Some(known) = self.0.get_mut(&flow) {
            known.is_incomplete = true;
        }
    }

    fn closed(&mut self, _: FlowNumber) {}
}

fn own(path: &Path) -> anyhow::Result<Vec<Bytes>> {
    let mut flows = Flows::default();
    read_streams(path, &mut flows)?;
    Ok(flows.0.into_values().collect())
}

fn tshark(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("tshark").args(arguments).output();
    let output = output.context("cannot run tshark (install it: apt install tshark)")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// By number. The first direction is that of the first packet.
fn by_tshark(path: &Path) -> anyhow::Result<Vec<Bytes>> {
    let path = path.to_str().context("the path is not UTF-8")?;
    let streams = tshark(&["-r", path, "-T", "fields", "-e", "tcp.stream", "-Y", "tcp"])?;
    let numbers = streams
        .lines()
        .filter_map(|line| line.rsplit(',').next()?.parse::<usize>().ok());
    let count = numbers.max().map_or(0, |last| last + 1);
    let mut flows = vec![Bytes::default(); count];
    for first in (0..count).step_by(100) {
        let follow: Vec<String> = (first..count.min(first + 100))
            .map(|nth| format!("follow,tcp,raw,{nth}"))
            .collect();
        let mut arguments = vec!["-r", path, "-q"];
        arguments.extend(follow.iter().flat_map(|follow| ["-z", follow]));
        let mut number = None;
        for line in tshark(&arguments)?.lines() {
            if let Some(stream) = line.strip_prefix("Filter: tcp.stream eq ") {
                number = stream.trim().parse::<usize>().ok();
            } else if let (Some(node), Some(number)) = (line.strip_prefix("Node 0: "), number) {
                flows[number].client = node.trim().parse().ok();
            } else if let Some(number) = number {
                let (direction, text) = match line.strip_prefix('\t') {
                    Some(text) => (1, text),
                    None => (0, line),
                };
                let is_hex = !text.is_empty()
                    && text.len().is_multiple_of(2)
                    && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                if is_hex {
                    let byte = |nth: usize| u8::from_str_radix(&text[nth..nth + 2], 16);
                    let bytes = (0..text.len()).step_by(2).map(byte);
                    flows[number].content[direction].extend(bytes.filter_map(Result::ok));
                }
            }
        }
    }
    Ok(flows)
}

fn compare(path: &Path) -> anyhow::Result<Compared> {
    let (own, theirs) = (own(path)?, by_tshark(path)?);
    let mut compared = Compared {
        name: name(path),
        flows: own.len(),
        flows_of_tshark: theirs.len(),
        bytes: own
            .iter()
            .flat_map(|flow| &flow.content)
            .map(|content| content.len() as u64)
            .sum(),
        different: 0,
        incomplete: own.iter().filter(|flow| flow.is_incomplete).count(),
        incomplete_different: 0,
    };
    for (own, theirs) in own.iter().zip(&theirs) {
        let is_turned = own.client != theirs.client;
        let theirs = match is_turned {
            true => [&theirs.content[1], &theirs.content[0]],
            false => [&theirs.content[0], &theirs.content[1]],
        };
        if [&own.content[0], &own.content[1]] != theirs {
            match own.is_incomplete {
                true => compared.incomplete_different += 1,
                false => compared.different += 1,
            }
        }
    }
    Ok(compared)
}

impl Figures<Setup<'_>> for Comparison {
    const NAME: &'static str = "tshark";
    const TITLE: &'static str = "Connections compared with tshark";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let version = tshark(&["--version"])?
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        ensure!(version.contains("TShark"), "tshark has no version");
        let captures = setup.captures.iter().map(|path| {
            eprintln!("{}", path.display());
            compare(path).with_context(|| path.display().to_string())
        });
        Ok(Self {
            version,
            captures: captures.collect::<anyhow::Result<_>>()?,
        })
    }

    fn targets(&self) -> Vec<Target> {
        let equal = self
            .captures
            .iter()
            .filter(|it| it.flows == it.flows_of_tshark && it.different == 0);
        vec![Target {
            what: "captures with the same connections and bytes as tshark's",
            asked: "all",
            measured: Some(all_of(equal.count(), self.captures.len())),
        }]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "The bytes of each connection and direction, compared with `tshark -z follow,tcp,raw` ({}).\n\
             *Incomplete*: the capture lacks bytes of these connections. For such a gap, tshark's stream has a text, and ours\n\
             has nothing.\n\n\
             | capture | connections | tshark's | bytes | different | incomplete | of these, different |\n\
             |---|--:|--:|--:|--:|--:|--:|",
            self.version.split(" (Git").next().unwrap_or_default()
        )?;
        for it in &self.captures {
            writeln!(
                page,
                "| {} | {} | {} | {} | {} | {} | {} |",
                it.name,
                it.flows,
                it.flows_of_tshark,
                it.bytes,
                it.different,
                it.incomplete,
                it.incomplete_different
            )?;
        }
        Ok(())
    }
}
