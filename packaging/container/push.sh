#!/bin/bash
# Pushes the image of build.sh, all of its architectures, to a registry, and prints the value for the chart:
#
#   packaging/container/push.sh registry.example.org/hpc [--archive FILE] [OPTION OF SKOPEO...]
#
# Needs skopeo; `skopeo login registry.example.org` comes before, where the registry asks who it is.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
archive=$root/target/packages/jobledger-exporter-$version-oci.tar
registry=${1:-}
case $registry in '' | -*) echo "usage: $0 REGISTRY[/PATH] [--archive FILE] [OPTION OF SKOPEO...]" >&2 && exit 64 ;; esac
shift
if [ "${1:-}" = --archive ]; then
    archive=$2
    shift 2
fi
[ -e "$archive" ] || { echo "$0: $archive is not there: make image" >&2 && exit 1; }
skopeo copy --quiet --all --preserve-digests "$@" "oci-archive:$archive" "docker://$registry/jobledger-exporter:$version"
echo "pushed; helm install ... --set image.registry=$registry"
