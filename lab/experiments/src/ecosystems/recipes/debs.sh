# 1, 2: packages of two versions, packed as Debian (xz) and as Ubuntu (zstd) does. Needs the trees of `python`.
set -euo pipefail
for version in 1 2; do
    mkdir $version
    for name in django numpy; do
        for kind in xz zstd; do
            mkdir -p tree/DEBIAN tree/usr/lib/python3/dist-packages
            cp -a ../python/tree-$version/${name}* tree/usr/lib/python3/dist-packages
            cat >tree/DEBIAN/control <<END
Package: python3-$name-$kind
Version: $version
Architecture: amd64
Maintainer: Archive <archive@example.org>
Description: $name
END
            dpkg-deb --root-owner-group -Z$kind --build tree $version >/dev/null
            rm -r tree
        done
    done
done
