//! Headers that go along with requests: what a server asks for before it gives an archive.

use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::keys;
use crate::usage::UsageError;

/// Headers that say what a request is: the client sends them itself.
const OWN: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "if-match",
    "if-none-match",
    "if-range",
    "range",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Headers of requests for a URL.
#[derive(clap::Args)]
pub(super) struct HeaderArguments {
    /// Send this header, NAME: VALUE, with each request
    ///
    /// An example is 'Authorization: Bearer ...'. Only the URL's server gets the header. Other servers that it
    /// redirects to do not get it. @FILE reads headers from a file, one per line, so secrets do not appear in the list
    /// of processes.
    #[arg(long = "header", value_name = "HEADER|@FILE")]
    headers: Vec<String>,
}

impl HeaderArguments {
    /// Names and values.
    pub(super) fn read(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut headers = Vec::new();
        for argument in &self.headers {
            let Some(file) = argument.strip_prefix('@') else {
                headers.push(parse(argument).map_err(UsageError)?);
                continue;
            };
            let content = keys::read(Path::new(file))?;
            let cannot_read = || format!("cannot read headers from \"{file}\"");
            let content = str::from_utf8(&content)
                .with_context(|| format!("{}: it is not text", cannot_read()))?;
            let lines = content.lines().map(str::trim_end);
            for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
                headers.push(parse(line).with_context(cannot_read)?);
            }
        }
        Ok(headers)
    }
}

/// Errors name no value: it may be a secret.
fn parse(header: &str) -> anyhow::Result<(String, String)> {
    let Some((name, value)) = header.split_once(':') else {
        bail!("invalid header: it has no colon (expected 'NAME: VALUE', such as 'X-Key: value')");
    };
    let name = name.trim();
    ensure!(
        !OWN.iter().any(|own| name.eq_ignore_ascii_case(own)),
        "cannot set header \"{name}\": refrain sets it"
    );
    Ok((name.to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_split_at_their_first_colon() {
        let parsed = parse("X-Key:  a:b ").expect("a header");
        assert_eq!(parsed, ("X-Key".to_owned(), "a:b".to_owned()));
    }

    #[test]
    fn what_is_no_header_or_not_free_is_refused_without_its_value() {
        for header in ["secret", "Range: secret", "iF-rAnGe: secret", "HOST:secret"] {
            let error = parse(header).expect_err("refused").to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
