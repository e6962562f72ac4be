//! The page: what was asked, then the chapters.

use std::fmt::Write;

use super::chapters::Written;

/// The page, from its chapters.
pub(super) fn page(chapters: &[Written]) -> anyhow::Result<String> {
    let mut page = "# CZIP archives beside their peers\n\n\
         Written by `cargo run --release -p refrain-experiments -- czip --write \
         docs/results-czip.md`.\nPeers are Debian's packages (`lab/setup --peers`), with default \
         options where none are named.\n\n\
         All programs are whole processes; CPU time and memory are the system's counts of their \
         children. Times\nare medians of runs in which the ways took turns. MB = 10^6 bytes. \
         What could not be had is *not there*.\n\n\
         ## What was asked\n\n| | asked | measured | met |\n|---|--:|--:|---|\n"
        .to_owned();
    for target in chapters.iter().flat_map(|chapter| &chapter.targets) {
        let (measured, met) = match &target.measured {
            Some(measured) if measured.is_met => (measured.text.as_str(), "yes"),
            Some(measured) => (measured.text.as_str(), "**no**"),
            None => ("not measured", ""),
        };
        let (what, asked) = (target.what, target.asked);
        writeln!(page, "| {what} | {asked} | {measured} | {met} |")?;
    }
    for chapter in chapters {
        page += &chapter.text;
    }
    Ok(page)
}
