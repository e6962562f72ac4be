# github-tos-200.tar and brevo-privacy-200.tar: the first 200 revisions of a page each.
set -euo pipefail
for page in github-tos brevo-privacy; do
    zstd -dc "$REFRAIN_DATA/pages/$page.tar.zst" | tar -x
    find "$page" -type f | sort | head -n 200 | tar -cf part -T -
    mv part "$page-200.tar"
    rm -r "$page"
done
