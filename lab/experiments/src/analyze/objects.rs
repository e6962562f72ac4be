//! Files in the order in which they were made: overlap by chunk size (CZIP, Figures 5 to 7), and by file (PACK, Figure 5).

use std::{collections::BTreeMap, fmt::Write, path::Path, process::Command};

use anyhow::{Context, ensure};
use refrain_plot::Words;
use serde::{Deserialize, Serialize};

use super::Setup;
use crate::{
    chapters::{Figures, Plot},
    corpus::{linux_releases, members, unpacked},
};

/// Root file systems, as `lab/data get systems` makes them.
const SYSTEMS: &str = "target/czip-data/d2";

#[derive(Serialize, Deserialize)]
pub(super) struct Objects {
    sets: Vec<Set>,
}

#[derive(Serialize, Deserialize)]
struct Set {
    name: String,
    /// `None` if its files are missing.
    report: Option<Report>,
}

/// Fields of `refrain analyze --objects --json`.
#[derive(Serialize, Deserialize)]
struct Report {
    files: u64,
    bytes: u64,
    chunk_sizes: Vec<Row>,
    each: Vec<Object>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    chunk_bytes: u32,
    pack: Overlap,
    modp: Overlap,
    fixed: Overlap,
}

#[derive(Serialize, Deserialize)]
struct Overlap {
    repeated_bytes: u64,
    previous_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct Object {
    bytes: u64,
    repeated_bytes: u64,
}

/// Mails by their month: a number of year and month, from the field `Date`.
fn by_month(mails: &[u8]) -> BTreeMap<u32, Vec<u8>> {
    let mut months: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut at = 0;
    while at < mails.len() {
        let next = mails[at + 1..].windows(6).position(|six| six == b"\nFrom ");
        let end = next.map_or(mails.len(), |next| at + 2 + next);
        let mail = &mails[at..end];
        if let Some(month) = month(mail) {
            months.entry(month).or_default().extend_from_slice(mail);
        }
        at = end;
    }
    months
}

fn month(mail: &[u8]) -> Option<u32> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let text = String::from_utf8_lossy(&mail[..mail.len().min(8_192)]);
    let date = text.lines().find_map(|line| line.strip_prefix("Date: "))?;
    let mut words = date.split_whitespace();
    let month = words.find_map(|word| MONTHS.iter().position(|month| *month == word))?;
    let year: u32 = words.next()?.parse().ok()?;
    let year = match year {
        0..70 => 2000 + year,
        70..100 => 1900 + year,
        _ => year,
    };
    // Some clocks were wrong.
    (1995..2010)
        .contains(&year)
        .then_some(year * 100 + month as u32 + 1)
}

fn compare(setup: &Setup<'_>, files: &Path) -> anyhow::Result<Report> {
    let mut command = Command::new(setup.refrain);
    let output = command
        .args(["analyze", "--objects", "--json"])
        .arg(files)
        .output()?;
    ensure!(output.status.success(), "it failed: {output:?}");
    serde_json::from_slice(&output.stdout).context("`refrain analyze --objects`")
}

impl Figures<Setup<'_>> for Objects {
    const NAME: &'static str = "objects";
    const TITLE: &'static str = "Overlap of files";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let numbered = |contents: Vec<Vec<u8>>| {
            let folder = tempfile::tempdir()?;
            for (nth, content) in contents.iter().enumerate() {
                std::fs::write(folder.path().join(format!("{nth:03}")), content)?;
            }
            anyhow::Ok(folder)
        };
        let mails = unpacked(&setup.data.join("mail/spamassassin-ham.mbox.zst"))?;
        let pages = |name: &str| members(&setup.data.join("pages").join(name), usize::MAX);
        let mut sets = Vec::new();
        for (name, contents) in [
            (
                "forty releases of Linux 2.0",
                linux_releases(setup.data, usize::MAX)?.objects,
            ),
            (
                "a mailbox by month",
                by_month(&mails).into_values().collect(),
            ),
            ("revisions of a page (GitHub)", pages("github-tos.tar.zst")?),
            (
                "revisions of a page (Brevo)",
                pages("brevo-privacy.tar.zst")?,
            ),
        ] {
            eprintln!("{name}");
            let folder = numbered(contents)?;
            sets.push(Set {
                name: name.to_owned(),
                report: Some(compare(setup, folder.path())?),
            });
        }
        let systems = Path::new(SYSTEMS);
        sets.push(Set {
            name: "root file systems of three Debian releases".to_owned(),
            report: match systems.is_dir() {
                true => Some(compare(setup, systems)?),
                false => None,
            },
        });
        Ok(Self { sets })
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        write!(
            page,
            "`refrain analyze --objects`: bytes of chunks that were there before. PACK and MODP choose the ends of chunks by\n\
             content. *Papers*: PACK (section 5.1.2) found 83.1 % in the forty releases, with chunks of 8 KB. In a mailbox of a year it\n\
             found 31.6 %. Our mailbox is that of mailing lists, almost without attachments. CZIP (section 5.3) found 73 to 86 % in\n\
             images of virtual machines at all chunk sizes. Fixed chunks found less above 4 KB. Here, root file systems\n\
             replace those images. CZIP (section 5.4): 24 to 90 % in pages with chunks of 1 KB.\n\n"
        )?;
        for set in &self.sets {
            let Some(report) = &set.report else {
                writeln!(
                    page,
                    "### {}\n\nNot measured: the files are missing.\n",
                    set.name
                )?;
                continue;
            };
            write!(
                page,
                "### {}: {} files, {:.1} MB\n\n\
                 | chunk size, KiB | PACK % | MODP % | fixed % | in the file before: PACK % | MODP % | fixed % |\n\
                 |--:|--:|--:|--:|--:|--:|--:|\n",
                set.name,
                report.files,
                report.bytes as f64 / 1e6
            )?;
            for row in &report.chunk_sizes {
                let overlaps = [&row.pack, &row.modp, &row.fixed];
                let percent =
                    |part: u64| format!("{:.1}", 100.0 * part as f64 / report.bytes as f64);
                let any = overlaps.map(|overlap| percent(overlap.repeated_bytes));
                let before = overlaps.map(|overlap| percent(overlap.previous_bytes));
                let size = row.chunk_bytes >> 10;
                writeln!(
                    page,
                    "| {size} | {} | {} |",
                    any.join(" | "),
                    before.join(" | ")
                )?;
            }
            writeln!(page)?;
        }
        writeln!(
            page,
            "![Repeats by release](plots/analyze-objects-releases.svg)\n\n![Repeats by month](plots/analyze-objects-mail.svg)"
        )?;
        Ok(())
    }

    fn plots(&self) -> anyhow::Result<Vec<Plot>> {
        let plot = |name, nth: usize, title, across| {
            let report = self.sets[nth].report.as_ref().context("no figures")?;
            let places: Vec<String> = (1..=report.each.len()).map(|nth| nth.to_string()).collect();
            let mb = |bytes: u64| bytes as f64 / 1e6;
            let all = report.each.iter().map(|it| mb(it.bytes)).collect();
            let repeated = report.each.iter().map(|it| mb(it.repeated_bytes)).collect();
            let words = Words {
                title,
                across,
                up: "MB",
            };
            let series = [
                ("content".to_owned(), all),
                ("repeats".to_owned(), repeated),
            ];
            let svg = refrain_plot::lines(&words, &places, &series)?;
            anyhow::Ok(Plot { name, svg })
        };
        Ok(vec![
            plot(
                "analyze-objects-releases.svg",
                0,
                "Forty releases of Linux 2.0 (PACK, Figure 5a)",
                "release",
            )?,
            plot(
                "analyze-objects-mail.svg",
                1,
                "A mailbox (PACK, Figure 5b)",
                "month",
            )?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mails_are_sorted_by_month() {
        let mails = b"From a\nDate: Wed, 02 Jan 2002 13:55:00 -0500\n\nx\n\
            From b\nDate: 01 Feb 02 00:53:41 -0600\n\nFrom\n\
            From c\nSubject: x\nDate: 1 Jan 2002\n\ny\n\
            From d\n\nDate?\n";
        let months = by_month(mails);
        assert_eq!(
            months.keys().copied().collect::<Vec<_>>(),
            [200_201, 200_202]
        );
        let text = String::from_utf8_lossy(&months[&200_201]);
        assert!(
            text.starts_with("From a") && text.ends_with("y\n"),
            "{text}"
        );
    }
}
