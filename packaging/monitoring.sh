#!/bin/bash
# Puts what a host of Prometheus, Alertmanager and Grafana gets into a directory: rules/ and grafana/, as in the tree but without tests and
# sources. The packages (build.sh) and the mixin (mixin.sh) are made of it.
#
#   packaging/monitoring.sh DIRECTORY
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 DIRECTORY" >&2 && exit 64; }
into=$(realpath -m "$1")
cd "$(dirname "$0")/.."
umask 022
for path in rules/*/; do
    part=${path%/}
    case $part in rules/tests | */__pycache__) continue ;; esac
    install -D -m 644 -t "$into/$part" "$part"/*
done
install -D -m 644 -t "$into/rules" rules/site.yaml rules/README.md rules/ALERTS.md
install -D -m 644 -t "$into/grafana/dashboards" grafana/dashboards/*.json
cp -r grafana/provisioning "$into/grafana/provisioning"
