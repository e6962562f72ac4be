# 1, 2: wheels of two versions. sdist-1, sdist-2: source distributions. tree-1, tree-2: wheels unpacked.
# build: modules that pip needs to look at a source distribution.
set -euo pipefail
wheels() {
    python3 -m pip download -q --no-deps --only-binary :all: --python-version 3.11 \
        --platform manylinux2014_x86_64 -d "$1" "${@:2}"
}
sdist() {
    python3 -m pip download -q --no-deps --no-binary :all: -d "$1" "$2"
}
wheels 1 Django==5.1.3 asgiref==3.8.1 sqlparse==0.5.1 numpy==2.1.2 scipy==1.14.0
wheels 2 Django==5.1.4 asgiref==3.8.1 sqlparse==0.5.1 numpy==2.1.3 scipy==1.14.1
sdist sdist-1 Django==5.1.3
sdist sdist-2 Django==5.1.4
wheels build setuptools==69.1.1 wheel==0.43.0
for wheel in build/*.whl; do
    python3 -m zipfile -e "$wheel" build
    rm "$wheel"
done
for version in 1 2; do
    mkdir "tree-$version"
    for wheel in $version/Django-* $version/numpy-*; do
        python3 -m zipfile -e "$wheel" "tree-$version"
    done
    # Unpacked by whom and when is of no interest.
    find "tree-$version" -exec touch -h -d 2024-01-01T00:00:00Z {} +
done
