#!/bin/sh
# Runs a make target as on a new machine: a bare Debian 12 with git, make, gcc and Rust, an empty home and a clone of the last commit.
#   tests/tools/fresh.sh TARGET [ARGUMENTS of make]        as root; 12 GiB below $FRESH_DIRECTORY (/var/tmp), removed at the end
# Rust is this machine's toolchain, read-only. apt's archive, the clients' settings in the environment (CARGO_*, PIP_*, npm_config_*,
# GOPROXY, proxies) and a CA bundle named there are this machine's. Kernel, network, CPUs and control groups are shared.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)

# Within the new namespaces: makes the directory the root.
if [ "${1:-}" = --inside ]; then
    root=$2
    shift 2
    mount --make-rprivate /
    mount --bind "$root" "$root"
    toolchain=$(rustc --print sysroot)
    mkdir -p "$root/opt/rust"
    mount --bind -o ro "$toolchain" "$root/opt/rust"
    mount -t proc proc "$root/proc"
    for part in sys dev; do mount --rbind "/$part" "$root/$part"; done
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mkdir -p "$root/run/lock" "$root/.old"
    cd "$root"
    pivot_root . .old
    umount -l /.old
    rmdir /.old
    # Of this machine's environment the clients' settings alone.
    for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
        case $name in
        CARGO_HTTP_* | CARGO_NET_* | CARGO_REGISTRIES_* | CARGO_SOURCE_* | PIP_INDEX_URL | PIP_*TIMEOUT | npm_config_* | GOPROXY | GOSUMDB | \
            http_proxy | https_proxy | no_proxy | HTTP_PROXY | HTTPS_PROXY | NO_PROXY) ;;
        *) unset "$name" ;;
        esac
    done
    bundle=/etc/ssl/certs/ca-certificates.crt
    export HOME=/root LANG=C.UTF-8 CI=true SSL_CERT_FILE=$bundle PIP_CERT=$bundle NODE_EXTRA_CA_CERTS=$bundle
    export PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    cd /root/jobledger
    exec make "$@"
fi

[ $# -gt 0 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 64; }
"$top/tests/tools/install-packages.sh" machine
# The toolchain is read-only there.
! command -v rustup >/dev/null || (cd "$top" && rustup target add aarch64-unknown-linux-gnu)
root=$(mktemp -d "${FRESH_DIRECTORY:-/var/tmp}/jobledger-fresh.XXXXXX")
child=
trap 'rm -rf --one-file-system "$root"' EXIT
# unshare(1) ignores SIGTERM while it waits, and kills the command when it is killed.
trap '[ -z "$child" ] || { kill -KILL "$child"; wait "$child" || :; }; exit 1' HUP INT TERM
# In namespaces of its own; a shell answers a signal only once `wait` returns, and ends the command with it.
apart() {
    unshare --mount --propagation private --pid --fork --kill-child "$@" &
    child=$!
    wait "$child"
}
mirror=$(cd "$top/tests/e2e" && python3 -B -c 'from testbed import debian; print(debian.mirror())')
apart mmdebstrap --mode=root --variant=minbase --quiet \
    --include=ca-certificates,git,make,gcc,libc6-dev bookworm "$root" "$mirror"
# A site's own authority.
[ ! -r "${SSL_CERT_FILE:-}" ] || cp "$SSL_CERT_FILE" "$root/etc/ssl/certs/ca-certificates.crt"
git clone --quiet "$top" "$root/root/jobledger"
echo "a bare Debian $(cat "$root/etc/debian_version"), $(rustc --version), $(git -C "$top" describe --always)"
started=$(date +%s)
status=0
apart "$0" --inside "$root" "$@" || status=$?
echo "fresh: make $* ended with $status after $((($(date +%s) - started) / 60)) minutes"
exit "$status"
