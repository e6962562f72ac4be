//! `refrain`: keeps bytes off the wire that the other side already has.
//!
//! One thin file a subcommand. Exit codes: 0 done; 1 it failed, and standard error says
//! why; 2 the command line or the configuration is wrong; 3 a near end has no link within
//! `--require-peer`; 130 Ctrl-C ended it early, 129 and 143 SIGHUP and SIGTERM.

mod analyze;
mod bench;
mod bounded;
mod bulk;
mod bypass;
mod ca;
mod check;
mod completions;
mod cost;
mod czip;
mod demo;
mod doctor;
mod dry_run;
mod explain;
mod gateways;
mod inputs;
mod intercept;
mod interrupt;
mod kernel_file;
mod keygen;
mod local;
mod log;
mod man;
mod progress;
mod report;
mod run;
mod standard_io;
mod status;
mod stderr;
mod store;
mod system_program;
mod table;
mod train;
mod usage;
mod version;
mod watchdog;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand, error::ErrorKind};
use interrupt::Interrupted;
use refrain_gateway::{
    arguments::FarOptions,
    gateway::NotPaired,
    options::Role,
    settings::{ConfigError, environment::unread_variables},
};
use run::RunFailed;
use usage::UsageError;

/// The end of the help of commands with a gateway's options.
macro_rules! each_option {
    ($only_flags:literal) => {
        concat!(
            "Each option can also be an environment variable or a key of the file of --config: \
             --connect-timeout 5s is REFRAIN_CONNECT_TIMEOUT=5s or connect_timeout = \"5s\". Options that may be \
             given several times take several values with commas, except --service and --intercept. In the file, \
             several values are an array: allow = [\"intranet:80\", \"10.0.0.0/8:443\"]. Available only as flags: ",
            $only_flags,
            "."
        )
    };
}

/// The end of the help of gateways. One of them has a further exit code.
macro_rules! gateway {
    ($only_flags:literal, $exit_code:literal) => {
        concat!(
            each_option!($only_flags),
            "\n\nSIZE: bytes, such as 4096, 64KiB or 1.5GB. K, M, G and T are powers of ten, KiB, MiB, GiB and TiB \
             powers of two. Output uses powers of ten: 128MiB is shown as 134 MB.\n\
             RATE: bits per second. 20M is 20 million bits, as is 20Mbit. With B/s, bytes per second: 2.5MB/s.\n\
             TIME: seconds, or a number with a unit, such as 500ms, 4s, 5min, 1h or 7d.\n\n\
             SIGTERM or SIGINT: accept no new connections, and let open ones continue for --drain-timeout. Then \
             exit with code 0. A second signal stops at once, with code 0 too.\n\
             SIGHUP: read the configuration again. The log names changes that need a restart.\n\
             Other exit codes: 1 failed, 2 wrong arguments or configuration",
            $exit_code,
            "."
        )
    };
}

/// Examples of commands with more to say at the end of their long help.
const FAR: &str = "Example:\n  refrain far --key far.key --peer-key near.key.pub";
const NEAR: &str = "Example:\n  refrain near --key near.key --peer-key far.key.pub --peer far.example.org --socks5 1080";
const RUN: &str = "Example:\n  refrain run git clone https://git.example.org/project.git";
const CHECK: &str = "Example:\n  refrain check --config /etc/refrain/near.toml";

/// Removes repeated data from the traffic between two sites, with a gateway at each end of the link
///
/// Try it: `refrain demo`. Set up a pair: run `refrain keygen` at each end, then `refrain far` next to
/// the service and `refrain near` next to its users.
#[derive(Parser)]
#[command(
    version,
    long_version = version::LONG,
    term_width = 80,
    after_help = "Example:\n  refrain demo\n\nExit codes: 0 done; 1 failed; 2 wrong arguments or configuration; \
                  3 no link to the peer (near --require-peer); 130 ended by Ctrl-C, 129 by SIGHUP, 143 by SIGTERM. \
                  far, near, intercept on, czip serve, czip proxy and czip mount exit with 0 after SIGTERM or Ctrl-C. \
                  status --watch exits with 0 after Ctrl-C. run exits with the exit code of its program, or 125 to 127."
)]
struct Arguments {
    /// Print no progress or notes, and log only warnings and errors
    #[arg(short, long, global = true, display_order = 900)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show how many bytes and seconds a pair saves, with built-in content or your own files
    ///
    /// A client fetches all objects three times: directly, with each object as one zstd frame, and through
    /// a pair of gateways. The link between client and web server is simulated inside this program. With
    /// the built-in content and the default link, this takes about 25 seconds. Direct and zstd transfers that
    /// would take longer than 20 seconds are not run: instead, the shortest possible time is computed.
    /// The pair always transfers everything.
    #[command(after_help = "Example:\n  refrain demo --link 10Mbit,50ms DIR")]
    Demo(demo::DemoArguments),
    /// Make a private key and its public key, and print the public key
    #[command(after_help = "Example:\n  refrain keygen near.key")]
    Keygen(keygen::KeygenArguments),
    /// Make a CA of your own, for sites whose TLS traffic a near end decrypts (--open)
    #[command(after_help = "Example:\n  refrain ca init /etc/refrain/ca --permit corp.example")]
    Ca(ca::CaArguments),
    /// Run the far end, next to the service
    ///
    /// It accepts lanes (connections of near ends), and connects to targets.
    #[command(
        after_help = format!("{FAR}\n\nAll options: refrain far --help"),
        after_long_help = format!("{FAR}\n\n{}", gateway!("--dry-run, --json-log, --quiet, --verbose", ""))
    )]
    Far(gateways::GatewayArguments<FarOptions>),
    /// Run the near end, next to the users
    ///
    /// It opens lanes (connections to the far end). It serves forwards, SOCKS5, HTTP and web sites, and accepts
    /// connections that the firewall redirects.
    #[command(
        after_help = format!("{NEAR}\n\nAll options: refrain near --help"),
        after_long_help = format!(
            "{NEAR}\n\n{}",
            gateway!("--dry-run, --json-log, --quiet, --verbose, --require-peer", ", 3 no link (--require-peer)")
        )
    )]
    Near(gateways::NearArguments),
    /// Run a program, and send all of its connections through the link
    ///
    /// The program and its children need no proxy settings and no privileges. Together they get one network of their
    /// own, in which the kernel redirects all TCP connections to this command. It sends them through a near end, and the
    /// far end resolves names and connects. UDP is refused, except queries for names, so programs use TCP. Connections
    /// to loopback addresses stay inside.
    #[command(
        after_help = RUN,
        after_long_help = format!("{RUN}\n\n\
            The exit code is that of the program, or 128 plus the number of the signal that ended it. 125: `refrain \
            run` failed. 126: the program cannot be run. 127: it was not found. The command ends when the program and \
            all its children have ended. SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on. SIGINT and SIGQUIT are \
            passed on too, unless a terminal sends them to the program itself.\n\n\
            Programs inside cannot gain other users' rights (sudo, su). They cannot use abstract Unix sockets of the \
            desktop, servers on this machine's loopback addresses, or ping. Connections that running services, such \
            as docker, make for a program do not use the link. Only the far end resolves names. So a name \
            that does not exist looks like a connection that is refused, or that opens and is reset.")
    )]
    Run(run::RunArguments),
    /// Have the firewall redirect connections of this machine or network to the near end
    ///
    /// Requires root. The rules are options of the near end (`intercept` in its file). Programs need no proxy settings. When
    /// the near end ends, hangs, or has no link, new connections go direct.
    #[command(
        after_help = "Example:\n  refrain intercept on --config /etc/refrain/near.toml --dry-run"
    )]
    Intercept(intercept::InterceptArguments),
    /// Let new connections go direct, even while the firewall's rules are loaded
    #[command(after_help = "Example:\n  refrain bypass on")]
    Bypass(bypass::BypassArguments),
    /// Show the peers, flows and savings of a running gateway
    ///
    /// The first line counts since the gateway started, and the row of a peer since its link began. The round
    /// trip (rtt) includes the time that a ping waits in the lane's own queue. A flow is one connection of an
    /// application. Its data class decides what the link does with its data: it searches ordinary data for
    /// repeats and compresses it, and sends excluded data unchanged.
    #[command(after_help = "Example:\n  refrain status --watch")]
    Status(status::StatusArguments),
    /// Show why the data of a flow was not saved, and the setting that would change it
    ///
    /// FLOW is its number in `refrain status`. A gateway keeps the counts of the last 1,000 flows that ended, and nothing
    /// of their content. Without FLOW, the last 20 are listed, with the cause of most of their bytes on the link.
    /// Both ends give a flow the same number. The end that sends the data knows more: whether the cache was too small.
    #[command(after_help = "Example:\n  refrain explain --last")]
    Explain(explain::ExplainArguments),
    /// Manage a near end's chunk store: add files to its history, show it, verify it
    #[command(after_help = "Example:\n  refrain store stat --store /var/lib/refrain/store")]
    Store(store::StoreArguments),
    /// Make, extract, read and check archives that share chunks
    Czip(czip::CzipArguments),
    /// Measure how much of the data in files repeats
    Bulk(bulk::BulkArguments),
    /// Estimate how much a pair would save of captured traffic
    Analyze(analyze::AnalyzeArguments),
    /// Choose the table of the marker algorithm SAMPLEBYTE for your data, for --marker-table
    ///
    /// It sorts the values of bytes by how often they are in redundant content. It adds them to the table one at a time
    /// until savings grow no more. Measure the table with other data (--test) before you use it.
    #[command(
        after_help = "Example:\n  refrain train monday.pcap --test tuesday.pcap --output office.table"
    )]
    Train(train::TrainArguments),
    /// Test the connection to the far end and measure it
    ///
    /// With a near end's options, it opens a connection to the far end and measures it. Without
    /// options, it asks the near end that runs here about its link. If several run here, --admin
    /// HOST:PORT or --admin SOCKET chooses one.
    #[command(
        after_help = CHECK,
        after_long_help = format!("{CHECK}\n\n{}", each_option!("--wait, --json, --json-log, --quiet, --verbose"))
    )]
    Check(check::CheckArguments),
    /// Find problems with this machine and its gateways, and print the next steps
    ///
    /// Checks the gateways that run here, the kernel and the firewall. With --config it also checks this file, and each
    /// peer of a near end: it makes a connection there, which the far end logs. Each site of --service gets a request.
    /// It changes nothing. Some checks need root. All checks together take at most about 10 seconds.
    #[command(
        after_help = "Exit codes: 0 no problem, 1 a problem.\n\nExample, as root:\n  refrain doctor --config /etc/refrain/near.toml"
    )]
    Doctor(doctor::DoctorArguments),
    /// Estimate the traffic saved per month, the CPU hours that this takes, and the break-even price of traffic
    Cost(cost::CostArguments),
    /// Measure how fast this machine encodes, decodes, stores, archives and carries data
    #[command(after_help = "Example:\n  refrain bench --filter decode")]
    Bench(bench::BenchArguments),
    /// Kill the gateway that is this process's parent if it hangs
    #[command(hide = true)]
    Watchdog,
    /// Print the version, the commit and the target
    Version,
    /// Print the completion script for a shell
    #[command(
        after_help = "Example, for bash:\n  refrain completions bash >~/.local/share/bash-completion/completions/refrain"
    )]
    Completions(completions::CompletionsArguments),
    /// Print a manual page, or write all of them to a directory
    #[command(after_help = "Example:\n  refrain man near | man -l -")]
    Man(man::ManArguments),
}

impl Command {
    /// Whether it writes to standard output. What runs until it is told to stop does not, and may be started
    /// with that closed.
    fn prints(&self) -> bool {
        match self {
            Self::Near(arguments) => arguments.prints(),
            Self::Far(arguments) => arguments.prints(),
            Self::Czip(arguments) => arguments.prints(),
            // Its program may.
            Self::Run(_) => false,
            Self::Watchdog => false,
            _ => true,
        }
    }

    fn run(&self) -> anyhow::Result<()> {
        if self.prints() {
            standard_io::check_output()?;
        }
        match self {
            Self::Demo(arguments) => demo::run(arguments),
            Self::Keygen(arguments) => keygen::run(arguments),
            Self::Ca(arguments) => ca::run(arguments),
            Self::Far(arguments) => gateways::far(arguments),
            Self::Near(arguments) => gateways::near(arguments),
            Self::Run(arguments) => run::run(arguments),
            Self::Intercept(arguments) => intercept::run(arguments),
            Self::Bypass(arguments) => bypass::run(arguments),
            Self::Status(arguments) => status::run(arguments),
            Self::Explain(arguments) => explain::run(arguments),
            Self::Store(arguments) => store::run(arguments),
            Self::Czip(arguments) => czip::run(arguments),
            Self::Bulk(arguments) => bulk::run(arguments),
            Self::Analyze(arguments) => analyze::run(arguments),
            Self::Train(arguments) => train::run(arguments),
            Self::Check(arguments) => check::run(arguments),
            Self::Doctor(arguments) => doctor::run(arguments),
            Self::Cost(arguments) => cost::run(arguments),
            Self::Bench(arguments) => bench::run(arguments),
            Self::Watchdog => watchdog::run(),
            Self::Version => version::run(),
            Self::Completions(arguments) => completions::run(arguments),
            Self::Man(arguments) => man::run(arguments),
        }
    }
}

fn main() -> ExitCode {
    let result = match Arguments::try_parse() {
        Ok(arguments) => {
            if arguments.quiet {
                progress::be_quiet();
            }
            arguments.command.run()
        }
        // A command that is nothing without another one, and stands there without.
        Err(help) if help.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            help.exit()
        }
        Err(error) if error.use_stderr() => {
            usage::print_clap(&error);
            return ExitCode::from(usage::EXIT_CODE);
        }
        // Help and version are printed, as reports are.
        Err(help) => print_help(&help),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_of_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let error = with_output_named(error);
            let exit_code = exit_code(&error);
            match exit_code {
                usage::EXIT_CODE => usage::print(in_words(&error)),
                _ => stderr::fail(in_words(&error)),
            }
            ExitCode::from(exit_code)
        }
    }
}

fn print_help(help: &clap::Error) -> anyhow::Result<()> {
    standard_io::check_output()?;
    let printed = help.print().and_then(|()| io::stdout().flush());
    printed.map_err(standard_io::output_failed)
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<ConfigError>() || error.is::<UsageError>() {
        usage::EXIT_CODE
    } else if error.is::<NotPaired>() {
        3
    } else if error.is::<RunFailed>() {
        run::FAILED
    } else {
        let interrupted = error.downcast_ref::<Interrupted>();
        interrupted.map_or(1, |interrupted| interrupted.exit_code)
    }
}

/// Whether standard output's reader went, such as `head`: it has read enough. Errors of
/// connections are never bare ones of input and output.
fn is_of_closed_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// An error of a full disk without a file's name is of standard output: those of all other files have theirs.
fn with_output_named(error: anyhow::Error) -> anyhow::Error {
    let has_name = error.chain().len() > 1;
    let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
    match error.downcast_ref::<io::Error>().is_some_and(is_full) && !has_name {
        true => error.context(standard_io::OUTPUT_FAILED),
        false => error,
    }
}

/// An error with its causes, those left out that its own text already has. A cause that begins with the
/// name that the last one ended with, such as an address, does not say it again. The same is true of a name
/// that the first cause has in quotes, or of an address anywhere in it.
fn in_words(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut last = String::new();
    for cause in error.chain().map(ToString::to_string) {
        let cause = stderr::without_numbers(cause);
        let rest = cause.strip_prefix(&last).unwrap_or(&cause);
        let is_named =
            cause.contains(&format!("\"{last}\"")) || last.contains("://") && cause.contains(&last);
        if text.is_empty() || text == last && is_named {
            text.clone_from(&cause);
        } else if rest.len() < cause.len() && rest.starts_with([':', '/']) {
            text += rest;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        last = cause;
    }
    text
}

/// Warns of variables that were meant as options, it seems, and are none.
fn warn_of_unread_variables(role: Role) {
    for variable in unread_variables(role, std::env::vars_os()) {
        tracing::warn!("{variable}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anyhow::anyhow;
    use clap::{Command, CommandFactory};
    use refrain_gateway::options::{ONLY_FLAGS, OPTIONS, Role};

    use super::{Arguments, in_words, io, run, usage, with_output_named};
    use crate::interrupt::HANGUP;

    /// All commands that are shown, with their names.
    fn commands() -> Vec<(String, Command)> {
        let mut program = Arguments::command();
        program.build();
        let (mut found, mut next) = (Vec::new(), vec![("refrain".to_owned(), program)]);
        while let Some((name, command)) = next.pop() {
            let visible = command
                .get_subcommands()
                .filter(|below| !below.is_hide_set());
            next.extend(
                visible.map(|below| (format!("{name} {}", below.get_name()), below.clone())),
            );
            found.push((name, command));
        }
        found.retain(|(name, _)| !name.contains(" help"));
        found
    }

    const LISTED: &str = "help of gateways lists the values";

    /// Names that mean the same everywhere, and take another form of value, or have two meanings by a common convention.
    const FORMS: [(&str, &str); 11] = [
        ("admin", "clients also take a local socket"),
        ("chunk-hash", LISTED),
        ("effort", LISTED),
        (
            "exclude",
            "files by a pattern, as rsync does; targets by a rule",
        ),
        ("listen", "far ends have a default port"),
        ("log", LISTED),
        ("output", "a file, or a directory"),
        (
            "requests",
            "captures or logs of requests; requests at a time of a download",
        ),
        ("simd", LISTED),
        (
            "socks5",
            "the proxy that a near end serves, and `run` uses with a password",
        ),
        ("store", "STORE where DIR is the directory of files"),
    ];

    #[test]
    fn an_option_has_one_form_in_all_commands() {
        let mut forms = BTreeMap::<_, BTreeMap<_, Vec<_>>>::new();
        for (name, command) in commands() {
            for argument in command.get_arguments().filter(|known| !known.is_hide_set()) {
                let Some(long) = argument.get_long() else {
                    continue;
                };
                let values = argument.get_value_names().unwrap_or_default();
                let takes = argument.get_action().takes_values();
                let value = format!("{:?}", values.iter().filter(|_| takes).collect::<Vec<_>>());
                let of_name = forms.entry(long.to_owned()).or_default();
                of_name.entry(value).or_default().push(name.clone());
            }
        }
        forms.retain(|_, forms| forms.len() > 1);
        let known = FORMS.iter().map(|(name, _)| *name);
        assert!(forms.keys().eq(known), "{forms:#?}");
    }

    #[test]
    fn all_help_has_an_example() {
        for (name, command) in commands() {
            if name == "refrain version" {
                continue;
            }
            let (mut short, mut long) = (command.clone(), command);
            let (short, long) = (short.render_help(), long.render_long_help());
            assert!(short.to_string().contains("Example"), "{name}: {short}");
            assert!(long.to_string().contains("Example"), "{name}: {long}");
        }
    }

    #[test]
    fn help_and_errors_know_the_flags_that_are_no_options() {
        let program = Arguments::command();
        for role in [Role::Near, Role::Far, Role::Check] {
            let name = role.name();
            let command = program.find_subcommand(name).expect("a command");
            let help = command.get_after_long_help().expect("a text").to_string();
            let list = help.split_once("Available only as flags: ");
            let (_, only_flags) = list.expect("a list");
            let (only_flags, _) = only_flags.split_once('.').expect("its end");
            let arguments = command.get_arguments().map(|argument| argument.get_id());
            let others = arguments.filter(|id| {
                let is_option = OPTIONS.iter().any(|spec| *id == spec.key);
                !is_option && *id != "config"
            });
            let mut others: Vec<_> = others
                .map(|id| format!("--{}", id.as_str().replace('_', "-")))
                .chain(["--quiet".to_owned()])
                .collect();
            let mut named: Vec<_> = only_flags.split(", ").collect();
            others.sort();
            named.sort();
            assert_eq!(named, others, "{name}");
            let known = ONLY_FLAGS.iter().filter(|(_, roles)| roles.contains(&role));
            let mut known: Vec<_> = known
                .map(|(key, _)| format!("--{}", key.replace('_', "-")))
                .collect();
            known.sort();
            assert_eq!(known, others, "{name}");
        }
    }

    #[test]
    fn the_book_has_the_exit_codes_that_help_has() {
        let numbers = |text: &str| {
            let words = text.split(|character: char| !character.is_ascii_digit());
            let numbers = words.filter_map(|word| word.parse().ok());
            numbers.collect::<std::collections::BTreeSet<u8>>()
        };
        let page = include_str!("../docs/run.md");
        let (_, table) = page.split_once("## Exit codes").expect("a chapter");
        let (table, _) = table.split_once("\n## ").expect("its end");
        let rows = table.lines().filter_map(|line| line.split('|').nth(1));
        let in_book = numbers(&rows.collect::<Vec<_>>().join(" "));
        let help = Arguments::command()
            .get_after_help()
            .expect("a text")
            .to_string();
        let (_, codes) = help.split_once("Exit codes:").expect("a list");
        assert_eq!(in_book, numbers(codes));
        for code in [usage::EXIT_CODE, run::FAILED, HANGUP] {
            assert!(in_book.contains(&code), "{code}");
        }
    }

    #[test]
    fn the_help_of_each_command_has_an_example() {
        fn without(command: &Command) -> Vec<String> {
            let visible = command
                .get_subcommands()
                .filter(|inner| !inner.is_hide_set());
            let mut found: Vec<String> = visible.flat_map(without).collect();
            let help = command.get_after_help().map(ToString::to_string);
            let has_one = help.is_some_and(|help| help.contains("Example"));
            let of_all = ["help", "version", "quiet", "subcommand"];
            let mut own = command.get_arguments();
            if !has_one && own.any(|argument| !of_all.contains(&argument.get_id().as_str())) {
                found.push(command.get_bin_name().unwrap_or_default().to_owned());
            }
            found
        }
        let mut program = Arguments::command();
        program.build();
        assert_eq!(without(&program), [""; 0]);
    }

    #[test]
    fn a_full_disk_without_a_name_is_that_of_standard_output() {
        let full = || anyhow::Error::from(io::Error::from(io::ErrorKind::StorageFull));
        let shown = |error| in_words(&with_output_named(error));
        let reason = full().to_string();
        assert_eq!(
            shown(full()),
            format!("cannot write to standard output: {reason}")
        );
        assert_eq!(shown(full().context("x.czip")), format!("x.czip: {reason}"));
        assert_eq!(shown(anyhow!("disk full")), "disk full");
    }

    #[test]
    fn an_error_in_words_says_nothing_twice() {
        let refused = || anyhow!("http://a/b: Connection refused");
        for error in [
            refused(),
            refused().context("http://a/b"),
            refused().context("http://a"),
        ] {
            assert_eq!(in_words(&error), "http://a/b: Connection refused");
        }
        let error = anyhow!("http://a answers with status 404").context("http://a");
        assert_eq!(in_words(&error), "http://a answers with status 404");
        let error = anyhow!("\"a\" was removed").context("a");
        assert_eq!(in_words(&error), "\"a\" was removed");
        let error = anyhow!("cannot start a thread").context("a");
        assert_eq!(in_words(&error), "a: cannot start a thread");
        let error = anyhow!("full").context("disk: full").context("x.czip");
        assert_eq!(in_words(&error), "x.czip: disk: full");
        let error = anyhow!("x.czipper: gone").context("x.czip");
        assert_eq!(in_words(&error), "x.czip: x.czipper: gone");
    }
}
