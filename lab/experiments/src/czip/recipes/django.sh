# d00.tar to d11.tar: the source distributions of Django 4.2 to 4.2.11, un-gzipped.
set -euo pipefail
mkdir -p src
number=0
for version in 4.2 4.2.{1..11}; do
    python3 -m pip download -q --no-deps --no-binary :all: -d src "django==$version"
    gzip -dc src/[Dd]jango-"$version".tar.gz >part
    mv part "$(printf 'd%02d.tar' "$number")"
    number=$((number + 1))
done
