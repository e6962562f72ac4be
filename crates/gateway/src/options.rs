//! Every option of the gateways, each defined once.
//!
//! One definition gives the flag (`--lanes-max`), the environment variable
//! (`REFRAIN_LANES_MAX`), the key of the configuration file (`lanes_max`), the default, and the
//! help in the command line and in `docs/configuration.md`. A value has the same text
//! everywhere; [`config`](crate::config) turns the texts into valid types.

use clap::{Arg, ArgAction};
use refrain_codec::marker::MarkerAlgorithm;
use refrain_proto::SecondStage;

use crate::http_proxy::{AcceptEncoding, secrets::PrivateAnswers};

/// One option: what it is called, who has it, and what it means.
#[derive(Debug)]
pub struct OptionSpec {
    /// The key of the configuration file, from which the other names are made.
    pub key: &'static str,
    /// What a value looks like, such as `SIZE`; empty for a switch, which is on if it is given.
    pub value: &'static str,
    /// The default.
    pub default: DefaultValue,
    /// One or a few sentences. Other options are named by their keys, such as `peer_key`.
    pub help: &'static str,
    /// A few words for `-h`. Options without them are in `--help` only.
    brief: &'static str,
    /// Its help in `refrain check`, where that is another one.
    in_check: Option<&'static str>,
    /// The placeholder of its value there, where that is another one.
    value_in_check: Option<&'static str>,
    /// The heading that it is under.
    pub group: Group,
    /// Its key before version 0.2, which is still taken and shown nowhere.
    old_key: Option<&'static str>,
    /// Whether several values are taken: flags repeat, the file has an array.
    pub repeats: bool,
    /// Whether a value may have commas, which otherwise separate several ones.
    pub(crate) has_commas: bool,
    /// Whether a value is never shown, not even in an error.
    pub(crate) is_secret: bool,
    /// The programs that it does something for.
    pub roles: &'static [Role],
    /// Those to which SIGHUP applies a change of it; others need a restart.
    pub(crate) reloads: &'static [Role],
    /// Whether it is about the store, and an error without one.
    pub(crate) needs_store: bool,
    /// What applications find at the address, if it names a listener for them.
    pub(crate) entrance: Option<Entrance>,
}

/// What applications find at a listener for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// One target.
    Forward,
    /// One web site.
    Service,
    /// Any target that they name. They can be asked for a password.
    Proxy,
    /// The targets that they connect to, without knowing about this listener.
    Transparent,
}

/// Two are the same if they have the same key.
impl PartialEq for OptionSpec {
    fn eq(&self, other: &OptionSpec) -> bool {
        self.key == other.key
    }
}

/// A heading of help and documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// How the ends find and trust each other.
    Connection,
    /// Where applications and operators connect.
    Listeners,
    /// Which clients and targets are allowed.
    Access,
    /// How data crosses the link.
    Traffic,
    /// Which data is kept and predicted.
    Store,
    /// Rate, memory, counts and times.
    Limits,
    /// Options for tests and measurements, and for rare cases.
    Expert,
}

impl Group {
    /// The heading's text.
    pub fn heading(self) -> &'static str {
        match self {
            Group::Connection => "Connection",
            Group::Listeners => "Listeners",
            Group::Access => "Access",
            Group::Traffic => "Traffic",
            Group::Store => "Store",
            Group::Limits => "Limits",
            Group::Expert => "Expert",
        }
    }
}

/// What holds when an option is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// The option has to be given.
    Required,
    /// Nothing: the option turns something on.
    Nothing,
    /// This value.
    Value(&'static str),
    /// A value that depends on the machine or on other options, in words.
    Described(&'static str),
}

/// The programs that take options from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `refrain near`
    Near,
    /// `refrain far`
    Far,
    /// `refrain check`, which takes all of a near end's options, so that none is wrong, and
    /// uses few.
    Check,
}

const NEAR: &[Role] = &[Role::Near];
const FAR: &[Role] = &[Role::Far];
const BOTH: &[Role] = &[Role::Near, Role::Far];
const TO_PEER: &[Role] = &[Role::Near, Role::Check];
const CHECK: &[Role] = &[Role::Check];
const ALL: &[Role] = &[Role::Near, Role::Far, Role::Check];

impl OptionSpec {
    const fn new(
        roles: &'static [Role],
        key: &'static str,
        value: &'static str,
        default: DefaultValue,
        help: &'static str,
    ) -> OptionSpec {
        OptionSpec {
            key,
            value,
            default,
            help,
            brief: "",
            in_check: None,
            value_in_check: None,
            group: Group::Expert,
            old_key: None,
            repeats: false,
            has_commas: false,
            is_secret: false,
            roles,
            reloads: &[],
            needs_store: false,
            entrance: None,
        }
    }

    const fn brief(mut self, brief: &'static str) -> OptionSpec {
        self.brief = brief;
        self
    }

    const fn in_check(mut self, help: &'static str) -> OptionSpec {
        self.in_check = Some(help);
        self
    }

    const fn value_in_check(mut self, value: &'static str) -> OptionSpec {
        self.value_in_check = Some(value);
        self
    }

    const fn before_0_2(mut self, key: &'static str) -> OptionSpec {
        self.old_key = Some(key);
        self
    }

    const fn in_group(mut self, group: Group) -> OptionSpec {
        self.group = group;
        self
    }

    const fn repeats(mut self) -> OptionSpec {
        self.repeats = true;
        self
    }

    const fn with_commas(mut self) -> OptionSpec {
        self.has_commas = true;
        self
    }

    const fn secret(mut self) -> OptionSpec {
        self.is_secret = true;
        self
    }

    const fn reloads(mut self, reloads: &'static [Role]) -> OptionSpec {
        self.reloads = reloads;
        self
    }

    const fn entrance(mut self, entrance: Entrance) -> OptionSpec {
        self.entrance = Some(entrance);
        self
    }

    const fn needs_store(mut self) -> OptionSpec {
        self.needs_store = true;
        self
    }

    /// The flag, such as `--lanes-max`.
    pub fn flag(&self) -> String {
        format!("--{}", long(self.key))
    }

    /// The environment variable, such as `REFRAIN_LANES_MAX`.
    pub fn environment(&self) -> String {
        environment_variable(self.key)
    }

    /// Whether this is its key, or was.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.key == key || self.old_key == Some(key)
    }

    /// The environment variable that it had before, if it had another one.
    pub(crate) fn old_environment(&self) -> Option<String> {
        self.old_key.map(environment_variable)
    }

    pub(crate) fn arg(&self, role: Role) -> Arg {
        let in_check = self.in_check.filter(|_| role == Role::Check);
        let help = in_check.map_or_else(|| with_flags(self.help), |text| format!("{text}."));
        let help = match self.default {
            DefaultValue::Required | DefaultValue::Nothing => help,
            DefaultValue::Value(default) | DefaultValue::Described(default) => {
                format!("{help} [default: {default}]")
            }
        };
        let help = match self.repeats {
            true => format!("{help} May be given several times."),
            false => help,
        };
        let arg = Arg::new(self.key)
            .long(long(self.key))
            .aliases(self.old_key.map(long))
            .env(self.environment())
            .hide_env(true)
            .value_name(in_check.and(self.value_in_check).unwrap_or(self.value))
            .help_heading(self.group.heading())
            .hide(!self.roles.contains(&role) && in_check.is_none())
            .hide_short_help(self.brief.is_empty())
            .help(in_check.unwrap_or(self.brief))
            .long_help(help);
        if self.is_switch() {
            // A value turns off what a file turns on.
            let arg = arg.value_name("true|false").num_args(0..=1);
            return arg.require_equals(true).default_missing_value("true");
        }
        match self.repeats {
            true if self.has_commas => arg.action(ArgAction::Append),
            true => arg.action(ArgAction::Append).value_delimiter(','),
            false => arg.action(ArgAction::Set),
        }
    }

    /// Whether it is on or off: a flag without a value, `true` or `false` elsewhere.
    pub fn is_switch(&self) -> bool {
        self.value.is_empty()
    }
}

/// The flag of a key, without dashes before it.
fn long(key: &str) -> String {
    key.replace('_', "-")
}

/// Help in which other options are named by their flags.
fn with_flags(help: &str) -> String {
    let mut text = String::new();
    // Names stand between back quotes: every second part is one.
    for (index, part) in help.split('`').enumerate() {
        let is_key = index % 2 == 1 && OPTIONS.iter().any(|spec| spec.key == part);
        match (is_key, index) {
            (true, _) => text += &format!("`--{}", long(part)),
            (false, 0) => text += part,
            (false, _) => text += &format!("`{part}"),
        }
    }
    text
}

/// The options that name listeners for applications.
pub(crate) fn ways_in() -> impl Iterator<Item = &'static OptionSpec> {
    let options = OPTIONS.iter().copied();
    options.filter(|spec| spec.entrance.is_some())
}

/// The flags that neither a file nor a variable sets, written as keys, and the programs that have them.
pub const ONLY_FLAGS: [(&str, &[Role]); 7] = [
    ("dry_run", BOTH),
    ("json", CHECK),
    ("json_log", ALL),
    ("quiet", ALL),
    ("require_peer", NEAR),
    ("verbose", ALL),
    ("wait", CHECK),
];

/// What `key` is, if it would be the key of a flag that neither a file nor a variable sets. A flag of another program
/// is named with that program.
pub(crate) fn only_flag(key: &str, role: Role) -> Option<String> {
    let (_, roles) = ONLY_FLAGS.iter().find(|(known, _)| *known == key)?;
    let of = match roles.contains(&role) {
        true => String::new(),
        false => format!(" of refrain {}", roles[0].name()),
    };
    Some(format!("only a flag{of}: --{}", long(key)))
}

/// The environment variable of a key.
pub(crate) fn environment_variable(key: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", key.to_ascii_uppercase())
}

/// What the variables of all options begin with.
pub(crate) const ENVIRONMENT_PREFIX: &str = "REFRAIN_";

/// Defines the options by groups, and the list of them all.
macro_rules! options {
    ($($group:ident { $($name:ident = $spec:expr;)* })*) => {
        $($(pub(crate) static $name: OptionSpec = $spec.in_group(Group::$group);)*)*

        /// Every option, in the order in which help and documentation show them.
        pub static OPTIONS: &[&OptionSpec] = &[$($(&$name),*),*];
    };
}

use DefaultValue::{Described, Nothing, Required, Value};

options! {
    Connection {
        LISTEN = OptionSpec::new(FAR, "listen", "PORT|HOST[:PORT]", Value("*:7000"),
            "Accept lanes (the connections of near ends) at this address: a port on all addresses, or an \
             address, with port 7000 unless it has another. A far end may have several.").repeats()
            .brief("Accept near ends here [default: *:7000]");
        PEER = OptionSpec::new(TO_PEER, "peer", "[NAME=]HOST[:PORT]", Required,
            "Open lanes (long-lived connections) to the far end at this address, at port 7000 unless another is given. \
             With several `peer`, give each one a NAME: the name of its key in `peer_key`. A new flow (an application's \
             connection) goes to the first far end that is up. A `route`, or the `forward` that it came through, can name \
             a different one.").repeats()
            .brief("Connect to this far end")
            .in_check("Connect to the far end at this address, at port 7000 unless another is given");
        VIA_PROXY = OptionSpec::new(TO_PEER, "via_proxy", "URL", Nothing,
            "Open lanes through this HTTP proxy, http://[USER:PASSWORD@]HOST:PORT, with its CONNECT method. The proxy resolves the names in `peer`. \
             Many proxies allow only port 443: then have the far end listen there too. A proxy that decrypts TLS cannot \
             be used. In USER and PASSWORD, write characters other than letters, digits and -._~ as %XX. Other \
             users of the machine can see flags: set a URL with a password in the configuration file.").secret()
            .brief("Connect through this HTTP proxy");
        KEY = OptionSpec::new(ALL, "key", "FILE", Required,
            "Read this end's private key from this file. `refrain keygen` makes it. Only its owner may read the \
             file.")
            .brief("Read this end's private key");
        PEER_KEY = OptionSpec::new(ALL, "peer_key", "[NAME=]KEY|FILE", Required,
            "Accept peers with this public key, or with the keys in this file: one per line, after an optional \
             name. A near end needs one for each far end. Logs, tables and other options use NAME for the peer. A \
             far end reloads the keys on SIGHUP, and closes the connections of removed peers.").repeats().reloads(FAR)
            .brief("Accept the peer with this public key")
            .in_check("Accept the far end with this public key, or with the one in this file");
    }
    Listeners {
        FORWARD = OptionSpec::new(BOTH, "forward", "PORT:TARGET", Nothing,
            "Listen on a local port or address, and carry each connection to the target, as a flow over the \
             link: 8080:intranet:80, or 8080=intranet:80. Clients use the port like the target itself, not as a \
             proxy. In full, the value is [HOST:]PORT:TARGET[@PEER]. The peer connects to the target, a \
             HOST:PORT. PEER is a peer's name or key. A far end with several peers needs PEER. At a near end, \
             PEER makes this forward use only that peer.").repeats().entrance(Entrance::Forward)
            .brief("Forward a local port to a target");
        ROUTE = OptionSpec::new(NEAR, "route", "HOST:PORT@PEER", Nothing,
            "Send flows to these targets only to this peer, given by its name or key. HOST and PORT are written \
             as in `allow`, and are compared with the target as the client names it. If several rules match, the \
             first of their peers that is up is used, in the order of the rules. Reloaded on SIGHUP.")
            .repeats().reloads(NEAR)
            .brief("Use this peer for this target");
        SOCKS5 = OptionSpec::new(NEAR, "socks5", "[HOST:]PORT", Nothing,
            "Serve SOCKS5, 4 and 4a at this address, on loopback unless a host is given. The far end resolves \
             names. With `proxy_auth`, only SOCKS5 is served: the others have no password. Beyond loopback it \
             needs `proxy_auth`, `clients` or `open_to_all`.")
            .entrance(Entrance::Proxy)
            .brief("Serve a SOCKS5 proxy");
        HTTP_PROXY = OptionSpec::new(NEAR, "http_proxy", "[HOST:]PORT", Nothing,
            "Serve as an HTTP proxy (CONNECT and http: URLs) at this address, on loopback unless a host is \
             given. Beyond loopback it needs `proxy_auth`, `clients` or `open_to_all`.")
            .entrance(Entrance::Proxy)
            .brief("Serve an HTTP proxy");
        SERVICE = OptionSpec::new(NEAR, "service", "PORT=URL|URL", Nothing,
            "Serve this web site at a local port or address over plain HTTP: 5000=https://registry.example.org. \
             Clients use http://localhost:5000 instead of the site's URL. The far end speaks TLS with the site, and \
             verifies its certificate. Its --allow must cover the site. In full, the value is \
             [HOST:]PORT=URL[,HOST[:PORT]...][@PEER]. Redirects to a HOST also go through this listener. PEER is a \
             peer's name or key. With only the site's URL, clients speak TLS with this end, on the URL's port on all \
             addresses. This end has the site's certificate (`cert`). https://[HOST:]PORT=URL is the same at another \
             address. URLs with postgres://, smtp://, imap:// or ldap:// are for servers whose clients begin TLS \
             after plain messages. They also need the certificate. Beyond loopback it needs `clients` or `open_to_all`.")
            .repeats().with_commas().entrance(Entrance::Service)
            .brief("Serve a web site at a local port");
        CERT = OptionSpec::new(NEAR, "cert", "FILE", Nothing,
            "Read a certificate, with its intermediate certificates, from this file (PEM). It is for a `service` whose \
             clients speak TLS with this end. The value of such a `service` begins with the URL. The file is \
             read again when it changes. With several certificates, each service uses the first one that \
             is for its name.").repeats()
            .brief("Read the certificate of a service");
        CERT_KEY = OptionSpec::new(NEAR, "cert_key", "FILE", Nothing,
            "Read from this file (PEM) the private key of the certificate in `cert`. Only its owner may read the file. \
             With several, give them in the order of the certificates.").repeats();
        OPEN = OptionSpec::new(NEAR, "open", "NAME[:PORT]", Nothing,
            "Decrypt clients' TLS connections to servers with these names, such as npm.example.org or *.corp.example. The default port \
             is 443. This is done for connections through `http_proxy`, `socks5`, `transparent` and `refrain run`. This \
             end then presents a certificate that the CA of `ca` has issued. The far end verifies the server's own certificate. Clients must trust the CA. \
             Connections from clients that do not trust it, and connections to servers that cannot be verified, are not \
             decrypted. Reloaded on SIGHUP.")
            .repeats().reloads(NEAR)
            .brief("Decrypt clients' TLS, with your own CA");
        CA = OptionSpec::new(NEAR, "ca", "DIR", Nothing,
            "Use the CA in this directory for `open`. `refrain ca init` makes it. Reloaded on SIGHUP.").reloads(NEAR);
        TRANSPARENT = OptionSpec::new(NEAR, "transparent", "[HOST:]PORT", Nothing,
            "Accept connections that the firewall of this machine redirects to this port, and carry each to its \
             original destination. Programs then need no proxy. `refrain intercept on` makes the firewall's rules. \
             A connection to a target that refuses is reset. Beyond loopback it needs `clients` or `open_to_all`.")
            .entrance(Entrance::Transparent)
            .brief("Accept redirected connections");
        INTERCEPT = OptionSpec::new(NEAR, "intercept", "RULE", Nothing,
            "Have `refrain intercept on` redirect these connections to `transparent`. A rule is words such as \
             port=80,443 dst=10.20.0.0/16 uid=www-data, and matches if all its words do. The first rule that matches \
             counts. Keys: `port`, `dst`, `src`, `sport` (the client's port). For programs of this machine: `uid`, `gid`, `cgroup`. For forwarded connections: \
             `in` (an interface, or `*`). `name`: a server's name in TLS, HTTP or DNS. action is optimize (default), pass (through \
             the link as it is), direct or reject. client_address is keep or proxy_v2: servers see the client's \
             address, or get it in a header. quic=reject makes browsers use TCP. With refusal=exact, clients \
             of servers that refuse see a refusal, not a reset. refusal=exact needs CAP_NET_ADMIN. With on_refusal=direct, the near \
             end connects to servers itself if the far end refuses. on_failure=reset refuses connections while the \
             near end does not work. By default they go direct. After a change, send SIGHUP to `refrain intercept on` and to \
             the near end.").repeats().with_commas().reloads(NEAR);
        ACCEPT_ENCODING = OptionSpec::new(NEAR, "accept_encoding", AcceptEncoding::NAMES, Value("identity"),
            "Choose the encodings that `http_proxy` and `service` ask origins for. `identity`: plain content, in which the \
             link finds repeats, and which it compresses. Upgrades, requests with `Cache-Control: no-transform` \
             and those to `exclude` targets are unchanged. `keep`: the encodings that the client accepts. \
             Reloaded on SIGHUP.").reloads(NEAR);
        ADMIN = OptionSpec::new(BOTH, "admin", "[HOST:]PORT", Nothing,
            "Serve /healthz, /metrics and the data of `refrain status` at this address, on loopback unless a \
             host is given. An address other than loopback needs a token.")
            .brief("Serve status and metrics")
            .in_check("Ask the near end at this admin listener or local socket about its link. Ignored if \
             --config, --peer, --key, --peer-key or --connect-timeout is given")
            .value_in_check("[HOST:]PORT|SOCKET");
    }
    Access {
        ALLOW = OptionSpec::new(BOTH, "allow", "HOST:PORT",
            Described("loopback only at the far end, nothing at the near end"),
            "Let this end connect to this target when its peer requests it, such as intranet:443, 10.0.0.0/8:80 or \
             [fd00::/8]:8000-8099. HOST is a name, `*.suffix`, `*`, an address or a range of addresses. An IPv6 \
             address or range is in brackets. PORT is required: a number, a range, or `*` for all ports. Addresses \
             and ranges are compared with the resolved address. A name allows any address that it resolves to. \
             Rules replace the default: to keep access to services on the far end's own machine, also allow \
             `127.0.0.0/8:*` and `[::1]:*`. Reloaded on SIGHUP.").repeats().reloads(BOTH)
            .brief("Let the other end connect to this target");
        CLIENT_ADDRESSES = OptionSpec::new(FAR, "client_addresses", "ADDRESS|RANGE", Nothing,
            "Connect to targets from the clients' own addresses, if they are in this range: an address, or a range such as \
             10.0.0.0/8 or fd00::/8. This applies to rules of near ends with client_address=keep. The peer can then use any of these addresses. This \
             end needs CAP_NET_RAW, and `refrain intercept on --far`. Reloaded on SIGHUP.").repeats().reloads(FAR)
            .brief("Connect from clients' own addresses");
        ORIGIN_CA = OptionSpec::new(FAR, "origin_ca", "FILE",
            Described("those of this system"),
            "Accept certificates of HTTPS origins from the CAs in this file (PEM), and from no others. This end \
             connects to the origins of the near end's `--service`, and verifies their certificates. To keep the CAs of \
             this system, also give their file, such as /etc/ssl/certs/ca-certificates.crt. Reloaded on SIGHUP.")
            .repeats().reloads(FAR)
            .brief("Trust these CAs for HTTPS origins");
        ORIGIN_CRL = OptionSpec::new(FAR, "origin_crl", "FILE", Nothing,
            "Refuse the certificates of HTTPS origins that are in this certificate revocation list (PEM or DER). Without \
             it, revoked certificates are accepted until they expire. Reloaded on SIGHUP.").repeats().reloads(FAR);
        PRIVATE_ANSWERS = OptionSpec::new(FAR, "private_answers", PrivateAnswers::NAMES, Value("bypass"),
            "Choose how this end sends the bodies of private answers, from HTTPS sites that near ends open. An answer is \
             private if it has `Cache-Control: no-store` or `private`. Answers to requests with `Authorization` are private \
             too, unless they are public: `Cache-Control` has `public`, `s-maxage` or `immutable`, or the path has a digest. \
             `bypass`: private bodies are neither cached, nor compressed, nor stored, so their length shows nothing about \
             other data. `cache`: they are treated like other bodies, to find repeats, for example in private git \
             repositories. `secret-safe`: all answers that are not public are sent as with `bypass`, including their headers. Near \
             ends can ask for this too, for their own requests. Reloaded on SIGHUP.").reloads(FAR);
        SECRET_SAFE = OptionSpec::new(NEAR, "secret_safe", "", Nothing,
            "Keep requests to the HTTPS sites of `service` and `open`, and their answers, apart from all other data. They \
             are neither cached, nor compressed, nor stored, so their length shows nothing about other data. Exceptions \
             are answers whose `Cache-Control` has `public`, `s-maxage` or `immutable`, or whose path has a digest. Reloaded \
             on SIGHUP.")
            .reloads(NEAR);
        CLIENTS = OptionSpec::new(BOTH, "clients", "ADDRESS|RANGE",
            Described("all that can reach the listener"),
            "Let only clients with these addresses connect to this end's listeners for applications: an address, \
             or a range such as 10.0.0.0/8 or fd00::/8. Other clients are disconnected. Clients on this machine \
             need an entry too. Reloaded on SIGHUP.").repeats().reloads(BOTH)
            .brief("Accept only these clients");
        PROXY_AUTH = OptionSpec::new(NEAR, "proxy_auth", "USER:HASH|FILE", Nothing,
            "Ask clients of `socks5` and `http_proxy` for a user name and password. The value is USER:HASH, \
             as `htpasswd -nB USER` prints it, or a file with one such line per user. Only its owner may \
             read the file. `openssl passwd -6` also makes a HASH. Other users of the machine can see flags, so \
             prefer a file. Reloaded on SIGHUP.").repeats().secret().reloads(BOTH)
            .brief("Ask proxy clients for a password");
        OPEN_TO_ALL = OptionSpec::new(BOTH, "open_to_all", "", Nothing,
            "Let this end's listeners for applications listen beyond loopback without `clients` or passwords. \
             All that can reach them may then use the link. Reloaded on SIGHUP.").reloads(BOTH)
            .brief("Accept clients from all addresses");
        ADMIN_TOKEN = OptionSpec::new(BOTH, "admin_token", "TOKEN", Nothing,
            "Require this bearer token from clients of the admin page. It must have 16 characters or more. Other users \
             of the machine can see flags, so prefer `admin_token_file`.").secret();
        ADMIN_TOKEN_FILE = OptionSpec::new(BOTH, "admin_token_file", "FILE", Nothing,
            "Read the admin token from this file. Only its owner may read the file.")
            .brief("Read the admin token from FILE")
            .in_check("Read from this file the admin token of the near end in --admin");
        ADMIN_HOST = OptionSpec::new(BOTH, "admin_host", "NAME", Nothing,
            "Answer requests to the admin listener that name this host, such as gateway.example.org. By default, \
             only requests for `localhost` or an IP address are answered, and others get status 421. This protects \
             against DNS rebinding: a web page cannot read the listener through a name of its own.").repeats();
    }
    Traffic {
        MODE = OptionSpec::new(BOTH, "mode", "auto|sender|receiver|off", Value("auto"),
            "Choose which end finds repeated data. The mode of a link depends on both ends. `auto`: the receiver \
             predicts the next data from its store, and matching and zstd handle the rest. `sender`: only \
             matching and zstd. `receiver`: only predictions and zstd. A far end then keeps none of the data \
             that it sent. So any of several far ends at one address can serve any near end. `off`: all data is \
             sent unchanged.")
            .brief("Choose the end that finds repeats");
        EXCLUDE = OptionSpec::new(BOTH, "exclude", "HOST:PORT", Nothing,
            "Send the data of these targets unchanged: not searched for repeats, not cached, not compressed. \
             Targets are written as in `allow`. A rule at the end where the client connects covers all data of the flow. A rule only at the end that connects to \
             the target takes effect once the target is connected. Before that, the client may have sent a request. For secrets, set the rule at both ends. \
             Reloaded on SIGHUP.").repeats().reloads(BOTH)
            .brief("Send this target's data unchanged");
    }
    Store {
        STORE = OptionSpec::new(NEAR, "store", "DIR", Nothing,
            "Keep received data in this directory, and predict from it when the data is sent again. The \
             directory is made if it does not exist. Without it, nothing is predicted.")
            .brief("Keep received data, to predict from");
        STORE_SIZE = OptionSpec::new(NEAR, "store_size", "SIZE", Value("100GB"),
            "Use at most this much disk space for the store, from 16MiB. When the store is full, the oldest data \
             that was not repeated is deleted.").needs_store()
            .brief("Limit the store [default: 100GB]");
        STORE_ALSO = OptionSpec::new(NEAR, "store_also", "DIR", Nothing,
            "Also predict from this store of another near end in the same network, through a shared directory. \
             It is opened read-only, even while the other near end writes to it. The other near end must have the same \
             `chunk_size`, `chunk_min`, `chunk_max`, `chunk_hash` and `realm`.").repeats().needs_store()
            .brief("Also predict from this store");
        REALM = OptionSpec::new(NEAR, "realm", "NAME",
            Described("the far end's key"),
            "Store received data under this name, and predict only from data with the same name. So a far end \
             cannot learn which data another service sent. Give all far ends of one service the same name.")
            .needs_store()
            .brief("Keep this service's data separate");
    }
    Limits {
        RATE = OptionSpec::new(BOTH, "rate", "RATE", Nothing,
            "Send at most this much on all links of this end together, such as 20Mbit. Without it, the rate is \
             unlimited.")
            .brief("Limit the rate that this end sends");
        CACHE_SIZE = OptionSpec::new(BOTH, "cache_size", "SIZE", Value("128MiB"),
            "Set the size of the cache of one direction of a link, from 1MiB to 4GiB. Memory is allocated as the \
             cache fills. The cache is smaller, down to 1MiB, if the peer's share of `memory` has no space for it. \
             `--dry-run` prints its size.")
            .before_0_2("cache").brief("Set the cache size [default: 128MiB]");
        MEMORY = OptionSpec::new(BOTH, "memory", "SIZE",
            Described("a quarter of this machine's or container's memory"),
            "Limit the memory of all links together. It must be at least 40MiB, and at least twice a given `cache_size`. Each peer \
             has an equal share. With a small share, a link has smaller caches and fewer lanes, and accepts fewer \
             flows. `--dry-run` prints them. The process itself needs up to 64MiB more.")
            .brief("Limit the memory of all links");
        LANES = OptionSpec::new(BOTH, "lanes", "COUNT", Value("4"),
            "Keep this many lanes open per link, 1 to 16. Only near ends open lanes: a far end ignores it.");
        LANES_MAX = OptionSpec::new(BOTH, "lanes_max", "COUNT", Value("16"),
            "Allow at most this many lanes per link, 1 to 16.");
        FLOWS_MAX = OptionSpec::new(BOTH, "flows_max", "COUNT", Value("10000"),
            "Allow at most this many open connections per link, 1 to 10000. With little `memory`, there are \
             fewer.");
        CONNECT_TIMEOUT = OptionSpec::new(ALL, "connect_timeout", "TIME", Value("10s"),
            "Wait at most this long for a connection to a target or to the peer, each with its handshake. Reloaded on SIGHUP.").reloads(BOTH)
            .in_check("Wait at most this long for the connection to open, with its handshake");
        IDLE_TIMEOUT = OptionSpec::new(BOTH, "idle_timeout", "TIME", Value("1h"),
            "Reset a flow that has carried no data for this long. Reloaded on SIGHUP, for new flows.").reloads(BOTH);
        DEAD_AFTER = OptionSpec::new(BOTH, "dead_after", "TIME", Value("4s"),
            "Close all lanes to a peer that is silent for this long, and reset their flows. A single silent lane \
             is closed after four times as long. New flows wait at most this long for a peer that was lost.");
        KEEP_LINK = OptionSpec::new(BOTH, "keep_link", "TIME", Value("1h"),
            "Keep the caches of a link for this long after its last lane is gone. Reloaded on SIGHUP.").reloads(BOTH);
        DRAIN_TIMEOUT = OptionSpec::new(BOTH, "drain_timeout", "TIME", Value("30s"),
            "Let open flows continue for at most this long after SIGTERM.");
    }
    Expert {
        EFFORT = OptionSpec::new(BOTH, "effort", "auto|0..5|max", Value("auto"),
            "Set how hard to search for repeats. `auto` follows the balance of CPU and link. 0 to 5 are fixed \
             steps. 0 needs the least CPU. `max` is the step above 5.");
        CONGESTION = OptionSpec::new(BOTH, "congestion", "auto|NAME", Value("auto"),
            "Use this TCP congestion control for the lanes: `auto`, or a name that the kernel has, such as bbr or \
             cubic. `auto` uses bbr if the kernel allows it, and otherwise the system's default. All except bbr \
             start slowly again after a pause.");
        PREDICT = OptionSpec::new(NEAR, "predict", "window|aligned", Value("window"),
            "Choose how to predict. `window`: chunks that may occur anywhere in the next data. `aligned`: each \
             chunk only at one exact position in the data, as in the PACK paper. With a long round trip, the \
             data has passed that position before the prediction arrives.").needs_store();
        CHUNK_SIZE = OptionSpec::new(NEAR, "chunk_size", "SIZE", Value("8KiB"),
            "Set how much longer than `chunk_min` the store's chunks are on average: a power of two from 64B to \
             32KiB. With the defaults, chunks average about 10 KiB. Smaller chunks find more repeats, but need more \
             memory and upstream traffic.").needs_store();
        CHUNK_MIN = OptionSpec::new(NEAR, "chunk_min", "SIZE", Value("2KiB"),
            "Set the smallest chunk, from 48B.").needs_store();
        CHUNK_MAX = OptionSpec::new(NEAR, "chunk_max", "SIZE", Value("32KiB"),
            "Set the largest chunk, up to 64KiB.").needs_store();
        MATCHING = OptionSpec::new(BOTH, "matching", "max|chunk", Value("max"),
            "Choose how to find repeats. `max` is Max-Match, which finds the most. `chunk` is Chunk-Match, which \
             keeps no payload at the sender.");
        SECOND_STAGE = OptionSpec::new(BOTH, "second_stage", SecondStage::NAMES, Value("zstd"),
            "Compress the data that this end sends and that matching did not replace: `zstd`, or `off`. `off` needs \
             less CPU, for content that zstd cannot compress.");
        MARKER = OptionSpec::new(BOTH, "marker", MarkerAlgorithm::NAMES, Value("samplebyte"),
            "Choose how to select the positions at which to search for repeats. Keep the default: the \
             other methods are only for experiments.");
        MARKER_TABLE = OptionSpec::new(BOTH, "marker_table", "FILE",
            Described("the eight bytes of the EndRE paper"),
            "Read the byte values of SAMPLEBYTE from this file: numbers from 0 to 255, separated by spaces, \
             commas or new lines.");
        SAMPLING_PERIOD = OptionSpec::new(BOTH, "sampling_period", "BYTES", Value("32"),
            "Search at one position in this many: a power of two from 32 to 512. With `effort` at `auto`, this \
             is the smallest period that is used.");
        WINDOW_BYTES = OptionSpec::new(BOTH, "window_bytes", "BYTES", Value("32"),
            "Search for repeats of at least this length, 12 to 64.");
        CHUNK_HASH = OptionSpec::new(BOTH, "chunk_hash", "blake3|sha1", Value("blake3"),
            "Choose the hash that names chunks in Chunk-Match and in the store. `sha1` only serves to reproduce \
             the papers.");
        SIMD = OptionSpec::new(BOTH, "simd", "auto|portable|avx2|avx512|neon", Value("auto"),
            "Use these SIMD instructions to search for repeats. `auto` uses the fastest that this machine has.");
        LOG = OptionSpec::new(ALL, "log", "error|warn|info|debug|trace", Value("info"),
            "Log to stderr at this level. No level logs the content of flows.");
    }
}

impl Role {
    /// `near`, `far` or `check`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Near => "near",
            Role::Far => "far",
            Role::Check => "check",
        }
    }

    /// The other end of its links, as texts call it.
    pub(crate) fn peer(self) -> &'static str {
        match self {
            Role::Far => "the near end",
            Role::Near | Role::Check => "the far end",
        }
    }

    /// The options that this program takes.
    pub fn options(self) -> impl Iterator<Item = &'static OptionSpec> {
        let role = match self {
            Role::Check => Role::Near,
            role => role,
        };
        let has = move |spec: &&OptionSpec| spec.roles.contains(&role);
        OPTIONS.iter().copied().filter(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_key_is_there_once_and_gives_its_names() {
        let keys: BTreeSet<_> = OPTIONS.iter().map(|spec| spec.key).collect();
        assert_eq!(keys.len(), OPTIONS.len());
        assert_eq!(LANES_MAX.flag(), "--lanes-max");
        assert_eq!(LANES_MAX.environment(), "REFRAIN_LANES_MAX");
    }

    #[test]
    fn help_of_an_end_names_only_its_own_options() {
        for role in [Role::Near, Role::Far] {
            let own: BTreeSet<_> = role.options().map(|spec| spec.key).collect();
            for spec in role.options() {
                let named = spec.help.split('`').skip(1).step_by(2);
                let other = OPTIONS.iter().map(|spec| spec.key);
                let other: BTreeSet<_> = other.filter(|key| !own.contains(key)).collect();
                for name in named {
                    assert!(!other.contains(name), "{name} in: {}", spec.help);
                }
            }
        }
    }

    #[test]
    fn help_names_other_options_by_their_flags() {
        assert_eq!(
            with_flags("`auto` is half of `cache_size`, see `peer`."),
            "`auto` is half of `--cache-size`, see `--peer`."
        );
    }
}
