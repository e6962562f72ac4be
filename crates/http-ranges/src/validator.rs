//! By what a server says, a file is still the one that was opened.
//!
//! An `ETag` is sent back with `If-Range` if it is strong, else `Last-Modified` is: a server that has
//! another file then sends all of that instead of a part. What an answer names is compared too, since
//! many servers ignore `If-Range`.

use hyper::HeaderMap;

use super::error::VersionField;

/// What an answer says of the version of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Validator {
    etag: Option<String>,
    last_modified: Option<String>,
}

/// A difference between two versions of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) what: VersionField,
    pub(super) was: String,
    pub(super) is: String,
}

impl Validator {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        Self {
            etag: text("etag"),
            last_modified: text("last-modified"),
        }
    }

    /// What to send as `If-Range`.
    pub(super) fn if_range(&self) -> Option<&str> {
        let strong = self.etag.as_deref().filter(|etag| etag.starts_with('"'));
        strong.or(self.last_modified.as_deref())
    }

    /// How `later`, said of the same address, tells that the file is another.
    pub(super) fn difference(&self, later: &Self) -> Option<Difference> {
        // Times are coarse, and servers that share an address may differ in them: an ETag decides alone.
        let (what, was, is) = match (&self.etag, &later.etag) {
            (Some(was), Some(is)) => (VersionField::ETag, was, is),
            _ => (
                VersionField::LastModified,
                self.last_modified.as_ref()?,
                later.last_modified.as_ref()?,
            ),
        };
        let (was, is) = (was.clone(), is.clone());
        (was != is).then_some(Difference { what, was, is })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validator(etag: &str, last_modified: &str) -> Validator {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Validator {
            etag: text(etag),
            last_modified: text(last_modified),
        }
    }

    #[test]
    fn only_what_is_strong_asks_for_a_part() {
        assert_eq!(validator("\"a\"", "Sunday").if_range(), Some("\"a\""));
        assert_eq!(validator("W/\"a\"", "Sunday").if_range(), Some("Sunday"));
        assert_eq!(validator("W/\"a\"", "").if_range(), None);
    }

    #[test]
    fn an_etag_decides_and_else_the_time() {
        let differ = |a: &Validator, b: &Validator| a.difference(b).map(|found| found.what);
        let first = validator("\"a\"", "Sunday");
        assert_eq!(
            differ(&first, &validator("\"b\"", "Sunday")),
            Some(VersionField::ETag)
        );
        assert_eq!(differ(&first, &validator("\"a\"", "Monday")), None);
        assert_eq!(
            differ(&first, &validator("", "Monday")),
            Some(VersionField::LastModified)
        );
        assert_eq!(differ(&first, &validator("", "")), None);
    }
}
