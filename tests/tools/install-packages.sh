#!/bin/sh
# Installs what tests and demo need, once and before anything starts: install-packages.sh [USE...], with the uses of packages.txt.
# Without a use: all but `previews`. Starts no daemon.
set -eu
list=$(dirname "$0")/packages.txt
uses=${*:-$(awk '!/^#/ && $1 != "previews" { print $1 }' "$list")}

installed() {
    dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q ' ok installed'
}

missing=""
# shellcheck disable=SC2086  # a list of words
for package in $(printf '%s\n' $uses | awk 'NR == FNR { use[$1]; next } !/^#/ && $1 in use { for (i = 2; i <= NF; i++) print $i }' - "$list" | sort -u); do
    # Node.js comes with its own npm where it is not Debian's.
    case $package in nodejs | npm) command -v npm >/dev/null && continue ;; esac
    installed "$package" || missing="$missing $package"
done
# The virtual machines are made of packages that apt fetches: it needs lists, and not last week's.
fresh=$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mtime -1 2>/dev/null | head -n 1)
if [ -z "$missing" ] && [ -n "$fresh" ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    [ -n "$missing" ] || exit 0
    echo "missing packages; as root: apt-get install --no-install-recommends$missing" >&2
    exit 1
fi

# One at a time: policy-rc.d is one file. apt waits for whoever else installs something.
exec 9>/run/lock/jobledger-install-packages
flock 9
export DEBIAN_FRONTEND=noninteractive
apt() {
    apt-get -qq -o DPkg::Lock::Timeout=600 "$@" >/dev/null
}
apt update
[ -n "$missing" ] || exit 0
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    # Debian's own way to keep packages from starting services while they are set up.
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
# A machine with qemu of backports wants all of qemu from there.
suite=""
case $(dpkg-query -W -f='${Version}' qemu-utils 2>/dev/null || true) in *~bpo12*) suite="-t bookworm-backports" ;; esac
# shellcheck disable=SC2086  # lists of words
apt install -y --no-install-recommends $suite $missing
