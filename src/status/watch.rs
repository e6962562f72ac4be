//! `refrain status --watch`: the same tables again and again, in place on a terminal.

use std::{
    io::{self, Write},
    time::Duration,
};

use console::Term;

use super::{StatusArguments, show};
use crate::interrupt::Signals;

/// Shows the status each `interval` until told to stop.
pub(super) fn watch(arguments: &StatusArguments, interval: Duration) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(watch_until_stopped(arguments, interval));
    // A request may still wait for its answer.
    runtime.shutdown_background();
    result
}

async fn watch_until_stopped(
    arguments: &StatusArguments,
    interval: Duration,
) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let mut screen = Screen::new();
    let showing = async {
        // That nobody answers at first is most likely a wrong address; later, a restart.
        screen.show(&shown(arguments).await?)?;
        loop {
            tokio::time::sleep(interval).await;
            match shown(arguments).await {
                Ok(tables) => screen.show(&tables)?,
                Err(error) => screen.show(&format!("error: {}\n", crate::in_words(&error)))?,
            }
        }
    };
    tokio::select! {
        stopped = showing => stopped,
        _ = signals.next() => Ok(()),
    }
}

async fn shown(arguments: &StatusArguments) -> anyhow::Result<String> {
    let arguments = arguments.clone();
    tokio::task::spawn_blocking(move || show(&arguments)).await?
}

/// Standard output. A terminal gets its own back at the end, with the last picture below.
struct Screen {
    terminal: Option<Term>,
    last: Option<String>,
}

impl Screen {
    fn new() -> Screen {
        let terminal = Some(Term::stdout()).filter(Term::is_term);
        Screen {
            terminal,
            last: None,
        }
    }

    fn show(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let Some(terminal) = &self.terminal else {
            // One after the other, for a file or a pipe.
            if self.last.is_some() {
                writeln!(out)?;
            }
            self.last = Some(String::new());
            write!(out, "{text}")?;
            return out.flush();
        };
        if self.last.is_none() {
            write!(out, "{ENTER}")?;
        }
        let (rows, columns) = terminal.size();
        write!(out, "{}", picture(text, rows.into(), columns.into()))?;
        self.last = Some(text.to_owned());
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let (Some(_), Some(last)) = (&self.terminal, &self.last) {
            // Nobody is left to hear of a failure.
            let _ = write!(io::stdout().lock(), "{LEAVE}{last}");
        }
    }
}

/// To the alternate screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// What draws `text` over a picture before it, cut to the size of the screen.
fn picture(text: &str, rows: usize, columns: usize) -> String {
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| line.chars().take(columns).collect())
        .collect();
    if lines.len() > rows {
        let left = lines.len() + 1 - rows;
        lines.truncate(rows.saturating_sub(1));
        lines.push(
            format!("... {left} more lines")
                .chars()
                .take(columns)
                .collect(),
        );
    }
    // Each line clears what stood behind it, the last one what stood below.
    format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_cut_to_the_screen() {
        let whole = picture("one\ntwo\n", 2, 80);
        assert_eq!(whole, "\x1b[Hone\x1b[K\ntwo\x1b[K\x1b[J");
        let cut = picture("a long line\n2\n3\n4\n", 3, 12);
        assert_eq!(
            cut,
            "\x1b[Ha long line\x1b[K\n2\x1b[K\n... 2 more l\x1b[K\x1b[J"
        );
    }
}
