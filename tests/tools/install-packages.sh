#!/bin/sh
# Installs what the tests need beside Rust, by name; the test beds install their own (tests/e2e/testbed/packages.py).
# No daemon is started: Debian's policy-rc.d is told to refuse while packages are set up.
set -eu
packages="prometheus prometheus-alertmanager python3-yaml python3-venv dash busybox-static shellcheck g++ python3 strace iproute2 lua5.1 lua5.3 lua5.4 libpfm4 linux-perf"
missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    echo "missing packages; as root: apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
# shellcheck disable=SC2086  # a list of names
apt-get install -y -qq --no-install-recommends $missing >/dev/null
