//! Listings of folders, in JSON.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;

use super::tree::Listed;

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

/// An array of objects.
pub(super) fn json(listed: &[Listed]) -> String {
    let rows = listed.iter().map(|listed| {
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
    });
    serde_json::to_string(&rows.collect::<Vec<_>>()).expect("strings and numbers are JSON")
}
