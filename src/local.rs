//! Gateways on this machine: found by their local sockets, asked for their status.

mod admin;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Method, Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use refrain_gateway::{
    address::parse_admin,
    config::AdminToken,
    local_socket,
    status::{Peer, Status},
    target::{Target, TargetError},
    text_file,
};
use refrain_http_ranges::{ConnectionError, Host, ProxyChoice, RemoteError, RemoteOptions};
use tokio::{net::UnixStream, time::timeout};

use crate::{stderr::warn, usage::UsageError};
pub(crate) use admin::AdminArguments;

/// Where gateways serve their admin pages in the README and the examples.
const USUAL_ADDRESSES: [&str; 2] = ["127.0.0.1:9001", "127.0.0.1:9002"];

/// How long a gateway may take to answer.
const WITHIN: Duration = Duration::from_secs(5);

/// More than the status of ten thousand flows.
const STATUS_BYTES_MAX: usize = 64 << 20;

/// Where a gateway serves its admin pages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    /// Its local socket.
    Socket(PathBuf),
    /// Its admin listener.
    Address(Target),
}

/// A gateway that answered.
pub(crate) struct Found {
    pub place: Place,
    /// Its status, as it came.
    pub json: String,
    pub status: Status,
}

/// Why a gateway gave no status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("no gateway answers at {place}: {}{}", cause.root_cause(), hint(place))]
    Unreachable { place: Place, cause: anyhow::Error },
    #[error("connected to {place}, but {}", NoAnswer)]
    Silent { place: Place },
    #[error("cannot open \"{0}\": permission denied (run this as root or as the gateway's user)")]
    Denied(Place),
    #[error("the gateway at {0} needs its admin token: give --admin {0} --admin-token-file FILE")]
    NeedsToken(Place),
    #[error("the gateway at {0} refused this admin token (--admin-token-file must have its token)")]
    TokenRefused(Place),
    #[error(
        "no gateway answers at {place}: another server answered, with HTTP status {code}{}",
        hint(place)
    )]
    Code { place: Place, code: u16 },
    #[error(
        "no gateway answers at {place}: the answer is not a status{}",
        hint(place)
    )]
    NoStatus { place: Place },
}

/// A program took the connection, and sent nothing.
#[derive(Debug, thiserror::Error)]
#[error(
    "no answer within {WITHIN:?}: if it is a gateway, its process is stopped or hangs (restart it)"
)]
struct NoAnswer;

/// What to try with an address. A socket is where a gateway made it.
fn hint(place: &Place) -> &'static str {
    match place {
        Place::Socket(_) => {
            " (the gateway may have ended. Without --admin, this command finds those that run)"
        }
        Place::Address(_) => " (give the --admin address of a running gateway)",
    }
}

/// No gateway runs on this machine, as far as can be seen.
#[derive(Debug, thiserror::Error)]
#[error("no gateway found here: looked in {looked}")]
pub(crate) struct NoneFound {
    looked: String,
    /// Whether this user may not read one of these places.
    pub is_denied: bool,
    /// Whether one is there, and does not answer.
    is_silent: bool,
}

/// The gateways on this machine.
#[derive(Default)]
pub(crate) struct Looked {
    pub found: Vec<Found>,
    /// The errors of those that did not answer, such as a stopped process.
    pub silent: Vec<AskError>,
    /// Where there are none, if there are none.
    pub none: Option<NoneFound>,
}

/// The gateways on this machine: those with a local socket, else those at the usual addresses. Without any, the error
/// advises to start one, to look as another user, or to give `options`.
pub(crate) fn find(options: &str) -> anyhow::Result<Vec<Found>> {
    let found = look().and_then(Looked::or_none);
    let (found, silent) = or_else_advise(found, options)?;
    for error in silent {
        warn(error);
    }
    Ok(found)
}

/// Looks for the gateways on this machine.
pub(crate) fn look() -> anyhow::Result<Looked> {
    look_in(&local_socket::folders(), &USUAL_ADDRESSES)
}

impl Looked {
    /// Those that answered, and the errors of those that did not; an error if none did.
    fn or_none(self) -> anyhow::Result<(Vec<Found>, Vec<AskError>)> {
        match self.none {
            Some(none) => Err(none.into()),
            None => Ok((self.found, self.silent)),
        }
    }
}

fn or_else_advise<T>(found: anyhow::Result<T>, options: &str) -> anyhow::Result<T> {
    found.map_err(|error| match error.downcast_ref() {
        Some(NoneFound {
            is_denied: true, ..
        }) => {
            anyhow!("{error}; run the command as root or as the gateway's user, or give {options}")
        }
        Some(NoneFound {
            is_silent: true, ..
        }) => anyhow!("{error}; or give {options}"),
        Some(_) => anyhow!("{error}; start one, or give {options}"),
        None => error,
    })
}

fn look_in(folders: &[PathBuf], addresses: &[&str]) -> anyhow::Result<Looked> {
    let (mut looked, mut silent, mut is_denied) = (Vec::new(), Vec::new(), false);
    for folder in folders {
        let (sockets, mut notes) = match local_socket::sockets(folder) {
            Ok(sockets) => (sockets, Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                is_denied = true;
                (Vec::new(), vec!["this user cannot read it".to_owned()])
            }
            Err(error) => (Vec::new(), vec![error.to_string()]),
        };
        let mut found = Vec::new();
        for answer in ask_all(sockets.into_iter().map(Place::Socket).collect()) {
            match answer {
                Ok(gateway) => found.push(gateway),
                // Left by one that was killed.
                Err(error) if error.is_refusal() => {}
                Err(AskError::Denied(place)) => {
                    is_denied = true;
                    notes.push(format!("this user cannot open {place}"));
                }
                Err(error) => {
                    notes.push(error.to_string());
                    silent.push(error);
                }
            }
        }
        if !found.is_empty() {
            return Ok(Looked {
                found,
                silent,
                none: None,
            });
        }
        looked.push(match notes.is_empty() {
            true => folder.display().to_string(),
            false => format!("{} ({})", folder.display(), notes.join("; ")),
        });
    }
    let (mut found, mut asked) = (Vec::new(), Vec::new());
    let places = addresses
        .iter()
        .map(|address| Ok(Place::Address(address.parse()?)));
    let places = places.collect::<anyhow::Result<_>>()?;
    for (answer, address) in ask_all(places).into_iter().zip(addresses) {
        // Another program may listen there: it gets no token, and its answer is no status.
        match answer {
            Ok(gateway) => found.push(gateway),
            Err(error @ AskError::NeedsToken(_)) => return Err(error.into()),
            Err(_) => asked.push(*address),
        }
    }
    let asked = match asked.is_empty() {
        true => String::new(),
        false => format!(", and at {}", asked.join(" and ")),
    };
    let none = found.is_empty().then(|| NoneFound {
        looked: looked.join(", ") + &asked,
        is_denied,
        is_silent: !silent.is_empty(),
    });
    Ok(Looked {
        found,
        silent,
        none,
    })
}

/// Asks all at once: each that is stopped takes all of its time.
fn ask_all(places: Vec<Place>) -> Vec<Result<Found, AskError>> {
    thread::scope(|scope| {
        let asked = places.iter().map(|place| scope.spawn(|| ask(place, None)));
        let asked: Vec<_> = asked.collect();
        let answers = asked
            .into_iter()
            .map(|asked| asked.join().expect("no panic"));
        answers.collect()
    })
}

/// The only gateway of several; an error names them all.
pub(crate) fn only(mut found: Vec<Found>) -> anyhow::Result<Found> {
    if found.len() == 1
        && let Some(found) = found.pop()
    {
        return Ok(found);
    }
    let mut text = "several gateways run here; choose one:".to_owned();
    for Found { place, status, .. } in found {
        // A peer may have several links.
        let mut peers: Vec<_> = status.peers.iter().map(Peer::label).collect();
        peers.dedup();
        text += &format!(
            "\n  --admin {place}  ({}, peer {})",
            status.role,
            peers.join(", ")
        );
    }
    Err(UsageError(anyhow!(text)).into())
}

/// No file of an admin token is longer.
const TOKEN_FILE_BYTES_MAX: u64 = 1 << 16;

/// The admin token in a file.
pub(crate) fn read_token(path: &Path) -> anyhow::Result<String> {
    let file = text_file::open(path);
    let token =
        file.and_then(|file| text_file::read(file, TOKEN_FILE_BYTES_MAX, "larger than 64 KiB"));
    let token = token.map_err(|error| {
        let failure = text_file::failure(path, &error);
        anyhow::Error::from(error).context(failure)
    })?;
    let token = token.trim();
    let checked = token.parse::<AdminToken>();
    checked.with_context(|| format!("\"{}\" has no admin token", path.display()))?;
    Ok(token.to_owned())
}

/// Asks one gateway for its status.
pub(crate) fn ask(place: &Place, token: Option<&str>) -> Result<Found, AskError> {
    let json = page(place, token, "status")?;
    let place = place.clone();
    match serde_json::from_str(&json) {
        Ok(status) => Ok(Found {
            place,
            json,
            status,
        }),
        Err(_) => Err(AskError::NoStatus { place }),
    }
}

/// A page of a gateway.
pub(crate) fn page(place: &Place, token: Option<&str>, page: &str) -> Result<String, AskError> {
    let unreachable = |cause| AskError::of(place, cause);
    let (code, body) = match place {
        Place::Socket(path) => {
            request(path, Method::GET, &format!("/{page}")).map_err(unreachable)?
        }
        Place::Address(address) => get(address, token, page).map_err(unreachable)?,
    };
    let place = place.clone();
    match code {
        200 => Ok(body),
        401 if token.is_some() => Err(AskError::TokenRefused(place)),
        401 => Err(AskError::NeedsToken(place)),
        code => Err(AskError::Code { place, code }),
    }
}

/// The code and the body of an admin listener's answer.
fn get(admin: &Target, token: Option<&str>, page: &str) -> anyhow::Result<(u16, String)> {
    let options = RemoteOptions {
        connect_timeout: WITHIN,
        progress_timeout: WITHIN,
        redirects_max: 0,
        // The token is for the gateway, and its page for nobody between.
        proxy: ProxyChoice::Direct,
        bearer: token.map(str::to_owned),
        ..RemoteOptions::default()
    };
    let host = Host::new(&format!("http://{admin}/"), options)?;
    match host.get(page, STATUS_BYTES_MAX as u64) {
        Ok(Some(page)) => Ok((200, String::from_utf8(page)?)),
        Ok(None) => Ok((404, String::new())),
        Err(RemoteError::Status { status, .. }) => Ok((status, String::new())),
        Err(error) => Err(error.into()),
    }
}

/// The same of a local socket's page.
fn request(path: &Path, method: Method, page: &str) -> anyhow::Result<(u16, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let exchange = async {
        let stream = UnixStream::connect(path).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(page)
            .header("Host", "localhost")
            .body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        let code = response.status().as_u16();
        let body = Limited::new(response.into_body(), STATUS_BYTES_MAX)
            .collect()
            .await;
        let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
        anyhow::Ok((code, String::from_utf8(body.into())?))
    };
    runtime.block_on(async {
        let answered = timeout(WITHIN, exchange).await;
        answered.unwrap_or_else(|_| Err(NoAnswer.into()))
    })
}

/// Has a gateway that was found by its local socket do something.
pub(crate) fn post(place: &Place, page: &str) -> anyhow::Result<()> {
    let Place::Socket(path) = place else {
        bail!(
            "this needs a gateway's local socket, not a port ({place}): give --admin /run/refrain/near-PID.sock, or run this \
             without --admin as root or as the gateway's user"
        );
    };
    match request(path, Method::POST, page).map_err(|cause| AskError::of(place, cause))? {
        (200, _) => Ok(()),
        (404 | 405, _) => bail!("the gateway at {place} is of an older version: restart it"),
        (code, _) => bail!("the gateway at {place} answered with HTTP status {code}"),
    }
}

impl AskError {
    fn of(place: &Place, cause: anyhow::Error) -> AskError {
        let place = place.clone();
        match io_kind(&cause) {
            Some(io::ErrorKind::PermissionDenied) => AskError::Denied(place),
            _ if is_silence(&cause) => AskError::Silent { place },
            _ => AskError::Unreachable { place, cause },
        }
    }

    /// Whether nothing listens there.
    fn is_refusal(&self) -> bool {
        let AskError::Unreachable { cause, .. } = self else {
            return false;
        };
        matches!(
            io_kind(cause),
            Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        )
    }
}

/// Whether a program took the connection, and sent nothing.
fn is_silence(cause: &anyhow::Error) -> bool {
    match cause.downcast_ref() {
        Some(RemoteError::Connection { source, .. }) => **source == ConnectionError::Silence,
        _ => cause.is::<NoAnswer>(),
    }
}

/// The kind of an error of the system, such as that of a local socket.
fn io_kind(cause: &anyhow::Error) -> Option<io::ErrorKind> {
    let error = cause.downcast_ref::<io::Error>();
    error.map(io::Error::kind)
}

/// Why a text is not a place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("expected a port such as 9001, HOST:PORT, or the path of a socket")]
    NoPort,
    #[error(transparent)]
    Address(TargetError),
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        if text.contains('/') && !text.contains("://") {
            return Ok(Place::Socket(text.into()));
        }
        match parse_admin(text) {
            Ok(address) => Ok(Place::Address(address)),
            Err(TargetError::NoPort) => Err(PlaceError::NoPort),
            Err(error) => Err(PlaceError::Address(error)),
        }
    }
}

impl Place {
    /// The number of the gateway's process, which its socket is named after.
    pub(crate) fn process(&self) -> Option<u32> {
        let Place::Socket(path) = self else {
            return None;
        };
        let (_, number) = path.file_stem()?.to_str()?.rsplit_once('-')?;
        number.parse().ok()
    }
}

impl AskError {
    /// Where it was asked.
    pub(crate) fn place(&self) -> &Place {
        match self {
            AskError::Unreachable { place, .. }
            | AskError::Silent { place }
            | AskError::Denied(place)
            | AskError::NeedsToken(place)
            | AskError::TokenRefused(place)
            | AskError::Code { place, .. }
            | AskError::NoStatus { place } => place,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Socket(path) => write!(f, "{}", path.display()),
            Place::Address(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        os::unix::{fs::PermissionsExt, net::UnixListener},
        thread,
    };

    use super::*;

    fn find_in(
        folders: &[PathBuf],
        addresses: &[&str],
    ) -> anyhow::Result<(Vec<Found>, Vec<AskError>)> {
        look_in(folders, addresses)?.or_none()
    }

    const STATUS: &str = r#"{"role": "near", "version": "1", "kernels": "avx2", "uptime_s": 1,
        "mode": "auto", "store": null, "peers": [], "flows": [],
        "memory": {"bound_bytes": 1, "reserved_bytes": 0, "allocated_bytes": 0}}"#;

    /// A program that answers each request with these lines.
    fn answers(code: &str, body: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = listener.local_addr().expect("its address").to_string();
        let length = body.len();
        let answer = format!("HTTP/1.1 {code}\r\nContent-Length: {length}\r\n\r\n{body}");
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut client = client;
                let mut request = [0; 4096];
                let read = client.read(&mut request).unwrap_or(0);
                assert!(!request[..read].starts_with(b"CONNECT"));
                let _ = client.write_all(answer.as_bytes());
            }
        });
        address
    }

    #[test]
    fn without_sockets_the_usual_addresses_are_asked() {
        let dir = tempfile::tempdir().expect("a folder");
        let folders = [dir.path().join("refrain"), dir.path().to_owned()];
        let gateway = answers("200 OK", STATUS);
        let others = [
            answers("200 OK", "{}"),
            answers("404 Not Found", ""),
            answers("200 OK", "hello"),
        ];
        let mut addresses: Vec<&str> = others.iter().map(String::as_str).collect();
        let error = find_in(&folders, &addresses).map(|_| ()).expect_err("none");
        let error = error.to_string();
        let places = folders.iter().map(|folder| folder.display().to_string());
        for place in places.chain(others.iter().cloned()) {
            assert!(error.contains(&place), "{place} is not in: {error}");
        }
        let advised = or_else_advise(find_in(&folders, &addresses), "--peer");
        let advised = advised.map(|_| ()).expect_err("none").to_string();
        assert!(
            advised.ends_with("; start one, or give --peer"),
            "{advised}"
        );
        addresses.push(&gateway);
        let (found, silent) = find_in(&folders, &addresses).expect("a gateway");
        assert!(silent.is_empty());
        let found = only(found).expect("one gateway");
        assert_eq!(found.place.to_string(), gateway);
        assert_eq!(found.status.role, "near");
    }

    #[test]
    fn a_user_who_may_not_look_is_advised_to_be_another() {
        let found = NoneFound {
            looked: "/run/refrain (this user cannot read it)".to_owned(),
            is_denied: true,
            is_silent: false,
        };
        let advised = or_else_advise(Err::<(), _>(found.into()), "--peer");
        let advised = advised.expect_err("none").to_string();
        let advice = "; run the command as root or as the gateway's user, or give --peer";
        assert!(advised.ends_with(advice), "{advised}");
    }

    /// The local socket of a near end, and the folder of sockets that it is in.
    fn socket_in(dir: &Path) -> (PathBuf, PathBuf, UnixListener) {
        let folder = dir.join("refrain");
        std::fs::create_dir(&folder).expect("a folder");
        let socket = folder.join("near-1.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        (folder, socket, listener)
    }

    #[test]
    fn a_gateway_that_cannot_be_asked_is_named_and_hides_no_other() {
        let dir = tempfile::tempdir().expect("a folder");
        let (folder, socket, listener) = socket_in(dir.path());
        thread::spawn(move || listener.incoming().flatten().for_each(drop));
        let error = find_in(std::slice::from_ref(&folder), &[])
            .map(|_| ())
            .expect_err("none");
        let named = format!("(no gateway answers at {}", Place::Socket(socket));
        assert!(error.to_string().contains(&named), "{error}");
        let gateway = answers("200 OK", STATUS);
        let (found, silent) = find_in(&[folder], &[&gateway]).expect("a gateway");
        assert_eq!(found.len(), 1);
        let silent: Vec<_> = silent.iter().map(ToString::to_string).collect();
        assert!(silent.len() == 1 && silent[0].contains("near-1.sock"));
    }

    #[test]
    fn a_socket_that_this_user_may_not_open_asks_for_another_user() {
        let dir = tempfile::tempdir().expect("a folder");
        let (folder, socket, _listener) = socket_in(dir.path());
        let closed = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(&socket, closed).expect("its owner may");
        // Root may open all.
        if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
            return;
        }
        let error = ask(&Place::Socket(socket.clone()), None);
        let error = error.map(|_| ()).expect_err("denied").to_string();
        let advice = "permission denied (run this as root or as the gateway's user)";
        assert!(error.ends_with(advice), "{error}");
        let advised = or_else_advise(find_in(&[folder], &[]), "--peer");
        let advised = advised.map(|_| ()).expect_err("none").to_string();
        let named = format!("(this user cannot open {})", socket.display());
        assert!(advised.contains(&named), "{advised}");
        assert!(advised.contains("; run the command as root"), "{advised}");
    }

    #[test]
    fn a_gateway_that_wants_a_token_is_named() {
        let closed = answers("401 Unauthorized", "a token is needed");
        let error = find_in(&[], &[&closed])
            .map(|_| ())
            .expect_err("it wants one");
        let error = error.to_string();
        assert!(
            error.contains(&closed) && error.contains("--admin-token-file"),
            "{error}"
        );
    }

    #[test]
    fn a_token_that_is_refused_is_said_to_be_wrong() {
        let closed = answers("401 Unauthorized", "a token is needed");
        let place: Place = closed.parse().expect("an address");
        let error = ask(&place, Some("another")).map(|_| ()).expect_err("wrong");
        let error = error.to_string();
        assert!(error.contains("refused this admin token"), "{error}");
    }

    #[test]
    fn what_is_no_admin_listener_is_said_in_one_sentence() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let lanes = listener.local_addr().expect("its address").to_string();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut client = client;
                // As TLS does: an alert.
                let _ = client.write_all(b"\x15\x03\x03\x00\x02\x02\x0a");
                let _ = client.read(&mut [0; 4096]);
            }
        });
        for place in [lanes, answers("200 OK", "{}"), answers("404 Not Found", "")] {
            let asked = ask(&place.parse().expect("an address"), None);
            let error: anyhow::Error = asked.map(|_| ()).expect_err("no gateway").into();
            let text = crate::in_words(&error);
            let start = format!("no gateway answers at {place}: ");
            assert!(text.starts_with(&start), "{text}");
            assert!(text.contains("--admin"), "{text}");
            assert!(!text.contains("http://"), "{text}");
        }
    }

    #[test]
    fn several_gateways_are_named_with_what_chooses_them() {
        let [one, two] = [(); 2].map(|()| answers("200 OK", STATUS));
        let (found, _) = find_in(&[], &[&one, &two]).expect("gateways");
        let error = only(found).map(|_| ()).expect_err("two");
        assert!(error.is::<UsageError>());
        for place in [one, two] {
            assert!(error.to_string().contains(&format!("--admin {place}")));
        }
    }

    #[test]
    fn a_place_is_an_address_or_a_path() {
        for text in ["127.0.0.1:9001", "/run/refrain/near-1.sock", "./near.sock"] {
            let place: Place = text.parse().expect("a place");
            assert_eq!(place.to_string(), text);
            assert_eq!(matches!(place, Place::Socket(_)), text.contains('/'));
        }
        for text in ["near", "localhost", ""] {
            let error = text.parse::<Place>().expect_err(text);
            assert!(matches!(error, PlaceError::NoPort), "{text}: {error}");
        }
        let url = "http://127.0.0.1:9001/".parse::<Place>();
        assert!(matches!(url, Err(PlaceError::Address(TargetError::Url(_)))));
    }
}
