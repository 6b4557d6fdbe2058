#!/bin/bash
# Makes the container image as an OCI archive, target/packages/jobledger-exporter-VERSION-oci.tar, of a binary that is there:
#
#   packaging/container/build.sh --binary FILE [--output FILE]
#
# Its root is Debian's C library and the licences, taken from the distribution's packages by name, so that no base image is needed. As root,
# with mmdebstrap and buildah. For the release take the binary that packaging/build.sh makes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
umask 022
export LC_ALL=C TZ=UTC

SUITE=bookworm
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
binary=
out=$PWD/target/packages/jobledger-exporter-$version-oci.tar
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$(realpath "$2") && shift 2 ;;
    --output) out=$(realpath "$2") && shift 2 ;;
    *) echo "usage: $0 --binary FILE [--output FILE]" >&2 && exit 64 ;;
    esac
done
[ -n "$binary" ] || { echo "$0: --binary is missing" >&2 && exit 64; }
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The packages' files without running anything of them. mmdebstrap keeps mounts to itself.
unshare --mount --propagation private mmdebstrap --mode=root --variant=extract --quiet --include=libc6,libgcc-s1 "$SUITE" "$scratch/all" >&2
root=$scratch/context/root
mkdir -p "$root"/{etc,usr/bin,tmp,run} "$root/usr/share/doc/jobledger-exporter"
(cd "$scratch/all" && find . \( -path './usr/share/doc/*/copyright' -o -path './lib/*/ld-linux*' -o -path './lib64/*' -o -name 'libc.so.6' \
    -o -name 'libm.so.6' -o -name 'libdl.so.2' -o -name 'libpthread.so.0' -o -name 'librt.so.1' -o -name 'libgcc_s.so.1' \
    -o -name 'libnss_files.so.2' -o -name 'libnss_dns.so.2' -o -name 'libresolv.so.2' \) \
    ! -type d ! -path './usr/lib32/*' -print0 | tar --null --files-from=- -cf - | tar -xf - -C "$root")
echo 'root:x:0:0:root:/:/nonexistent
nobody:x:65534:65534:nobody:/:/nonexistent' >"$root/etc/passwd"
echo 'root:x:0:
nogroup:x:65534:' >"$root/etc/group"
echo 'passwd: files
group: files
hosts: files dns' >"$root/etc/nsswitch.conf"
install -m 755 "$binary" "$root/usr/bin/jobledger-exporter"
install -m 644 LICENSE-APACHE LICENSE-MIT "$root/usr/share/doc/jobledger-exporter/"
python3 packaging/dependencies.py licences >"$root/usr/share/doc/jobledger-exporter/third-party-licences.txt"
chmod 1777 "$root/tmp"

mkdir -p "$(dirname "$out")"
rm -f "$out"
store=(--storage-driver vfs --root "$scratch/store" --runroot "$scratch/runroot")
buildah "${store[@]}" build --quiet --format oci --timestamp "$SOURCE_DATE_EPOCH" \
    --build-arg VERSION="$version" --build-arg REVISION="$(git rev-parse HEAD)" \
    --build-arg CREATED="$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" \
    --file packaging/container/Containerfile --tag "jobledger-exporter:$version" "$scratch/context" >&2
buildah "${store[@]}" push --quiet "jobledger-exporter:$version" "oci-archive:$out:$version" >&2
ls -sh "$out"
