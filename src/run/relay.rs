//! Relays connections of the program to a SOCKS5 proxy.

use std::{io, mem::discriminant, str::FromStr, time::Duration};

use anyhow::{anyhow, bail};
use refrain_gateway::{
    acceptor::SpareDescriptors,
    address::parse_admin,
    rate_limited_log::RateLimitedLog,
    redirected::{NoTarget, Redirected, original_target},
    target::{Host, Target, TargetError},
    virtual_names::VirtualNames,
};
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_socks::{TargetAddr, tcp::Socks5Stream};

/// How long the proxy may take to connect to a target.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// After an error of accept(2), such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long the proxy may take to be there at the start.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The buffer of each direction of a connection.
const BUFFER_BYTES: usize = 64 << 10;

/// A SOCKS5 proxy.
#[derive(Debug, Clone)]
pub(super) struct Proxy {
    address: Target,
    login: Option<(String, String)>,
}

/// Why a text is not a proxy.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    #[error("expected [USER:PASSWORD@][HOST:]PORT, such as 1080 or 10.0.0.5:1080")]
    NoPort,
    #[error("user name and password must each have 1 to 255 bytes: USER:PASSWORD@HOST:PORT")]
    Login,
    #[error(transparent)]
    Address(TargetError),
}

impl Proxy {
    /// One that asks for no password.
    pub(super) fn at(address: Target) -> Proxy {
        Proxy {
            address,
            login: None,
        }
    }

    /// Connects to the proxy and greets it, to see that it is there, and a SOCKS5 proxy.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        /// The version, and the ways to sign in: none, and a password (RFC 1928, section 3).
        const GREETING: [u8; 4] = [5, 2, 0, 2];
        let connected = timeout(CHECK_TIMEOUT, TcpStream::connect(self.address.to_string()));
        let connected = connected.await.unwrap_or_else(|_| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no answer within 5s",
            ))
        });
        let mut proxy = connected.map_err(|error| anyhow!("{}", self.unreachable(&error)))?;
        let greeted = timeout(CHECK_TIMEOUT, async {
            proxy.write_all(&GREETING).await?;
            let mut answer = [0; 2];
            proxy.read_exact(&mut answer).await.map(|_| answer)
        });
        match greeted.await {
            Ok(Ok([5, _])) => Ok(()),
            // Its list of clients may not have this one, which each connection reports.
            Ok(Err(_)) => Ok(()),
            Ok(Ok(_)) | Err(_) => bail!(
                "{} does not answer as a SOCKS5 proxy (give the port of the near end's --socks5)",
                self.address
            ),
        }
    }

    fn unreachable(&self, error: &io::Error) -> String {
        let proxy = &self.address;
        format!(
            "cannot reach the proxy {proxy}: {error} (is the near end running, with --socks5, and does its --clients admit 127.0.0.1?)"
        )
    }

    /// Why the proxy did not connect, in the words of near ends.
    fn describe(&self, error: &tokio_socks::Error) -> String {
        use tokio_socks::Error;
        let proxy = &self.address;
        match error {
            Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                format!(
                    "the proxy {proxy} closed the connection (does its --clients admit this machine? Its log has the reason)"
                )
            }
            Error::Io(error) => self.unreachable(error),
            Error::ConnectionRefused => "the target refused the connection".to_owned(),
            Error::ConnectionNotAllowedByRuleset => {
                "the far end does not allow this target (its --allow must cover it)".to_owned()
            }
            Error::HostUnreachable => {
                "the far end could not resolve the name, or has no route to the target".to_owned()
            }
            Error::NetworkUnreachable => {
                "the link to the far end is down (`refrain status` shows the reason)".to_owned()
            }
            Error::TtlExpired => "the target did not answer in time".to_owned(),
            Error::NoAcceptableAuthMethods => {
                format!("the proxy {proxy} asks for a password (--socks5 USER:PASSWORD@{proxy})")
            }
            Error::PasswordAuthFailure(_) => {
                format!("the proxy {proxy} refused the user name or the password")
            }
            Error::InvalidResponseVersion => {
                format!("{proxy} is not a SOCKS5 proxy (give the port of the near end's --socks5)")
            }
            other => format!("the proxy {proxy} reports: {other}"),
        }
    }

    /// A connection to `target`.
    async fn open(&self, target: &Target) -> Result<TcpStream, tokio_socks::Error> {
        let proxy = TcpStream::connect(self.address.to_string()).await?;
        proxy.set_nodelay(true)?;
        let port = target.port;
        let target = match target.host.clone() {
            Host::Domain(name) => TargetAddr::Domain(name.into(), port),
            Host::Ipv4(address) => TargetAddr::Ip((address, port).into()),
            Host::Ipv6(address) => TargetAddr::Ip((address, port).into()),
        };
        let opened = match &self.login {
            Some((user, password)) => {
                Socks5Stream::connect_with_password_and_socket(proxy, target, user, password).await
            }
            None => Socks5Stream::connect_with_socket(proxy, target).await,
        };
        opened.map(Socks5Stream::into_inner)
    }
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Proxy, ProxyError> {
        let text = ["socks5://", "socks5h://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme))
            .unwrap_or(text)
            .trim_end_matches('/');
        let (login, address) = match text.rsplit_once('@') {
            Some((login, address)) => {
                let (user, password) = login.split_once(':').ok_or(ProxyError::Login)?;
                let is_allowed = |part: &str| (1..=255).contains(&part.len());
                if !is_allowed(user) || !is_allowed(password) {
                    return Err(ProxyError::Login);
                }
                (Some((user.to_owned(), password.to_owned())), address)
            }
            None => (None, text),
        };
        Ok(Proxy {
            address: parse_admin(address).map_err(|error| match error {
                TargetError::NoPort => ProxyError::NoPort,
                error => ProxyError::Address(error),
            })?,
            login,
        })
    }
}

/// Relays the connections that come to `listener`, until the task is aborted.
pub(super) async fn serve(listener: TcpListener, proxy: Proxy, redirected: Redirected) {
    let log = RateLimitedLog::new(|line| tracing::info!("{line}"));
    let spare = SpareDescriptors::default();
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let Some(client) = spare.keep(client) else {
                    continue;
                };
                let (proxy, redirected, log) = (proxy.clone(), redirected.clone(), log.clone());
                tokio::spawn(async move {
                    if let Err(refused) = relay(client, &proxy, &redirected.names).await {
                        log.add(discriminant(&refused), refused.to_string());
                    }
                    drop(redirected);
                });
            }
            Err(error) => {
                let kind = error.kind();
                log.add(kind, format!("cannot accept a connection: {error}"));
                if !spare.turn_away(&listener, &error).await {
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Why a connection of the program was reset.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("reset a connection: {0}")]
    NoTarget(#[from] NoTarget),
    #[error("refused a connection to {target}: {reason}")]
    Target { target: Target, reason: String },
}

async fn relay(mut client: TcpStream, proxy: &Proxy, names: &VirtualNames) -> Result<(), Refused> {
    // Whatever ends it early, the program sees a reset and not an end.
    let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
    let target = original_target(&client, Some(names))?;
    let opened = timeout(CONNECT_TIMEOUT, proxy.open(&target)).await;
    let mut server = match opened {
        Ok(Ok(server)) => server,
        Ok(Err(error)) => {
            let reason = proxy.describe(&error);
            return Err(Refused::Target { target, reason });
        }
        Err(_) => {
            let reason = format!(
                "{} did not answer within {CONNECT_TIMEOUT:?}",
                proxy.address
            );
            return Err(Refused::Target { target, reason });
        }
    };
    // The server too, also where this process is killed.
    let _ = SockRef::from(&server).set_linger(Some(Duration::ZERO));
    let copied =
        copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES);
    match copied.await {
        Ok(_) => {
            for whole in [&client, &server] {
                let _ = SockRef::from(whole).set_linger(None);
            }
        }
        Err(error) => tracing::debug!(%target, %error, "a connection failed"),
    }
    Ok(())
}
