# stanzas: the first 13,000 packages that this machine's own index of Debian has.
set -euo pipefail
files=$(apt-get indextargets --format '$(FILENAME)' 'Identifier: Packages' | sort)
if [[ -z $files ]]; then
    echo "apt has no index of packages here: apt-get update" >&2
    exit 1
fi
# Of the largest of them, which has the most packages.
largest=$(for file in $files; do echo "$(/usr/lib/apt/apt-helper cat-file "$file" | wc -c) $file"; done | sort -rn | head -n 1)
/usr/lib/apt/apt-helper cat-file "${largest#* }" | awk -v RS= -v ORS='\n\n' 'NR <= 13000' >stanzas
[[ $(grep -c ^Package: stanzas) = 13000 ]]
