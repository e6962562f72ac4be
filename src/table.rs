//! Tables for people.

use std::io::Write;

/// Rows of text under a head, the first column to the left and the others to the right unless
/// they hold words.
pub struct Table {
    rows: Vec<Vec<String>>,
    words: Vec<&'static str>,
}

impl Table {
    pub fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()],
            words: Vec::new(),
        }
    }

    /// The columns under these heads hold words, and go to the left.
    pub fn words(mut self, heads: &[&'static str]) -> Self {
        self.words = heads.to_vec();
        self
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (index, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let head = self.rows[0][index].as_str();
                match index {
                    0 => line.push_str(&format!("{cell:<width$}")),
                    _ if self.words.contains(&head) => line.push_str(&format!("  {cell:<width$}")),
                    _ => line.push_str(&format!("  {cell:>width$}")),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Bytes with a decimal unit, three significant digits.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        _ if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// A share in percent, `-` of nothing.
pub fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 {
        "-".to_owned()
    } else {
        format!("{:.1} %", 100.0 * part / whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (43_670_000, "43.7 MB"),
            (999_600, "1.00 MB"),
            (123_456_789_012, "123 GB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn columns_align() {
        let mut table = Table::new(&["a", "long", "words"]).words(&["words"]);
        table.row(["xyz", "1", "so"].map(str::to_owned));
        let mut out = Vec::new();
        table.print(&mut out).expect("memory");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "a    long  words\nxyz     1  so\n"
        );
    }
}
