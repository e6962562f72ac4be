# base.tar, apache.tar and both.tar: a Debian system; with Apache; with Apache and MariaDB.
set -euo pipefail
if [[ $EUID -ne 0 ]]; then
    echo "needs root, for debootstrap and chroot" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
PATH="$PATH:/usr/sbin:/sbin"

install_into() {
    chroot "$1" apt-get -qq install -y --no-install-recommends "$2"
    chroot "$1" apt-get clean
}

rm -rf base apache both
debootstrap --variant=minbase bookworm base
# No service is to start.
printf '#!/bin/sh\nexit 101\n' >base/usr/sbin/policy-rc.d
chmod 755 base/usr/sbin/policy-rc.d
chroot base apt-get clean
cp -a base apache
install_into apache apache2
cp -a apache both
install_into both mariadb-server
for system in base apache both; do
    # Lists of packages are 50 MB of text that belong to no system.
    tar --sort=name --exclude='./var/lib/apt/lists/*' -C "$system" -cf part .
    mv part "$system.tar"
done
rm -rf base apache both
