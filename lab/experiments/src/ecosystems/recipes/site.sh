# 1, 2: the manual of npm and a console for HTTP interfaces, as web servers have them.
set -euo pipefail
site() {
    mkdir "$1" package
    npm pack --silent "npm@$2" "swagger-ui-dist@$3" >/dev/null
    tar xzf "npm-$2.tgz"
    cp -r package/docs/output "$1/manual"
    rm -r package
    tar xzf "swagger-ui-dist-$3.tgz"
    rm package/*.map
    mv package "$1/console"
    rm ./*.tgz
}
site 1 10.8.1 5.17.13
site 2 10.8.2 5.17.14
