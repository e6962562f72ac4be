//! A stolen key of the CA: it certifies the domains of the CA and nothing else, whatever library a client has.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::common::{
    addresses::free_address,
    command::refrain,
    eventually,
    programs::{are_installed, are_large_ones_installed, find, run, run_ok},
};

/// What the CA may certify, and not.
const PERMITTED: &str = "site.test";
const FORBIDDEN: &str = "bank.example";

/// Servers of the thief, each with a certificate that the stolen key signed.
struct Thief {
    folder: tempfile::TempDir,
    servers: [(Child, SocketAddr); 2],
}

const NAMES: [&str; 2] = [PERMITTED, FORBIDDEN];

impl Thief {
    fn start() -> Thief {
        let folder = tempfile::tempdir().expect("a directory");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let made = refrain(&["ca", "init", &path("ca"), "--permit", PERMITTED]);
        assert!(made.status.success());
        for name in NAMES {
            let request = format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -addext subjectAltName=DNS:{name} \
                 -keyout {name}.key -out {name}.csr"
            );
            let sign = format!(
                "x509 -req -in {name}.csr -CA ca/intermediate.pem -CAkey ca/intermediate.key -days 2 \
                 -copy_extensions copy -out {name}.pem"
            );
            for command in [request, sign] {
                let words: Vec<&str> = command.split_whitespace().collect();
                run_ok("openssl", folder.path(), &words);
            }
        }
        let servers = NAMES.map(|name| {
            let address = free_address();
            let options = format!(
                "s_server -quiet -www -accept {address} -cert {name}.pem -key {name}.key -cert_chain ca/intermediate.pem"
            );
            let server = Command::new(find("openssl").expect("its presence was tested"))
                .args(options.split_whitespace())
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("openssl starts");
            eventually("the server listens", || TcpStream::connect(address).ok());
            (server, address)
        });
        Thief { folder, servers }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Thief {
    fn drop(&mut self) {
        for (server, _) in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// A client's command that reaches a name at this port of 127.0.0.1 and trusts `ca/root.pem`, and words of its errors if
/// it does not accept the certificate.
struct Client {
    program: &'static str,
    arguments: fn(&str, u16) -> Vec<String>,
    refuses: &'static str,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

const CLIENTS: [Client; 5] = [
    Client {
        program: "openssl",
        arguments: |name, _| {
            words(&format!(
                "verify -CAfile ca/root.pem -untrusted ca/intermediate.pem {name}.pem"
            ))
        },
        refuses: "permitted subtree violation",
    },
    // OpenSSL.
    Client {
        program: "curl",
        arguments: |name, port| {
            words(&format!(
                "-sS --noproxy * --cacert ca/root.pem --resolve {name}:{port}:127.0.0.1 https://{name}:{port}/"
            ))
        },
        refuses: "SSL certificate problem: permitted subtree violation",
    },
    // GnuTLS. It is no repository.
    Client {
        program: "git",
        arguments: |name, port| {
            words(&format!(
                "-c http.sslCAInfo=ca/root.pem -c http.curloptResolve={name}:{port}:127.0.0.1 ls-remote https://{name}:{port}/"
            ))
        },
        refuses: "certificate verification failed",
    },
    Client {
        program: "node",
        arguments: |name, port| {
            let script = format!(
                "const ca = require('fs').readFileSync('ca/root.pem');
                 const options = {{ host: '127.0.0.1', port: {port}, servername: '{name}', headers: {{ host: '{name}' }}, ca }};
                 require('https').get(options, answer => answer.resume()).on('error', error => {{ throw error; }});"
            );
            vec!["-e".to_owned(), script]
        },
        refuses: "permitted subtree violation",
    },
    Client {
        program: "go",
        arguments: |_, _| words("run client.go"),
        refuses: "is not permitted by any constraint",
    },
];

#[test]
fn a_stolen_key_certifies_no_name_outside_its_domains() {
    if !are_installed(&["openssl", "curl", "git"]) {
        return;
    }
    let thief = Thief::start();
    for client in &CLIENTS {
        let is_large = ["node", "go"].contains(&client.program);
        if is_large && !are_large_ones_installed(&[client.program]) {
            continue;
        }
        let refuses = |nth: usize| {
            let (name, port) = (NAMES[nth], thief.servers[nth].1.port());
            let source = format!(
                "package main\nimport (\"crypto/tls\"; \"crypto/x509\"; \"os\")\nfunc main() {{
                     root, _ := os.ReadFile(\"ca/root.pem\")
                     roots := x509.NewCertPool()
                     roots.AppendCertsFromPEM(root)
                     if _, err := tls.Dial(\"tcp\", \"127.0.0.1:{port}\", &tls.Config{{RootCAs: roots, ServerName: \"{name}\"}}); err != nil {{
                         panic(err)
                     }}
                 }}"
            );
            fs::write(thief.folder().join("client.go"), source).expect("a new file");
            let arguments = (client.arguments)(name, port);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = run(client.program, thief.folder(), &arguments);
            let error = [output.stdout, output.stderr].concat();
            let error = String::from_utf8_lossy(&error).into_owned();
            (error.contains(client.refuses), error)
        };
        let (refused, error) = refuses(0);
        assert!(!refused, "{} {PERMITTED}: {error}", client.program);
        let (refused, error) = refuses(1);
        assert!(refused, "{} {FORBIDDEN}: {error}", client.program);
    }
}
