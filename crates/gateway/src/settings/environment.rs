//! Variables of the environment that look like options and are none.
//!
//! A misspelt key in a file is an error, since the file is refrain's own. The environment is
//! not: Kubernetes alone puts seven variables into it for a service called `refrain`. So a
//! variable that no option reads is a warning, and what Kubernetes makes is passed over.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::{hint, nearest_key};
use crate::options::{
    ENVIRONMENT_PREFIX, OPTIONS, OptionSpec, Role, environment_variable, only_flag,
};

/// What to say of those of `variables` that seem meant for this program, and that it does not read,
/// sorted by their names.
pub fn unread_variables(
    role: Role,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<String> {
    let unread = variables.into_iter().filter_map(|(name, value)| {
        // What is no text is no misspelling.
        let name = name.into_string().ok()?;
        let rest = name.strip_prefix(ENVIRONMENT_PREFIX)?;
        if READ_ELSEWHERE.contains(&rest) || is_service_link(rest, &value.to_string_lossy()) {
            return None;
        }
        let has_name = |spec: &OptionSpec| {
            spec.environment() == name || spec.old_environment().is_some_and(|old| old == name)
        };
        if role.options().any(has_name) {
            return None;
        }
        let reason = match OPTIONS.iter().any(|spec| has_name(spec)) {
            true => format!("it is an option of {}", role.peer()),
            false => {
                let key = rest.to_ascii_lowercase();
                match only_flag(&key, role) {
                    Some(flag) => format!("it is {flag}"),
                    None => {
                        let nearest = nearest_key(&key, role).map(environment_variable);
                        format!("no option has this name{}", hint(&nearest))
                    }
                }
            }
        };
        let text = format!("{} is ignored: {reason}", name.escape_debug());
        Some((name, text))
    });
    BTreeMap::from_iter(unread).into_values().collect()
}

/// Variables that are read, though not as options of a gateway.
const READ_ELSEWHERE: [&str; 1] = ["CONFIG"];

/// Whether Kubernetes, or Docker's links, made this for a service whose name begins with
/// `refrain`: `…_SERVICE_HOST`, `…_SERVICE_PORT`, `…_SERVICE_PORT_NAME`, `…_PORT` with a URL, and
/// `…_PORT_7000_TCP` with what follows it.
fn is_service_link(rest: &str, value: &str) -> bool {
    let words: Vec<&str> = rest.split('_').collect();
    words.iter().enumerate().any(|(index, word)| {
        let next = words.get(index + 1).copied();
        match (*word, next) {
            ("SERVICE", Some("HOST" | "PORT")) => true,
            ("PORT", None) => value.contains("://"),
            ("PORT", Some(port)) => port.parse::<u16>().is_ok(),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of `variables`, each `NAME=value`.
    fn said(role: Role, variables: &[&str]) -> Vec<String> {
        let pair = |variable: &&str| {
            let (name, value) = variable.split_once('=').expect("NAME=value");
            (name.into(), value.into())
        };
        unread_variables(role, variables.iter().map(pair))
    }

    #[test]
    fn options_and_what_others_read_are_passed_over() {
        let known = [
            "REFRAIN_LANES=4",
            "REFRAIN_CONFIG=f",
            "PATH=/bin",
            "REFRAIN=1",
        ];
        for role in [Role::Near, Role::Far, Role::Check] {
            assert!(said(role, &known).is_empty(), "{role:?}");
            for spec in role.options() {
                let given = format!("{}=x", spec.environment());
                assert!(said(role, &[&given]).is_empty(), "{role:?}: {given}");
            }
        }
        assert!(said(Role::Check, &["REFRAIN_SOCKS5=127.0.0.1:1080"]).is_empty());
    }

    #[test]
    fn a_misspelt_option_is_named_with_the_nearest() {
        let misspelt = [
            "REFRAIN_RATES=5Mbit",
            "REFRAIN_LANE_MAX=3",
            "REFRAIN_PORT=7000",
            "REFRAIN_lanes=3",
        ];
        let lines = said(Role::Far, &misspelt);
        let sorted = [
            ("REFRAIN_LANE_MAX", "\"REFRAIN_LANES_MAX\"?"),
            ("REFRAIN_PORT", ""),
            ("REFRAIN_RATES", "\"REFRAIN_RATE\"?"),
            ("REFRAIN_lanes", "\"REFRAIN_LANES\"?"),
        ];
        assert_eq!(lines.len(), sorted.len(), "{lines:?}");
        for (line, (name, nearest)) in lines.iter().zip(sorted) {
            assert!(line.starts_with(&format!("{name} is ignored")), "{line}");
            assert!(
                line.contains("no option") && line.ends_with(nearest),
                "{line}"
            );
            assert_eq!(line.contains('?'), !nearest.is_empty(), "{line}");
        }
        for (role, variable, parts) in [
            (
                Role::Far,
                "REFRAIN_JSON_LOG=true",
                ["only a flag: ", "--json-log"],
            ),
            (
                Role::Near,
                "REFRAIN_WAIT=10s",
                ["flag of refrain check", "--wait"],
            ),
            (
                Role::Near,
                "REFRAIN_LISTEN=[::]:7000",
                ["an option of", "the far end"],
            ),
        ] {
            let lines = said(role, &[variable]);
            let (name, _) = variable.split_once('=').expect("NAME=value");
            assert!(
                lines.len() == 1 && lines[0].starts_with(&format!("{name} is ignored")),
                "{lines:?}"
            );
            assert!(
                parts.iter().all(|part| lines[0].contains(part)),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn what_kubernetes_makes_is_passed_over() {
        let made = [
            "REFRAIN_SERVICE_HOST=10.0.0.11",
            "REFRAIN_SERVICE_PORT=7000",
            "REFRAIN_SERVICE_PORT_LANES=7000",
            "REFRAIN_PORT=tcp://10.0.0.11:7000",
            "REFRAIN_PORT_7000_TCP=tcp://10.0.0.11:7000",
            "REFRAIN_PORT_7000_TCP_PROTO=tcp",
            "REFRAIN_PORT_7000_TCP_PORT=7000",
            "REFRAIN_PORT_7000_TCP_ADDR=10.0.0.11",
            "REFRAIN_FAR_ADMIN_SERVICE_HOST=10.0.0.12",
            "REFRAIN_FAR_ADMIN_PORT_9001_TCP_ADDR=10.0.0.12",
        ];
        assert!(said(Role::Far, &made).is_empty());
    }

    #[test]
    fn names_and_values_that_are_no_text_are_survived() {
        use std::os::unix::ffi::OsStringExt;
        let bytes = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let variables = [
            (bytes(b"REFRAIN_\xff"), bytes(b"1")),
            (bytes(b"REFRAIN_LANE"), bytes(b"\xff")),
            (bytes(b"REFRAIN_\x1b[2J"), bytes(b"")),
        ];
        let found = unread_variables(Role::Near, variables);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("REFRAIN_\\u{1b}[2J is ignored"));
    }
}
