//! Addresses of remote files, and where a redirect leads.

use url::Url;

use super::error::{RedirectProblem, RemoteError, UrlProblem};

/// The address that `text` is.
pub fn parse(text: &str) -> Result<Url, RemoteError> {
    let problem = match Url::parse(text) {
        Ok(url) => match checked(url) {
            Ok(url) => return Ok(url),
            Err(problem) => problem,
        },
        Err(url::ParseError::RelativeUrlWithoutBase) => UrlProblem::NoScheme,
        Err(error) => UrlProblem::Malformed(error),
    };
    let url = text.to_owned();
    Err(RemoteError::Url { url, problem })
}

/// Whether `text` is an address that remote files may have.
///
/// # Errors
/// Says why it is none.
pub fn check_address(text: &str) -> Result<(), RemoteError> {
    parse(text).map(|_| ())
}

/// Where a redirect from `url` to `location` leads.
pub(super) fn redirected(url: &Url, location: Option<&[u8]>) -> Result<Url, RedirectProblem> {
    let location = String::from_utf8_lossy(location.ok_or(RedirectProblem::NoLocation)?);
    let to = url.join(&location).map_err(UrlProblem::Malformed);
    let to = to
        .and_then(checked)
        .map_err(|problem| RedirectProblem::Location {
            location: location.into_owned(),
            problem,
        })?;
    if url.scheme() == "https" && to.scheme() != "https" {
        return Err(RedirectProblem::Downgrade { to: shown(&to) });
    }
    Ok(to)
}

/// An address that others are below: its path ends with a slash.
pub(super) fn checked_base(mut url: Url) -> Result<Url, RemoteError> {
    if url.query().is_some() {
        let problem = UrlProblem::Query;
        return Err(RemoteError::Url {
            url: shown(&url),
            problem,
        });
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// The address for messages: what follows a `?` is often a signature that opens the door.
pub(super) fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    if shown.query().is_some() {
        shown.set_query(Some("..."));
    }
    shown.into()
}

fn checked(mut url: Url) -> Result<Url, UrlProblem> {
    if !matches!(url.scheme(), "http" | "https") {
        let scheme = url.scheme().to_owned();
        // `localhost:80/file` is no address with a scheme `localhost`.
        return Err(match url.has_host() {
            true => UrlProblem::Scheme { scheme },
            false => UrlProblem::NoScheme,
        });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlProblem::UserInfo);
    }
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> UrlProblem {
        match parse(text).unwrap_err() {
            RemoteError::Url { url, problem } if url == text => problem,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named() {
        assert_eq!(problem(""), UrlProblem::NoScheme);
        assert_eq!(problem("example.org/file"), UrlProblem::NoScheme);
        assert_eq!(problem("localhost:80/file"), UrlProblem::NoScheme);
        let scheme = "ftp".to_owned();
        assert_eq!(problem("ftp://example.org/"), UrlProblem::Scheme { scheme });
        assert_eq!(
            problem("https://me:secret@example.org/"),
            UrlProblem::UserInfo
        );
        assert_eq!(
            problem("http://"),
            UrlProblem::Malformed(url::ParseError::EmptyHost)
        );
        assert_eq!(
            problem("http://example.org:99999/"),
            UrlProblem::Malformed(url::ParseError::InvalidPort)
        );
    }

    #[test]
    fn a_redirect_is_read_from_where_it_came() {
        let from = parse("https://example.org/a/b?c#d").unwrap();
        let to = |location: &str| redirected(&from, Some(location.as_bytes())).map(String::from);
        assert_eq!(to("e").unwrap(), "https://example.org/a/e");
        assert_eq!(to("/e?f").unwrap(), "https://example.org/e?f");
        assert_eq!(to("//other/e").unwrap(), "https://other/e");
        assert_eq!(
            to("http://example.org/"),
            Err(RedirectProblem::Downgrade {
                to: "http://example.org/".to_owned()
            })
        );
        assert_eq!(redirected(&from, None), Err(RedirectProblem::NoLocation));
        assert!(matches!(
            to("file:///etc"),
            Err(RedirectProblem::Location { .. })
        ));
    }

    #[test]
    fn a_signature_is_not_shown() {
        let url = parse("http://example.org/file?signature=secret").unwrap();
        assert_eq!(shown(&url), "http://example.org/file?...");
    }
}
