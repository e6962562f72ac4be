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

use crate::{
    machine,
    targets::{self, Target, WithTargets},
};

/// A chapter's figures, and what they say. `S` is what its page's measuring needs.
pub(crate) trait Figures<S>: Serialize + DeserializeOwned {
    /// What `--only` calls the chapter.
    const NAME: &'static str;
    const TITLE: &'static str;

    /// Measures. What lacks its data or a program is said to be missing, and is no error.
    fn measure(setup: &S) -> anyhow::Result<Self>;

    /// The bounds that they are checked against.
    fn targets(&self) -> Vec<Target> {
        Vec::new()
    }

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

impl Plot {
    /// Writes it into the folder `plots` next to the page.
    pub(crate) fn write_beside(&self, page: &Path) -> anyhow::Result<()> {
        let folder = page.parent().unwrap_or(Path::new(".")).join("plots");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join(self.name);
        std::fs::write(&file, &self.svg).with_context(|| file.display().to_string())
    }
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
    targets: fn(&Value) -> anyhow::Result<Vec<Target>>,
    write: fn(&Value) -> anyhow::Result<String>,
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

/// What `--only` takes.
pub(crate) fn names<S>(chapters: &[Chapter<S>]) -> PossibleValuesParser {
    let value = |chapter: &Chapter<S>| PossibleValue::new(chapter.name).help(chapter.title);
    PossibleValuesParser::new(chapters.iter().map(value))
}

/// Measures what is to be measured, and gives the page: the introduction, then the chapters. Their targets go to
/// standard error.
///
/// `file` is the page that this one replaces. A chapter without figures is taken from it. Plots go into the folder
/// `plots` next to it.
pub(crate) fn page<S: FiguresFolder>(
    introduction: &str,
    chapters: &[Chapter<S>],
    setup: &S,
    choice: Choice<'_>,
    file: Option<&Path>,
) -> anyhow::Result<String> {
    measure(chapters, setup, choice)?;
    let earlier = match file {
        Some(file) if file.exists() => Earlier(std::fs::read_to_string(file)?),
        _ => Earlier(String::new()),
    };
    let mut page = introduction.to_owned();
    for chapter in chapters {
        let Some(kept) = chapter.kept(setup)? else {
            page += earlier.chapter(chapter.title);
            continue;
        };
        page += &chapter.written(&kept)?;
        targets::print(&(chapter.targets)(&kept.figures)?);
        if let Some(file) = file {
            for plot in (chapter.plots)(&kept.figures)? {
                plot.write_beside(file)?;
            }
        }
    }
    Ok(page)
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
}

/// Measures what is to be measured, and gives all figures that are kept and their targets, by chapter.
pub(crate) fn json<S: FiguresFolder>(
    chapters: &[Chapter<S>],
    setup: &S,
    choice: Choice<'_>,
) -> anyhow::Result<String> {
    measure(chapters, setup, choice)?;
    let mut all = serde_json::Map::new();
    for chapter in chapters {
        if let Some(kept) = chapter.kept(setup)? {
            let report = WithTargets {
                report: &kept,
                targets: (chapter.targets)(&kept.figures)?,
            };
            all.insert(chapter.name.to_owned(), serde_json::to_value(report)?);
        }
    }
    Ok(serde_json::to_string_pretty(&all)? + "\n")
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
            targets: |figures| Ok(F::deserialize(figures)?.targets()),
            write: |figures| {
                let mut text = String::new();
                F::deserialize(figures)?.write(&mut text)?;
                Ok(text)
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
    fn written(&self, kept: &Kept) -> anyhow::Result<String> {
        let Kept {
            machine,
            version,
            load,
            took_s,
            figures,
        } = kept;
        let text = (self.write)(figures)
            .with_context(|| format!("{}: unknown form of figures (measure again)", self.name))?;
        Ok(format!(
            "\n## {}\n\nMeasured at {} on {machine}; load when it began: {load:.1}; \
             took {took_s:.0} s.\n\n{text}",
            self.title,
            machine::version_in_words(version)
        ))
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

        fn targets(&self) -> Vec<Target> {
            vec![Target {
                what: "turns",
                asked: "many",
                measured: Some(at_least(self.0 as f64, 2.0, self.0.to_string())),
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
        assert_eq!(page(&[]), "# Turns\n");

        assert!(page(&["turns"]).ends_with("\n\n1 turns\n"));
        let again = page(&["turns"]);
        let (_, chapter) = again.split_once("\n## Turns\n").expect("its title");
        assert!(chapter.ends_with("\n\n2 turns\n"), "{chapter}");
        assert_eq!(page(&[]), again);

        let none = Choice {
            only: Some(&[]),
            resume: false,
        };
        let json = json(&chapters, &setup, none).expect("figures");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let turns = &json["turns"];
        assert_eq!(turns["figures"], 2);
        assert_eq!(turns["targets"][0]["measured"]["is_met"], true);

        // Without figures, the chapter stays as it was written.
        std::fs::write(&file, again.clone() + "\n## Another\n").expect("there is space");
        std::fs::remove_file(chapters[0].file(&setup)).expect("figures");
        assert_eq!(page(&[]), again);
    }
}
