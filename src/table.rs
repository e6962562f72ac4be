//! Tables for people.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fmt::Display,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
};

pub(crate) use refrain_gateway::units::decimal_bytes as bytes;

/// Rows of text under a head.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    are_left: Vec<bool>,
    are_optional: Vec<bool>,
}

/// Between columns.
const GAP: usize = 2;

/// As much of the first column as is shown at least.
const FIRST_MIN: usize = 8;

impl Table {
    /// The head as it is printed, with two spaces between columns. The first goes to the left, and
    /// those of words, which have a `<` here. A `?` marks columns that a narrow terminal does not show.
    pub(crate) fn new(head: &str) -> Self {
        let head: Vec<&str> = head.split("  ").collect();
        let is_left = |(index, cell): (usize, &&str)| index == 0 || cell.contains('<');
        let names = head.iter().map(|cell| cell.replace(['<', '?'], ""));
        Self {
            are_left: head.iter().enumerate().map(is_left).collect(),
            are_optional: head.iter().map(|cell| cell.contains('?')).collect(),
            rows: vec![names.collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.print_within(usize::MAX, out)
    }

    /// Without the last optional columns, where `columns_max` characters are too few for all. If they are too few even so,
    /// the first column is cut short.
    pub(crate) fn print_within(&self, columns_max: usize, out: &mut dyn Write) -> io::Result<()> {
        let width = |index: usize| {
            let widths = self.rows.iter().map(|row| row[index].chars().count());
            widths.max().unwrap_or(0)
        };
        let mut columns: Vec<(usize, usize)> = (0..self.are_left.len())
            .map(|index| (index, width(index)))
            .collect();
        let too_wide = |columns: &[(usize, usize)]| {
            let widths: usize = columns.iter().map(|(_, width)| width + GAP).sum();
            widths > columns_max.saturating_add(GAP)
        };
        while too_wide(&columns)
            && let Some(last) = columns
                .iter()
                .rposition(|&(index, _)| self.are_optional[index])
        {
            columns.remove(last);
        }
        while too_wide(&columns) && columns[0].1 > FIRST_MIN {
            columns[0].1 -= 1;
        }
        for row in &self.rows {
            let cells = columns.iter().map(|&(index, width)| {
                let cell = &shortened(&row[index], width);
                match self.are_left[index] {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                }
            });
            let line = cells.collect::<Vec<_>>().join(&" ".repeat(GAP));
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The text, or its first characters and an ellipsis.
fn shortened(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.chars().count() > chars_max {
        true => {
            let kept: String = text.chars().take(chars_max - 1).collect();
            Cow::Owned(kept + "…")
        }
        false => Cow::Borrowed(text),
    }
}

/// Lines of a name and what is said of it.
pub(crate) fn lines(lines: &[(&str, String)], out: &mut dyn Write) -> io::Result<()> {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, text) in lines {
        writeln!(out, "{name:<width$}  {text}")?;
    }
    Ok(())
}

/// A name that somebody else gave, without what a terminal would obey.
pub(crate) fn printable(name: impl Display) -> String {
    let name = name.to_string();
    let shown = name.chars().map(|char| match char.is_control() {
        true => char.escape_default().to_string(),
        false => char.to_string(),
    });
    shown.collect()
}

/// The same of a path, of which every byte can be told: what is no text, and `\`, are escaped too.
pub(crate) fn printable_path(path: impl AsRef<OsStr>) -> String {
    let mut shown = String::new();
    for chunk in path.as_ref().as_bytes().utf8_chunks() {
        shown += &printable(chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            shown += &format!("\\x{byte:02x}");
        }
    }
    shown
}

/// How many there are of what is called so, as one and as more.
pub(crate) fn count(number: u64, one: &str, more: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {more}"),
    }
}

/// A share in percent, `-` of nothing.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 {
        "-".to_owned()
    } else {
        format!("{:.1} %", 100.0 * part / whole)
    }
}

/// A time in the two largest of its units.
pub(crate) fn age(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// The same without a second unit of zero.
pub(crate) fn round_age(seconds: u64) -> String {
    let text = age(seconds as f64);
    let end = text.rsplitn(3, ' ').nth(2);
    match (text.rsplit(' ').nth(1), end) {
        (Some("0"), Some(first)) => first.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let mut table = Table::new("a  long  <words");
        table.row(["xyz", "1", "so"].map(str::to_owned));
        let mut out = Vec::new();
        table.print(&mut out).expect("memory");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "a    long  words\nxyz     1  so\n"
        );
    }

    #[test]
    fn round_ages_have_one_unit() {
        for (seconds, text) in [
            (0, "0 s"),
            (10, "10 s"),
            (600, "10 min"),
            (610, "10 min 10 s"),
            (3_600, "1 h"),
            (86_400 * 70, "70 d"),
            (86_400 + 36_000, "1 d 10 h"),
        ] {
            assert_eq!(round_age(seconds), text);
        }
    }

    #[test]
    fn a_narrow_table_has_no_optional_columns() {
        let mut table = Table::new("a  ?bb  <c  ?<dd");
        table.row(["1", "2", "3", "4"].map(str::to_owned));
        let shown = |columns_max| {
            let mut out = Vec::new();
            table.print_within(columns_max, &mut out).expect("memory");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(shown(12), "a  bb  c  dd\n1   2  3  4\n");
        assert_eq!(shown(11), "a  bb  c\n1   2  3\n");
        assert_eq!(shown(7), "a  c\n1  3\n");
        assert_eq!(shown(1), "a  c\n1  3\n");
    }

    #[test]
    fn a_long_name_is_cut_short_and_no_other_column() {
        let mut table = Table::new("name  ?b  saved");
        table.row(["the gateway in São Paulo", "2", "99.9 %"].map(str::to_owned));
        let shown = |columns_max| {
            let mut out = Vec::new();
            table.print_within(columns_max, &mut out).expect("memory");
            String::from_utf8(out).expect("text")
        };
        let lines = |shown: String| shown.lines().map(|line| line.chars().count()).max();
        assert!(shown(32).ends_with("\nthe gateway in São Paulo  99.9 %\n"));
        assert!(shown(28).ends_with("\nthe gateway in São …  99.9 %\n"));
        assert_eq!(lines(shown(28)), Some(28));
        assert!(shown(1).ends_with("\nthe gat…  99.9 %\n"));
    }

    #[test]
    fn names_do_not_reach_the_terminal_as_they_are() {
        let name = "key\nall is well\u{1b}[31m \u{e9}.pem";
        assert_eq!(printable(name), "key\\nall is well\\u{1b}[31m \u{e9}.pem");
    }

    #[test]
    fn paths_that_differ_are_shown_as_different() {
        for (path, shown) in [
            (&b"new\nline"[..], "new\\nline"),
            (b"new\\nline", "new\\\\nline"),
            (b"\xff\xc3\xa9\xc3", "\\xff\u{e9}\\xc3"),
            (b"\\xff", "\\\\xff"),
        ] {
            assert_eq!(printable_path(OsStr::from_bytes(path)), shown);
        }
    }

    #[test]
    fn times_have_two_units() {
        for (seconds, text) in [
            (0.4, "0 s"),
            (59.9, "59 s"),
            (61.0, "1 min 1 s"),
            (7260.0, "2 h 1 min"),
            (90_000.0, "1 d 1 h"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }
}
