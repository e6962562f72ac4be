//! The chapters of a page. Each is measured separately, and its figures are kept in a directory, so that the page can be
//! written again from chapters measured at several times. A chapter without figures, such as one measured in another
//! checkout, stays on the page as it is.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{machine, targets::Target};

/// A chapter's figures, and what they say. `S` is what its page's measuring needs.
pub(crate) trait Figures<S>: Serialize + DeserializeOwned {
    /// What `--only` calls the chapter.
    const NAME: &'static str;
    const TITLE: &'static str;

    /// Measures. What lacks its data or a program is said to be missing, and is no error.
    fn measure(setup: &S) -> anyhow::Result<Self>;

    /// What was asked for; `figures` is `None` if nothing was measured.
    fn targets(figures: Option<&Self>) -> Vec<Target>;

    /// Writes what stands under the title.
    fn write(&self, page: &mut String) -> anyhow::Result<()>;

    /// What the text shows from the folder `plots`.
    fn plots(&self) -> anyhow::Result<Vec<Plot>> {
        Ok(Vec::new())
    }
}

/// A drawing, and the name of its file.
pub(crate) struct Plot {
    pub name: &'static str,
    pub svg: String,
}

/// Where figures are kept.
pub(crate) trait FiguresFolder {
    fn folder(&self) -> &Path;
}

/// A chapter, whatever its figures are.
pub(crate) struct Chapter<S> {
    pub name: &'static str,
    title: &'static str,
    measure: fn(&S) -> anyhow::Result<Value>,
    write: fn(Option<&Value>) -> anyhow::Result<Written>,
    plots: fn(&Value) -> anyhow::Result<Vec<Plot>>,
}

/// Which chapters are measured.
#[derive(Clone, Copy)]
pub(crate) struct Choice<'a> {
    /// All without.
    pub only: Option<&'a [String]>,
    /// Not those that were measured at this commit.
    pub resume: bool,
}

/// A chapter's figures as a file holds them, and where they come from.
#[derive(Serialize, Deserialize)]
struct Kept {
    machine: String,
    /// The commit, as far as git knows.
    version: String,
    /// Programs that ran beside it when it began: the load over a minute.
    load: f64,
    took_s: f64,
    figures: Value,
}

/// A chapter in Markdown.
struct Written {
    targets: Vec<Target>,
    /// Empty if nothing was measured.
    text: String,
}

/// What `--only` takes.
pub(crate) fn names<S>(chapters: &[Chapter<S>]) -> PossibleValuesParser {
    let value = |chapter: &Chapter<S>| PossibleValue::new(chapter.name).help(chapter.title);
    PossibleValuesParser::new(chapters.iter().map(value))
}

/// Measures what is to be measured, and gives the page: the introduction, what was asked, then the chapters.
///
/// `earlier` is the page that this one replaces. A chapter without figures is taken from it.
pub(crate) fn page<S: FiguresFolder>(
    introduction: &str,
    chapters: &[Chapter<S>],
    setup: &S,
    choice: Choice<'_>,
    earlier: Option<&Path>,
) -> anyhow::Result<String> {
    measure(chapters, setup, choice)?;
    let earlier = match earlier {
        Some(path) if path.exists() => Earlier(std::fs::read_to_string(path)?),
        _ => Earlier(String::new()),
    };
    let mut page =
        format!("{introduction}\n## Targets\n\n| | target | measured | met |\n|---|--:|--:|---|\n");
    let mut texts = String::new();
    for chapter in chapters {
        let kept = chapter.kept(setup)?;
        let written = match &kept {
            Some(kept) => chapter.written(kept)?,
            None => chapter.unmeasured()?,
        };
        texts += match kept {
            Some(_) => written.text.as_str(),
            None => earlier.chapter(chapter.title),
        };
        for target in &written.targets {
            page += &match kept {
                Some(_) => row(target),
                None => earlier.row(target).unwrap_or_else(|| row(target)),
            };
        }
    }
    Ok(page + &texts)
}

/// The page as it was written last.
struct Earlier(String);

impl Earlier {
    /// The chapter of that title, or nothing.
    fn chapter(&self, title: &str) -> &str {
        let Some(begin) = self.0.find(&format!("\n## {title}\n")) else {
            return "";
        };
        let end = self.0[begin + 1..].find("\n## ");
        end.map_or(&self.0[begin..], |end| &self.0[begin..begin + 1 + end])
    }

    /// The target's row in the table of what was asked.
    fn row(&self, target: &Target) -> Option<String> {
        let begins = format!("| {} | {} |", target.what, target.asked);
        let mut lines = self.0.split_inclusive('\n');
        lines
            .find(|line| line.starts_with(&begins))
            .map(str::to_owned)
    }
}

fn row(target: &Target) -> String {
    let (measured, met) = match &target.measured {
        Some(measured) if measured.is_met => (measured.text.as_str(), "yes"),
        Some(measured) => (measured.text.as_str(), "**no**"),
        None => ("not measured", ""),
    };
    let (what, asked) = (target.what, target.asked);
    format!("| {what} | {asked} | {measured} | {met} |\n")
}

/// Measures what is to be measured, and gives all figures that are kept, by chapter.
pub(crate) fn json<S: FiguresFolder>(
    chapters: &[Chapter<S>],
    setup: &S,
    choice: Choice<'_>,
) -> anyhow::Result<String> {
    measure(chapters, setup, choice)?;
    let mut all = serde_json::Map::new();
    for chapter in chapters {
        if let Some(kept) = chapter.kept(setup)? {
            all.insert(chapter.name.to_owned(), serde_json::to_value(kept)?);
        }
    }
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// Writes the plots of all chapters into the folder `plots` next to the page.
pub(crate) fn write_plots<S: FiguresFolder>(
    chapters: &[Chapter<S>],
    setup: &S,
    page: &Path,
) -> anyhow::Result<()> {
    let folder = page.parent().unwrap_or(Path::new(".")).join("plots");
    std::fs::create_dir_all(&folder)?;
    for chapter in chapters {
        let Some(kept) = chapter.kept(setup)? else {
            continue;
        };
        for plot in (chapter.plots)(&kept.figures)? {
            let file = folder.join(plot.name);
            std::fs::write(&file, plot.svg).with_context(|| file.display().to_string())?;
        }
    }
    Ok(())
}

fn measure<S: FiguresFolder>(
    chapters: &[Chapter<S>],
    setup: &S,
    choice: Choice<'_>,
) -> anyhow::Result<()> {
    for chapter in chapters {
        let is_named = |names: &[String]| names.iter().any(|name| name == chapter.name);
        let is_done = |kept: &Kept| choice.resume && kept.version == machine::version();
        let is_asked = choice.only.is_none_or(is_named);
        if is_asked && !chapter.kept(setup)?.as_ref().is_some_and(is_done) {
            chapter.measured(setup)?;
        }
    }
    Ok(())
}

impl<S: FiguresFolder> Chapter<S> {
    pub(crate) const fn of<F: Figures<S>>() -> Self {
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
            plots: |figures| F::deserialize(figures)?.plots(),
        }
    }

    fn file(&self, setup: &S) -> PathBuf {
        setup.folder().join(format!("figures-{}.json", self.name))
    }

    /// What was measured last.
    fn kept(&self, setup: &S) -> anyhow::Result<Option<Kept>> {
        let file = self.file(setup);
        if !file.exists() {
            return Ok(None);
        }
        let kept = serde_json::from_slice(&std::fs::read(&file)?);
        let kept = kept.with_context(|| format!("{}: invalid (remove it)", file.display()))?;
        Ok(Some(kept))
    }

    /// Measures it, and keeps what came out.
    fn measured(&self, setup: &S) -> anyhow::Result<Kept> {
        let (load, began) = (machine::load(), Instant::now());
        let figures = (self.measure)(setup).with_context(|| self.name)?;
        let kept = Kept {
            machine: machine::describe(),
            version: machine::version(),
            load,
            took_s: began.elapsed().as_secs_f64(),
            figures,
        };
        eprintln!("{}: took {:.0} s", self.name, kept.took_s);
        std::fs::write(self.file(setup), serde_json::to_vec_pretty(&kept)?)?;
        Ok(kept)
    }

    /// The chapter, from figures.
    fn written(&self, kept: &Kept) -> anyhow::Result<Written> {
        let Kept {
            machine,
            version,
            load,
            took_s,
            figures,
        } = kept;
        let mut written = (self.write)(Some(figures))
            .with_context(|| format!("{}: unknown form of figures (measure again)", self.name))?;
        written.text = format!(
            "\n## {}\n\nMeasured at {version} on {machine}; load when it began: {load:.1}; \
             took {took_s:.0} s.\n\n{}",
            self.title, written.text
        );
        Ok(written)
    }

    /// The chapter, without any.
    fn unmeasured(&self) -> anyhow::Result<Written> {
        (self.write)(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::at_least;

    /// Counts how often it was measured, in a file.
    #[derive(Serialize, Deserialize)]
    struct Turns(u64);

    struct Folder(tempfile::TempDir);

    impl FiguresFolder for Folder {
        fn folder(&self) -> &Path {
            self.0.path()
        }
    }

    impl Figures<Folder> for Turns {
        const NAME: &'static str = "turns";
        const TITLE: &'static str = "Turns";

        fn measure(setup: &Folder) -> anyhow::Result<Self> {
            let counter = setup.folder().join("counter");
            let turns = std::fs::read(&counter).map_or(0, |bytes| bytes.len() as u64) + 1;
            std::fs::write(counter, vec![0; turns as usize])?;
            Ok(Self(turns))
        }

        fn targets(figures: Option<&Self>) -> Vec<Target> {
            vec![Target {
                what: "turns",
                asked: "many",
                measured: figures.map(|turns| at_least(turns.0 as f64, 2.0, turns.0.to_string())),
            }]
        }

        fn write(&self, page: &mut String) -> anyhow::Result<()> {
            *page += &format!("{} turns\n", self.0);
            Ok(())
        }
    }

    #[test]
    fn figures_are_kept_and_written_again() {
        let setup = Folder(tempfile::tempdir().expect("a folder"));
        let file = setup.folder().join("page.md");
        let chapters = [Chapter::of::<Turns>()];
        let page = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            let choice = Choice {
                only: Some(&only),
                resume: false,
            };
            page("# Turns\n", &chapters, &setup, choice, Some(&file)).expect("there is space")
        };
        let unmeasured = page(&[]);
        assert!(
            unmeasured.contains("| turns | many | not measured |  |"),
            "{unmeasured}"
        );
        assert!(!unmeasured.contains("\n## Turns\n"), "{unmeasured}");

        assert!(page(&["turns"]).contains("| turns | many | 1 | **no** |"));
        let again = page(&["turns"]);
        assert!(again.contains("| turns | many | 2 | yes |"), "{again}");
        let (_, chapter) = again.split_once("\n## Turns\n").expect("its title");
        assert!(chapter.ends_with("\n\n2 turns\n"), "{chapter}");
        assert_eq!(page(&[]), again);

        // Without figures, the chapter and its row stay as they were written.
        std::fs::write(&file, again.clone() + "\n## Another\n").expect("there is space");
        std::fs::remove_file(chapters[0].file(&setup)).expect("figures");
        assert_eq!(page(&[]), again);
    }
}
