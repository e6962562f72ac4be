# dvd.tar with all packages of a list; cd1.tar to cd3.tar with those that it puts there, in another order.
set -euo pipefail
list=$REFRAIN_DATA/recipes/d3-debs.tsv
if [[ ! -e $list ]]; then
    # Another list: what Apache and MariaDB need, and some large packages, in turn on each CD.
    list=$PWD/list.tsv
    {
        apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
            --no-enhances apache2 mariadb-server | grep '^[a-z0-9]'
        printf '%s\n' blender-data emacs-el gimp-data git inkscape libreoffice-core vim-runtime
    } | sort -u | awk 'BEGIN { print "package\tcds" } { print $1 "\t" NR % 3 + 1 }' >"$list"
fi
mkdir -p debs
cd debs
tail -n +2 "$list" | cut -f1 | xargs -n 20 apt-get -q download
pack() {
    tar -cf ../part -T -
    mv ../part "../$1.tar"
}
ls ./*.deb | sort | pack dvd
for cd in 1 2 3; do
    tail -n +2 "$list" | awk -F'\t' -v cd="$cd" 'index("," $2 ",", "," cd ",") { print $1 }' | sort -r |
        while read -r package; do ls ./"$package"_*.deb; done | pack "cd$cd"
done
