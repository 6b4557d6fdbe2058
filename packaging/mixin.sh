#!/bin/bash
# Makes the mixin, target/packages/jobledger-mixin-VERSION.tar.gz: rules, alerts, runbooks, the Alertmanager example and dashboards as plain YAML
# and JSON, for sites without Debian's or EL's packages and without Helm. packaging/mixin.md is its README.
#
#   packaging/mixin.sh [--output DIR]
#
# Same sources, same bytes: times are SOURCE_DATE_EPOCH (the last commit unless set), names are sorted, nothing of the machine gets in.
set -euo pipefail
out=
while [ $# -gt 0 ]; do
    case $1 in
    --output) out=$(realpath -m "$2") ;;
    *) echo "usage: $0 [--output DIR]" >&2 && exit 64 ;;
    esac
    shift 2
done
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC

out=${out:-$PWD/target/packages}
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
name=jobledger-mixin-$version
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

packaging/monitoring.sh "$scratch/$name"
sed "s/@VERSION@/$version/g" packaging/mixin.md >"$scratch/$name/README.md"
echo "$version" >"$scratch/$name/VERSION"
install -m 644 -t "$scratch/$name" CHANGELOG.md LICENSE-APACHE LICENSE-MIT
mkdir -p "$out"
tar --create --format=ustar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --directory="$scratch" "$name" |
    gzip -9 --no-name >"$scratch/$name.tar.gz"
mv "$scratch/$name.tar.gz" "$out/"
ls -sh "$out/$name.tar.gz"
