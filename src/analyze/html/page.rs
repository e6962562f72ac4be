//! The parts of a page.

use std::fmt::Write;

use super::{
    escape::escaped,
    plot::{Series, lines},
};

const STYLE: &str = include_str!("style.css");

/// A page in the making.
#[derive(Default)]
pub(crate) struct Page {
    body: String,
    links: Vec<(&'static str, &'static str)>,
}

impl Page {
    pub(super) fn add(&mut self, html: &str) {
        self.body += html;
        self.body.push('\n');
    }

    pub(in super::super) fn section(&mut self, id: &'static str, title: &'static str) {
        self.links.push((id, title));
        self.add(&format!("<h2 id=\"{id}\">{title}</h2>"));
    }

    /// A table whose first cell of each row is its head.
    pub(in super::super) fn table(&mut self, caption: &str, heads: &[&str], rows: &[Vec<String>]) {
        let mut html =
            format!("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">");
        html += &format!("<table><caption>{caption}</caption><thead><tr>");
        for head in heads {
            let _ = write!(html, "<th scope=\"col\">{}</th>", escaped(head));
        }
        html += "</tr></thead><tbody>\n";
        for row in rows {
            html += "<tr>";
            for (nth, cell) in row.iter().enumerate() {
                let _ = match nth {
                    0 => write!(html, "<th scope=\"row\">{cell}</th>"),
                    _ => write!(html, "<td>{cell}</td>"),
                };
            }
            html += "</tr>\n";
        }
        html += "</tbody></table></div>";
        self.add(&html);
    }

    /// A sentence or more.
    pub(in super::super) fn text(&mut self, text: &str) {
        self.add(&format!("<p>{}</p>", escaped(text)));
    }

    /// The same in small letters.
    pub(in super::super) fn note(&mut self, text: &str) {
        self.add(&format!("<p class=\"note\">{}</p>", escaped(text)));
    }

    /// Figures in large letters, each with its name.
    pub(in super::super) fn facts(&mut self, facts: &[(String, String)]) {
        let facts = facts.iter().map(|(figure, text)| {
            format!("<div><dd>{figure}</dd><dt>{}</dt></div>", escaped(text))
        });
        let facts: String = facts.collect();
        self.add(&format!("<dl class=\"facts\">{facts}</dl>"));
    }

    /// A plot, and its figures as a table.
    pub(in super::super) fn plot(
        &mut self,
        title: &str,
        unit: &str,
        across: &str,
        places: &[String],
        series: &[Series],
    ) {
        let title = &match unit {
            "" => title.to_owned(),
            _ => format!("{title}, in {unit}"),
        };
        self.note(title);
        let svg = lines(title, unit, across, places, series);
        self.add(&format!(
            "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Plot\">{svg}</div>"
        ));
        let heads: Vec<&str> = [across]
            .into_iter()
            .chain(series.iter().map(|it| &*it.name))
            .collect();
        let rows = places.iter().enumerate().map(|(nth, place)| {
            let values = series
                .iter()
                .map(|series| format!("{:.1}", series.values[nth]));
            [escaped(place)].into_iter().chain(values).collect()
        });
        let rows: Vec<Vec<String>> = rows.collect();
        self.add("<details><summary>Figures of the plot</summary>");
        self.table(title, &heads, &rows);
        self.add("</details>");
    }

    /// The whole page.
    pub(in super::super) fn finish(mut self, title: &str, head: &str) -> String {
        self.note(concat!("refrain ", env!("CARGO_PKG_VERSION")));
        let links = self
            .links
            .iter()
            .map(|(id, title)| format!("<a href=\"#{id}\">{title}</a> "));
        let links: String = links.collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <header><h1>{head}</h1>\n<nav aria-label=\"Sections\">{links}</nav></header>\n\
             <main>\n{}</main>\n</body>\n</html>\n",
            self.body
        )
    }
}
