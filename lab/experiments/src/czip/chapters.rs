//! The chapters of the page. Each is measured alone, and its figures are kept in the folder of data
//! sets, so that the page can be written anew from chapters measured at several times.

use std::{path::PathBuf, process::Command, time::Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Setup, targets::Target};

/// A chapter's figures, and what they say.
pub(super) trait Figures: Serialize + DeserializeOwned {
    /// What `--only` calls the chapter.
    const NAME: &'static str;
    const TITLE: &'static str;

    /// Measures. What lacks its data or a program is said to be missing, and is no error.
    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self>;

    /// What was asked for; `figures` is `None` if nothing was measured.
    fn targets(figures: Option<&Self>) -> Vec<Target>;

    /// Writes what stands under the title.
    fn write(&self, page: &mut String) -> anyhow::Result<()>;
}

/// A chapter, whatever its figures are.
pub(super) struct Chapter {
    pub name: &'static str,
    pub title: &'static str,
    measure: fn(&Setup<'_>) -> anyhow::Result<Value>,
    write: fn(Option<&Value>) -> anyhow::Result<Written>,
}

/// A chapter's figures as a file holds them, and where they come from.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    machine: String,
    /// The commit, as far as git knows.
    pub version: String,
    /// Programs that ran beside it when it began: the load over a minute.
    load: f64,
    took_s: f64,
    figures: Value,
}

/// A chapter in Markdown.
pub(super) struct Written {
    pub targets: Vec<Target>,
    /// Empty if nothing was measured.
    pub text: String,
}

impl Chapter {
    pub(super) const fn of<F: Figures>() -> Self {
        Self {
            name: F::NAME,
            title: F::TITLE,
            measure: |setup| Ok(serde_json::to_value(F::measure(setup)?)?),
            write: |figures| {
                let figures: Option<F> = figures.map(F::deserialize).transpose()?;
                let mut text = String::new();
                if let Some(figures) = &figures {
                    figures.write(&mut text)?;
                }
                let targets = F::targets(figures.as_ref());
                Ok(Written { targets, text })
            },
        }
    }

    fn file(&self, setup: &Setup<'_>) -> PathBuf {
        let name = format!("figures-{}.json", self.name);
        setup.data.folder().join(name)
    }

    /// What was measured last.
    pub(super) fn kept(&self, setup: &Setup<'_>) -> anyhow::Result<Option<Kept>> {
        let file = self.file(setup);
        if !file.exists() {
            return Ok(None);
        }
        let kept = serde_json::from_slice(&std::fs::read(&file)?);
        let kept = kept.with_context(|| format!("{}: remove it", file.display()))?;
        Ok(Some(kept))
    }

    /// Measures it, and keeps what came out.
    pub(super) fn measured(&self, setup: &Setup<'_>) -> anyhow::Result<Kept> {
        let (load, began) = (load(), Instant::now());
        let figures = (self.measure)(setup).with_context(|| self.name)?;
        let kept = Kept {
            machine: crate::machine::describe(),
            version: version(),
            load,
            took_s: began.elapsed().as_secs_f64(),
            figures,
        };
        eprintln!("{}: took {:.0} s", self.name, kept.took_s);
        std::fs::write(self.file(setup), serde_json::to_vec_pretty(&kept)?)?;
        Ok(kept)
    }

    /// The chapter, from figures.
    pub(super) fn written(&self, kept: &Kept) -> anyhow::Result<Written> {
        let Kept {
            machine,
            version,
            load,
            took_s,
            figures,
        } = kept;
        let mut written = (self.write)(Some(figures))
            .with_context(|| format!("{}: figures of another form: measure again", self.name))?;
        written.text = format!(
            "\n## {}\n\nMeasured at {version} on {machine}; load when it began: {load:.1}; \
             took {took_s:.0} s.\n\n{}",
            self.title, written.text
        );
        Ok(written)
    }

    /// The chapter, without any.
    pub(super) fn unmeasured(&self) -> anyhow::Result<Written> {
        (self.write)(None)
    }
}

/// The commit that is checked out, and whether anything but pages is not as it says.
pub(super) fn version() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let commit = git(&["rev-parse", "--short", "HEAD"]);
    // Pages are written one after the other.
    let status = [
        "status",
        "--porcelain",
        "-uno",
        "--",
        ":/",
        ":(exclude,top)docs",
    ];
    let changed = git(&status).is_some_and(|changed| !changed.is_empty());
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    format!("{commit}{}", if changed { "-dirty" } else { "" })
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    first.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, path::Path};

    use super::*;
    use crate::czip::CHAPTERS;
    use crate::czip::data::Data;

    /// Counts how often it was measured, in a file.
    #[derive(Serialize, Deserialize)]
    struct Turns(u64);

    impl Figures for Turns {
        const NAME: &'static str = "turns";
        const TITLE: &'static str = "Turns";

        fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
            let counter = setup.data.folder().join("counter");
            let turns = std::fs::read(&counter).map_or(0, |bytes| bytes.len() as u64) + 1;
            std::fs::write(counter, vec![0; turns as usize])?;
            Ok(Self(turns))
        }

        fn targets(figures: Option<&Self>) -> Vec<Target> {
            vec![Target {
                what: "turns",
                asked: "many",
                measured: figures.map(|turns| {
                    crate::czip::targets::at_least(turns.0 as f64, 2.0, turns.0.to_string())
                }),
            }]
        }

        fn write(&self, page: &mut String) -> anyhow::Result<()> {
            *page += &format!("{} turns\n", self.0);
            Ok(())
        }
    }

    #[test]
    fn what_was_measured_is_kept_and_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let setup = Setup {
            refrain: Path::new("refrain"),
            data: &Data::new(folder.path(), folder.path()).expect("a folder"),
            runs: 1,
            big_bytes: 1,
        };
        let chapter = Chapter::of::<Turns>();
        assert!(chapter.kept(&setup).expect("a folder").is_none());
        let unmeasured = chapter.unmeasured().expect("nothing fails");
        assert!(unmeasured.text.is_empty());
        assert!(unmeasured.targets[0].measured.is_none());

        chapter.measured(&setup).expect("room");
        chapter.measured(&setup).expect("room");
        let kept = chapter
            .kept(&setup)
            .expect("it is read")
            .expect("it is kept");
        let written = chapter.written(&kept).expect("it is written");
        assert!(written.text.starts_with("\n## Turns\n"), "{}", written.text);
        assert!(written.text.ends_with("\n\n2 turns\n"), "{}", written.text);
        let measured = written.targets[0].measured.as_ref().expect("it was");
        assert!(measured.is_met);
    }

    #[test]
    fn no_two_chapters_have_a_name() {
        let names: HashSet<_> = CHAPTERS.iter().map(|chapter| chapter.name).collect();
        assert_eq!(names.len(), CHAPTERS.len());
    }
}
