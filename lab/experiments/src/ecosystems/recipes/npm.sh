# verdaccio, a registry, with the packages of `install` in its storage, as the public registry has them now.
set -euo pipefail
mkdir verdaccio client
# A dependency of verdaccio's asks for a tag that not every mirror has.
echo '{"private": true, "dependencies": {"verdaccio": "6.1.2"}, "overrides": {"node-fetch": "2.6.7"}}' \
    >verdaccio/package.json
npm install --loglevel error --no-audit --no-fund --ignore-scripts --prefix verdaccio
port=$(node -e 'let s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })')
config() {
    cat <<END
storage: $PWD/storage
packages: { "**": { access: \$all, proxy: $1 } }
uplinks: { $2 }
max_body_size: 200mb
log: { type: stdout, level: warn }
END
}
config public "public: { url: $(npm config get registry), timeout: 120s, maxage: 1d }" >filling.yaml
config '' '' >config.yaml
verdaccio/node_modules/.bin/verdaccio --config filling.yaml --listen "127.0.0.1:$port" >filling.log &
trap 'kill %1' EXIT
until (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do kill -0 %1; sleep 0.1; done
install() {
    echo '{}' >client/package.json
    npm install --loglevel error --no-audit --no-fund --ignore-scripts --no-package-lock --prefix client \
        --cache client/cache --noproxy 127.0.0.1 --registry "http://127.0.0.1:$port/" "$@"
    rm -rf client/*
}
install typescript@5.4.2
install typescript@5.4.3
install next@14.2.3 react@18.3.1 react-dom@18.3.1
install next@14.2.4 react@18.3.1 react-dom@18.3.1
install eslint@9.14.0
install eslint@9.15.0
