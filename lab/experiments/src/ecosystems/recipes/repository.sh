# 1.git, 2.git: this project's own history, and 150 commits before.
set -euo pipefail
new=2624a3f
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
if ! git -C "$REPOSITORY" rev-parse --quiet --verify "$new~150^{commit}" >/dev/null; then
    echo "$REPOSITORY is not a repository with its whole history: git fetch --unshallow" >&2
    exit 1
fi
git init --quiet --bare --initial-branch main 1.git
git -C "$REPOSITORY" push --quiet "$PWD/1.git" "$new~150^{commit}:refs/heads/main"
cp -r 1.git 2.git
git -C "$REPOSITORY" push --quiet "$PWD/2.git" "$new^{commit}:refs/heads/main"
