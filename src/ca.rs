//! `refrain ca`: the site's own CA, for the names whose TLS a near end opens.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use refrain_gateway::opening::authority;

use crate::stderr;

#[derive(clap::Args)]
pub(crate) struct CaArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a CA, and print how to make clients trust it
    ///
    /// The CA can certify the permitted domains, and all names below them, for 10 years. This cannot be changed
    /// later, and a near end uses one CA. To add a domain, make a new CA for all domains, and have clients trust it.
    /// The private key of its root is deleted. The other key, in intermediate.key, stays on the near end. Programs that
    /// read it can impersonate these domains for all clients that trust the CA.
    #[command(after_help = "Example:\n  refrain ca init /etc/refrain/ca --permit corp.example")]
    Init {
        /// Make the CA in this directory
        dir: PathBuf,
        /// Let it certify this domain and all names below it, such as corp.example. May be given several times
        #[arg(long, required = true, value_name = "DOMAIN", value_delimiter = ',')]
        permit: Vec<String>,
        /// Write the root's private key to this file, for a safe place off this machine
        #[arg(long, value_name = "FILE")]
        keep_root: Option<PathBuf>,
    },
    /// Print how to make clients trust a CA
    #[command(after_help = "Example:\n  refrain ca show /etc/refrain/ca")]
    Show {
        /// The CA's directory
        dir: PathBuf,
    },
    /// Delete a CA with its key, and print how to remove it from clients
    #[command(after_help = "Example:\n  refrain ca revoke /etc/refrain/ca")]
    Revoke {
        /// The CA's directory
        dir: PathBuf,
    },
}

pub(crate) fn run(arguments: &CaArguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Init {
            dir,
            permit,
            keep_root,
        } => {
            authority::init(dir, permit, keep_root.as_deref())?;
            for domain in permit.iter().filter(|domain| !domain.contains('.')) {
                stderr::warn(format!(
                    "the CA can certify all names that end in .{domain}, and its key can impersonate them"
                ));
            }
            let text = format!(
                "made a CA for {} in \"{}\"\n\n{}\nThen start the near end with --ca {} --open NAME.\n",
                permit.join(", "),
                dir.display(),
                trust(dir),
                dir.display()
            );
            print(&text)
        }
        Command::Show { dir } => {
            let root = authority::root_file(dir);
            fs::metadata(&root).with_context(|| {
                format!("no CA in \"{}\", which has no root.pem", dir.display())
            })?;
            print(&trust(dir))
        }
        Command::Revoke { dir } => {
            authority::revoke(dir)?;
            print(&format!(
                "deleted the CA in \"{}\". Remove `open` and `ca` from the near end's options, and send SIGHUP: until then, \
                 it uses the key that it has read. Clients still trust the CA. To remove it from them:\n\n{FORGET}",
                dir.display()
            ))
        }
    }
}

/// How clients trust the CA.
fn trust(dir: &Path) -> String {
    let (root, file) = ("refrain.pem", authority::root_file(dir));
    format!(
        "Copy \"{}\" to clients, as {root}, and have them trust it:\n\
         \x20 Debian, Ubuntu   cp {root} /usr/local/share/ca-certificates/refrain.crt && update-ca-certificates\n\
         \x20 Fedora, RHEL     cp {root} /etc/pki/ca-trust/source/anchors/refrain.pem && update-ca-trust\n\
         \x20 Firefox          Settings, Certificates, View Certificates, Authorities, Import\n\
         \x20 Chrome on Linux  certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n refrain -i {root}\n\
         \x20 Node.js          NODE_EXTRA_CA_CERTS={root}\n\
         \x20 Python requests  REQUESTS_CA_BUNDLE=FILE, with {root} and the system's certificates\n\
         \x20 pip              pip config set global.cert FILE, as for requests\n\
         \x20 git              git config --global http.sslCAInfo FILE, as for requests\n\
         \x20 Java             keytool -importcert -cacerts -alias refrain -file {root}\n",
        file.display()
    )
}

const FORGET: &str = "  Debian, Ubuntu   rm /usr/local/share/ca-certificates/refrain.crt && update-ca-certificates --fresh\n\
     \x20 Fedora, RHEL     rm /etc/pki/ca-trust/source/anchors/refrain.pem && update-ca-trust\n\
     \x20 Firefox          Settings, Certificates, View Certificates, Authorities, Delete\n\
     \x20 Chrome on Linux  certutil -d sql:$HOME/.pki/nssdb -D -n refrain\n\
     \x20 Node.js          unset NODE_EXTRA_CA_CERTS\n\
     \x20 Python requests  unset REQUESTS_CA_BUNDLE\n\
     \x20 pip              pip config unset global.cert\n\
     \x20 git              git config --global --unset http.sslCAInfo\n\
     \x20 Java             keytool -delete -cacerts -alias refrain\n";

fn print(text: &str) -> anyhow::Result<()> {
    io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")
}
