//! git, by http and by its own protocol.

use std::net::SocketAddr;

use super::{
    Ecosystem,
    bench::Bench,
    data, nginx,
    row::{Row, Title},
};
use crate::processes::Running;

pub(super) const GIT: Ecosystem = Ecosystem {
    name: "git",
    title: "git, with git-http-backend and git daemon",
    programs: &["git --version", "nginx -v", "fcgiwrap -h"],
    data: &[data::REPOSITORY],
    measure,
};

const FCGIWRAP: &str = r#"
cp -r "$DATA"/repository/[12].git .
ln -sfn 1.git served.git
exec fcgiwrap -s "tcp:$SERVER"
"#;

const HTTP_BACKEND: &str = r"
location / {
    fastcgi_pass @FCGIWRAP@;
    fastcgi_param SCRIPT_FILENAME $(git --exec-path)/git-http-backend;
    fastcgi_param GIT_PROJECT_ROOT /mnt;
    fastcgi_param GIT_HTTP_EXPORT_ALL 1;
    fastcgi_param GIT_PROTOCOL \$http_git_protocol;
    fastcgi_param HTTP_CONTENT_ENCODING \$http_content_encoding;
    fastcgi_param PATH_INFO \$uri;
    fastcgi_param QUERY_STRING \$query_string;
    fastcgi_param REQUEST_METHOD \$request_method;
    fastcgi_param CONTENT_TYPE \$content_type;
    fastcgi_param CONTENT_LENGTH \$content_length;
}";

const DAEMON: &str = r#"
exec git daemon --listen="${SERVER%:*}" --port="$PORT" --base-path=/mnt --export-all
"#;

const CLONE: &str = r#"
ln -sfn $VERSION.git served.git
rm -rf clone
address() { sed "s/FORWARD/$FORWARD/; s/SERVICE/$SERVICE/" <<<$1; }
[[ $URL = *SERVICE* ]] && proxy= || proxy=http://$NEAR
git -c "http.proxy=$proxy" -c http.sslCAInfo=/mnt/ca/root.pem clone --quiet $OPTIONS "$(address $URL)/served.git" clone
"#;

/// As of a server whose repositories are private: git asks without a password first.
const PASSWORD: &str = r#"
auth_basic private;
auth_basic_user_file /mnt/passwords;
"#;

/// For the user `user`, with the password `secret`.
const PASSWORDS: &str = "echo \"user:$(openssl passwd -apr1 secret)\" >passwords";

/// Each user has cloned version N past the pair before.
const FETCH: &str = r#"
[[ $STEP != 1 ]] || git clone --quiet 1.git clone-2
[[ $STEP != 1 ]] || git clone --quiet 1.git clone-3
ln -sfn $VERSION.git served.git
if [[ $STEP = 1 ]]; then
    rm -rf clone
    git -c "http.proxy=http://$NEAR" clone --quiet "$URL/served.git" clone
else
    rm -rf clone
    mv clone-$STEP clone
    git -C clone -c "http.proxy=http://$NEAR" pull --quiet --ff-only "$URL/served.git" main
fi
"#;

const CHECK: &str = r#"
[[ $(git -C clone rev-parse HEAD) = $(git --git-dir $VERSION.git rev-parse main) ]]
git -C clone fsck --full --strict >fsck 2>&1 || { cat fsck; exit 1; }
[[ -z $(git -C clone status --porcelain) ]]
"#;

/// Of a far end whose users may all see what is private.
const KEPT: &[&str] = &["--private-answers", "cache"];

fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let (fcgiwrap, _fcgiwrap) = bench.serve(FCGIWRAP)?;
    let (http, _http) = http(bench, fcgiwrap)?;
    let settings = HTTP_BACKEND.replace("@FCGIWRAP@", &fcgiwrap.to_string());
    let (https, _https) = nginx::start_with_tls(bench, &settings)?;
    bench.run(PASSWORDS, &[])?;
    let (private, _private) = nginx::start_with_tls(bench, &[PASSWORD, &settings].concat())?;
    let (daemon, _daemon) = bench.serve(DAEMON)?;
    nginx::authority(bench)?;
    let url = format!("http://{http}");
    let opened = format!("https://localhost:{}", https.port());
    let rows = [
        (
            "git by http: clone, 150 commits between N and N + 1",
            http,
            CLONE,
            url.as_str(),
            "",
            &[][..],
            "nothing: packs are deflated, but the server sends stored objects unchanged",
        ),
        (
            "git by http: fetch of the 150 commits (N is a clone)",
            http,
            FETCH,
            &url,
            "",
            &[][..],
            "nothing repeats: git sends only new data",
        ),
        (
            "git by http: clone with `--depth 1`",
            http,
            CLONE,
            &url,
            "--depth 1",
            &[][..],
            "deflate, of objects that the server compresses again",
        ),
        (
            "git by https, through a service: clone",
            https,
            CLONE,
            "http://SERVICE",
            "",
            &[][..],
            "nothing",
        ),
        (
            "git by https, as an opened name: clone",
            https,
            CLONE,
            &opened,
            "",
            &[][..],
            "nothing",
        ),
        (
            "git by https, through a service, with a password: clone",
            private,
            CLONE,
            "http://user:secret@SERVICE",
            "",
            &[][..],
            "answers to requests with a password are secret",
        ),
        (
            "git: the same, with `--private-answers cache` at the far end",
            private,
            CLONE,
            "http://user:secret@SERVICE",
            "",
            KEPT,
            "nothing",
        ),
        (
            "git by its own protocol: clone",
            daemon,
            CLONE,
            "git://FORWARD",
            "",
            &[][..],
            "nothing",
        ),
    ];
    let rows = rows
        .into_iter()
        .map(|(name, server, script, url, options, far, in_the_way)| {
            let title = Title {
                name,
                checked: "commit, `git fsck --strict`",
                in_the_way,
            };
            let script = [script, CHECK].concat();
            let scheme = if url == opened { "opened" } else { "" };
            let near = nginx::near_options(scheme);
            bench.pair_with_far(server, &[], near, far)?.row(
                title,
                &script,
                &[("URL", url), ("OPTIONS", options)],
            )
        });
    rows.collect()
}

fn http(bench: &Bench, fcgiwrap: SocketAddr) -> anyhow::Result<(SocketAddr, Running)> {
    let settings = HTTP_BACKEND.replace("@FCGIWRAP@", &fcgiwrap.to_string());
    nginx::start(bench, &settings)
}
