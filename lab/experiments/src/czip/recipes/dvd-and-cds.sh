# dvd.tar with all packages of a list; cd1.tar to cd3.tar with those that it puts there, in another order.
set -euo pipefail
list=$REFRAIN_DATA/recipes/d3-debs.tsv
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
