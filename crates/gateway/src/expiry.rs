//! The ends of certificates and revocation lists.

use std::{
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_cert::{Certificate, crl::CertificateList, der::Decode};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Programs renew certificates when a third of their time is left. So many days before its end, and a sixth of its time,
/// one should be a new one.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);
const SOON_PART: u32 = 6;

/// When a certificate is valid, if it can be read.
pub(crate) fn of_certificate(certificate: &CertificateDer) -> Option<Range<SystemTime>> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let validity = certificate.tbs_certificate().validity();
    let [from, to] = [validity.not_before, validity.not_after];
    Some(UNIX_EPOCH + from.to_unix_duration()..UNIX_EPOCH + to.to_unix_duration())
}

/// When the next list is due, if this one can be read.
pub(crate) fn of_revocation_list(list: &CertificateRevocationListDer) -> Option<SystemTime> {
    let list: CertificateList = CertificateList::from_der(list).ok()?;
    let next = list.tbs_cert_list.next_update?;
    Some(UNIX_EPOCH + next.to_unix_duration())
}

/// What to say of a certificate that is not valid now, or not for long.
pub(crate) fn warning(validity: &Range<SystemTime>, now: SystemTime) -> Option<String> {
    if let Ok(wait) = validity.start.duration_since(now)
        && !wait.is_zero()
    {
        return Some("is not valid yet (is the clock right?)".to_owned());
    }
    let Ok(left) = validity.end.duration_since(now) else {
        let since = now.duration_since(validity.end).unwrap_or_default();
        return Some(format!("expired {} ago", in_words(since)));
    };
    let whole = validity.end.duration_since(validity.start).ok()?;
    let is_soon = left < SOON.min(whole / SOON_PART);
    is_soon.then(|| format!("expires in {}", in_words(left)))
}

/// A time in hours or days.
pub(crate) fn in_words(time: Duration) -> String {
    let (count, unit) = match time < 2 * DAY {
        true => (time.as_secs() / HOUR.as_secs(), "hour"),
        false => (time.as_secs() / DAY.as_secs(), "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_end_soon_for_their_length_are_warned_of() {
        let start = UNIX_EPOCH + 1000 * DAY;
        let text =
            |days: u32, after: Duration| warning(&(start..start + days * DAY), start + after);
        for (days, after, expected) in [
            (90, Duration::ZERO, None),
            (90, 76 * DAY, None),
            (90, 77 * DAY, Some("expires in 13 days")),
            (90, 88 * DAY + HOUR, Some("expires in 47 hours")),
            (90, 90 * DAY - HOUR, Some("expires in 1 hour")),
            (90, 93 * DAY, Some("expired 3 days ago")),
            (365, 351 * DAY, None),
            (365, 352 * DAY, Some("expires in 13 days")),
            (6, 5 * DAY, None),
            (6, 5 * DAY + HOUR, Some("expires in 23 hours")),
        ] {
            assert_eq!(text(days, after).as_deref(), expected, "{days} {after:?}");
        }
        let early = warning(&(start..start + DAY), start - HOUR);
        assert!(early.is_some_and(|text| text.contains("not valid yet")));
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for bytes in [&b""[..], b"\x30\x80", &[0x30; 100]] {
            assert_eq!(of_certificate(&CertificateDer::from(bytes)), None);
            let list = CertificateRevocationListDer::from(bytes);
            assert_eq!(of_revocation_list(&list), None);
        }
    }
}
