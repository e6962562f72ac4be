//! PostgreSQL: dumps and base backups.

use refrain_relay::addresses::free_address;

use super::{
    Ecosystem,
    bench::Bench,
    data, nginx,
    row::{Row, Title},
};

pub(super) const POSTGRES: Ecosystem = Ecosystem {
    name: "postgres",
    title: "PostgreSQL: pg_dump, pg_basebackup",
    programs: &["initdb --version", "openssl version"],
    data: &[data::PYTHON],
    measure,
};

/// PostgreSQL refuses to run as root.
const SERVE: &str = r#"
install -d -o postgres -g postgres -m 700 database
install -o postgres -m 600 cert.pem key.pem database.tls/
as_postgres() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
as_postgres initdb --no-sync --auth trust --encoding UTF8 -D database >initdb.log
exec setpriv --reuid postgres --regid postgres --clear-groups postgres -D /mnt/database -p "$PORT" \
    -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c autovacuum=off \
    -c ssl=on -c ssl_cert_file=/mnt/database.tls/cert.pem -c ssl_key_file=/mnt/database.tls/key.pem
"#;

/// Every line of a source tree, and some numbers.
const FILL: &str = r#"
export PGHOST=127.0.0.1 PGPORT=$SERVER_PORT PGUSER=postgres PGOPTIONS=--client-min-messages=warning
until psql -qc 'SELECT 1' >/dev/null 2>&1; do sleep 0.1; done
cd "$DATA/python/tree-1/django"
find . -name '*.py' -o -name '*.po' -o -name '*.html' | sort | xargs awk -v OFS='\t' \
    '{ gsub(/\\/, "\\\\&"); gsub(/\t/, "\\t"); gsub(/\r/, "\\r"); print FILENAME, FNR, $0 }' >/mnt/lines
psql -q -v ON_ERROR_STOP=1 <<'END'
CREATE TABLE lines (id serial PRIMARY KEY, file text, number int, line text);
\copy lines (file, number, line) FROM '/mnt/lines'
CREATE TABLE orders (id int PRIMARY KEY, customer int, placed timestamp, cents int, state text);
SELECT setseed(0.5);
INSERT INTO orders SELECT id, random() * 20000, timestamp '2024-01-01' + random() * interval '1 year',
    random() * 100000, (ARRAY['open', 'paid', 'sent', 'returned'])[1 + (random() * 3)::int]
    FROM generate_series(1, 200000) id;
VACUUM ANALYZE;
END
"#;

/// The next version: of every hundredth row, other ones for each row of the page.
const CHANGE: &str = r#"
export PGUSER=postgres PGSSLMODE
if [[ $STEP = 2 ]]; then
    psql -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "${SERVER#*:}" -c "UPDATE lines SET line = line || ' #' WHERE id % 100 = $REMAINDER" \
        -c "UPDATE orders SET state = 'lost' WHERE id % 100 = $REMAINDER" -c VACUUM -c CHECKPOINT
fi
"#;

/// pg_dump draws a password for each dump, which restores ask for.
const DUMP: &str = r#"
dump() { pg_dump -h 127.0.0.1 -p "$1" | grep -vE '^\\(un)?restrict '; }
dump "${SERVICE_PORT:-$FORWARD_PORT}" >dump
dump "${SERVER#*:}" >direct
cmp direct dump
[[ $(wc -l <dump) -gt 300000 ]]
"#;

/// The manifest has the digest of each file, and of itself.
const BASE_BACKUP: &str = r#"
rm -rf tars backup
pg_basebackup -h 127.0.0.1 -p "$FORWARD_PORT" -D tars -Ft -c fast -X stream --manifest-checksums=SHA256 $OPTIONS
mkdir -p backup/pg_wal
tar xf tars/base.tar* -C backup
tar xf tars/pg_wal.tar* -C backup/pg_wal
cp tars/backup_manifest backup
pg_verifybackup --quiet backup
"#;

struct Backup {
    name: &'static str,
    script: &'static str,
    checked: &'static str,
    sslmode: &'static str,
    options: &'static str,
    /// Whether clients use a service of the near end, with the server's certificate.
    has_service: bool,
    /// Of both ends.
    of_pair: &'static [&'static str],
    in_the_way: &'static str,
}

const DUMPED: &str = "`cmp` with a dump without the pair";
const VERIFIED: &str = "SHA-256 of the manifest, `pg_verifybackup`";

const BACKUPS: [Backup; 6] = [
    Backup {
        name: "PostgreSQL: `pg_dump`, 1 % of rows changed",
        script: DUMP,
        checked: DUMPED,
        sslmode: "disable",
        options: "",
        has_service: false,
        of_pair: &[],
        in_the_way: "nothing",
    },
    Backup {
        name: "PostgreSQL: `pg_dump` with libpq's default, to a server with TLS",
        script: DUMP,
        checked: DUMPED,
        sslmode: "prefer",
        options: "",
        has_service: false,
        of_pair: &[],
        in_the_way: "TLS, which libpq silently prefers",
    },
    Backup {
        name: "PostgreSQL: the same through a service",
        script: DUMP,
        checked: DUMPED,
        sslmode: "require",
        options: "",
        has_service: true,
        of_pair: &[],
        in_the_way: "nothing",
    },
    Backup {
        name: "PostgreSQL: `pg_basebackup`",
        script: BASE_BACKUP,
        checked: VERIFIED,
        sslmode: "disable",
        options: "",
        has_service: false,
        of_pair: &[],
        in_the_way: "the cache, which is too small for a backup",
    },
    Backup {
        name: "PostgreSQL: the same with `--cache-size 512MiB`",
        script: BASE_BACKUP,
        checked: VERIFIED,
        sslmode: "disable",
        options: "",
        has_service: false,
        of_pair: &["--cache-size", "512MiB"],
        in_the_way: "nothing",
    },
    Backup {
        name: "PostgreSQL: `pg_basebackup --compress=server-gzip`",
        script: BASE_BACKUP,
        checked: VERIFIED,
        sslmode: "disable",
        options: "--compress=server-gzip",
        has_service: false,
        of_pair: &[],
        in_the_way: "gzip",
    },
];

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    bench.run(nginx::CERTIFICATE, &[])?;
    bench.run("install -d -o postgres database.tls", &[])?;
    let (server, _server) = bench.serve(SERVE)?;
    bench.run(FILL, &[("SERVER_PORT", &server.port().to_string())])?;
    let rows = (0..).zip(&BACKUPS).map(|(number, backup)| {
        let title = Title {
            name: backup.name,
            checked: backup.checked,
            in_the_way: backup.in_the_way,
        };
        let remainder = i32::to_string(&number);
        let variables = [
            ("PGSSLMODE", backup.sslmode),
            ("OPTIONS", backup.options),
            ("REMAINDER", &remainder),
        ];
        let service = free_address();
        let (site, port) = (
            format!("postgres://{service}=postgres://{server}"),
            service.port().to_string(),
        );
        let certificate = ["--cert", "/mnt/cert.pem", "--cert-key", "/mnt/key.pem"];
        let near = [&["--service", &*site][..], &certificate].concat();
        let pair = match backup.has_service {
            true => bench.pair(server, backup.of_pair, &near)?,
            false => bench.pair(server, backup.of_pair, &[])?,
        };
        let port = if backup.has_service { &*port } else { "" };
        let variables = [&variables[..], &[("SERVICE_PORT", port)]].concat();
        pair.row(title, &[CHANGE, backup.script].concat(), &variables)
    });
    rows.collect()
}
