//! Ways to bring a client that has a version to the next. Each is a few scripts: what the one who
//! publishes does once, what the client has when it begins, and what it does, which is measured.
//!
//! `$OLD` and `$NEW` are the versions, `served` is the server's folder and `$URL` its address. The client
//! leaves the new version as `out/new`.

/// A way to fetch what is new.
pub(super) struct TransferWay {
    pub name: &'static str,
    pub programs: &'static [&'static str],
    pub server: Server,
    pub publish: &'static str,
    /// Before each run; `out` is empty.
    pub begin: &'static str,
    pub fetch: &'static str,
}

/// Who serves it.
#[derive(Clone, Copy)]
pub(super) enum Server {
    Web,
    Rsync,
}

/// The default, which targets are held against.
pub(super) const OURS: &str = "czip get, small";
/// Published after the version that the client has.
pub(super) const OURS_AFTER: &str = "czip get, small, made with --after";
/// What some of them are held against.
pub(super) const RSYNC: &str = "rsync -z";

/// All of them, refrain's first.
pub(super) fn all() -> [TransferWay; 11] {
    let web = |name, programs, publish, fetch| TransferWay {
        name,
        programs,
        server: Server::Web,
        publish,
        begin: "",
        fetch,
    };
    let get = r#""$REFRAIN" czip get "$URL/new.czip" --seed "$OLD" -o out/new"#;
    [
        web(
            OURS,
            &["nginx"],
            r#""$REFRAIN" czip create -o served/new.czip "$NEW""#,
            get,
        ),
        web(
            "czip get, small, chunks of 8 KiB",
            &["nginx"],
            r#""$REFRAIN" czip create --chunk-size 8K -o served/new.czip "$NEW""#,
            get,
        ),
        web(
            OURS_AFTER,
            &["nginx"],
            r#""$REFRAIN" czip create -o old.czip "$OLD"
            "$REFRAIN" czip create --after old.czip -o served/new.czip "$NEW""#,
            get,
        ),
        web(
            "czip get, shared",
            &["nginx"],
            r#""$REFRAIN" czip create --profile shared -o served/new.czip "$NEW""#,
            get,
        ),
        web(
            "czip get, shared, chunks of 8 KiB",
            &["nginx"],
            r#""$REFRAIN" czip create --profile shared --chunk-size 8K -o served/new.czip "$NEW""#,
            get,
        ),
        TransferWay {
            name: RSYNC,
            programs: &["rsync"],
            server: Server::Rsync,
            publish: r#"ln "$NEW" served/new || cp "$NEW" served/new"#,
            // The client changes what it has.
            begin: r#"cp "$OLD" out/new"#,
            fetch: r#"rsync -z --ignore-times --stats --no-human-readable "$URL/new" out/new"#,
        },
        web(
            "zsync",
            &["nginx", "zsync", "zsyncmake"],
            r#"ln "$NEW" served/new || cp "$NEW" served/new
            cd served; zsyncmake -u new -o new.zsync new"#,
            r#"zsync -q -i "$OLD" -o out/new "$URL/new.zsync""#,
        ),
        web(
            "zchunk's zckdl",
            &["nginx", "zck", "zckdl", "unzck"],
            r#"zck -o served/new.zck "$NEW"; zck -o old.zck "$OLD""#,
            r#"cd out; zckdl -s ../old.zck "$URL/new.zck"; unzck new.zck"#,
        ),
        web(
            "casync with a seed",
            &["nginx", "casync"],
            r#"casync make --store=served/store.castr served/new.caibx "$NEW""#,
            r#"casync extract --store="$URL/store.castr" --seed="$OLD" "$URL/new.caibx" out/new"#,
        ),
        web(
            "zstd --patch-from, both versions at the server",
            &["nginx", "zstd", "curl"],
            r#"zstd -3 -q --long=31 --patch-from="$OLD" "$NEW" -o served/patch"#,
            r#"curl -s -f -o patch "$URL/patch"
            zstd -d -q --long=31 --memory=2048MB --patch-from="$OLD" patch -o out/new"#,
        ),
        web(
            "xdelta3, both versions at the server",
            &["nginx", "xdelta3", "curl"],
            r#"xdelta3 -e -B 1073741824 -s "$OLD" "$NEW" served/patch"#,
            r#"curl -s -f -o patch "$URL/patch"; xdelta3 -d -B 1073741824 -s "$OLD" patch out/new"#,
        ),
    ]
}
