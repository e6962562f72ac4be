//! Listings of folders, in HTML and JSON.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;

use super::{encoding::weight, tree::Listed};

/// What stays as it is in a link.
const NAME: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

#[derive(Serialize)]
struct Row<'a> {
    name: std::borrow::Cow<'a, str>,
    /// Relative to the folder.
    link: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

fn rows(listed: &[Listed]) -> impl Iterator<Item = Row<'_>> {
    listed.iter().map(|listed| {
        let is_folder = listed.bytes.is_none();
        let slash = if is_folder { "/" } else { "" };
        Row {
            name: String::from_utf8_lossy(&listed.name),
            // A name with a colon would be a scheme.
            link: format!("./{}{slash}", percent_encode(&listed.name, NAME)),
            kind: if is_folder { "folder" } else { "file" },
            bytes: listed.bytes,
            modified: listed.modified.map(httpdate::fmt_http_date),
        }
    })
}

/// Whether who accepts this wants JSON: if `application/json` is named, and nothing that HTML is of is liked
/// better. For what accepts anything, such as curl, there is HTML.
pub(super) fn is_json_wanted(accepts: &[&str]) -> bool {
    let (mut json, mut html) = (0, (0, 0));
    for range in accepts.iter().flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let Some(media_type) = parts.next() else {
            continue;
        };
        let weight = parts.find_map(weight).unwrap_or(1000);
        if media_type.eq_ignore_ascii_case("application/json") {
            json = json.max(weight);
        }
        // What says most of a type counts (RFC 9110, 12.5.1).
        let exactness = match &media_type.to_ascii_lowercase()[..] {
            "text/html" => 3,
            "text/*" => 2,
            "*/*" => 1,
            _ => continue,
        };
        if exactness > html.0 {
            html = (exactness, weight);
        }
    }
    json > 0 && json >= html.1
}

/// An array of objects.
pub(super) fn json(listed: &[Listed]) -> String {
    let rows: Vec<_> = rows(listed).collect();
    serde_json::to_string(&rows).expect("strings and numbers are JSON")
}

/// A page.
pub(super) fn html(path: &str, listed: &[Listed]) -> String {
    let title = escape(path);
    let mut page = format!(
        "<!doctype html>\n<html><head><meta charset=\"utf-8\"><title>{title}</title></head>\n\
         <body><h1>{title}</h1>\n<table>\n"
    );
    if path != "/" {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for row in rows(listed) {
        let bytes = row.bytes.map_or(String::new(), |bytes| bytes.to_string());
        let (name, link) = (escape(&row.name), row.link);
        let slash = if row.bytes.is_none() { "/" } else { "" };
        let modified = row.modified.unwrap_or_default();
        writeln!(
            page,
            "<tr><td><a href=\"{link}\">{name}{slash}</a></td><td>{bytes}</td><td>{modified}</td></tr>"
        )
        .expect("a string takes all");
    }
    page.push_str("</table></body></html>\n");
    page
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_accepted_has_an_answer(accepts in ".*", weight in any::<f64>()) {
            is_json_wanted(&[&accepts, &format!("application/json;q={weight},{accepts}")]);
        }
    }

    #[test]
    fn json_is_for_who_asks_for_it() {
        for (accepts, expected) in [
            (&["application/json"][..], true),
            (&["Application/JSON; q=0.5"], true),
            (&["application/json, text/plain, */*"], true),
            (&["text/html, application/json"], true),
            (&["text/html;q=0.5", "application/json"], true),
            (&["*/*, text/html;q=0.1, application/json;q=0.2"], true),
            (&["application/json;charset=utf-8;q=1.0"], true),
            (&[], false),
            (&[""], false),
            (&["*/*"], false),
            (&["text/html,application/xhtml+xml,*/*;q=0.8"], false),
            (&["application/json;q=0"], false),
            (&["application/json;q=0.9, text/html"], false),
            (&["application/json;q=0.9, */*"], false),
            (&["application/json-seq"], false),
            (&["application/geo+json, image/png"], false),
            (&["text/html; profile=\"json\""], false),
            (&["text/x-json"], false),
            (&["application/json;q=NaN"], false),
            (&["application/json;q=one"], false),
        ] {
            assert_eq!(is_json_wanted(accepts), expected, "{accepts:?}");
        }
    }
}
