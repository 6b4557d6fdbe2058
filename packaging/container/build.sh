#!/bin/bash
# Makes the container image as an OCI archive, target/packages/jobledger-exporter-VERSION-oci.tar, with an image for each architecture:
#
#   packaging/container/build.sh                                 amd64 and arm64, built here for release (packaging/binary.sh)
#   packaging/container/build.sh --architectures arm64           one of them
#   packaging/container/build.sh --binary FILE [--binary FILE]   of binaries that are there, one for each architecture
#   ... --output FILE
#
# Its root is Debian's C library and the licences, taken from the distribution's packages by name, so that no base image is needed. Nothing of
# it is run, so that the other architecture needs no emulator. In each image is the SBOM of what it has, and a copy lies beside the archive.
# As root, with mmdebstrap and buildah. Its name is localhost/jobledger-exporter:VERSION, as the chart asks for it: push.sh gives it another.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC

SUITE=bookworm
PACKAGES=libc6,libgcc-s1
NAME=localhost/jobledger-exporter
architectures="amd64 arm64"
binaries=()
out=
while [ $# -gt 0 ]; do
    case $1 in
    --architectures) architectures=${2//,/ } ;;
    --binary) binaries+=("$(realpath -e "$2")") ;;
    --output) out=$(realpath -m "$2") ;;
    *) echo "usage: $0 [--architectures LIST | --binary FILE...] [--output FILE]" >&2 && exit 64 ;;
    esac
    shift 2
done
# Paths above are the caller's.
cd "$(dirname "$0")/../.."
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
out=${out:-$PWD/target/packages/jobledger-exporter-$version-oci.tar}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
revision=$(git rev-parse HEAD)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
store=(--storage-driver vfs --root "$scratch/store" --runroot "$scratch/runroot")

# By e_machine of its ELF header.
architecture() {
    case $(od -An -t u2 -j 18 -N 2 --endian=little "$1" | tr -d ' ') in
    62) echo amd64 ;;
    183) echo arm64 ;;
    *) echo "$1 is no program for amd64 or arm64" >&2 && return 1 ;;
    esac
}

# The image's root for a binary. Debian's files lie where its loader looks for them.
arrange() {
    local binary=$1 architecture=$2 root=$3 all=$scratch/all-$2 target
    case $architecture in amd64) target=x86_64-unknown-linux-gnu ;; arm64) target=aarch64-unknown-linux-gnu ;; esac
    # The packages' files without running anything of them. mmdebstrap keeps mounts to itself.
    unshare --mount --propagation private mmdebstrap --mode=root --variant=extract --quiet --architectures="$architecture" --include=$PACKAGES \
        "$SUITE" "$all" >&2
    mkdir -p "$root"/{etc,usr/bin,tmp,run} "$root/usr/share/doc/jobledger-exporter"
    (cd "$all" && find . \( -path './usr/share/doc/*/copyright' -o -path './lib/*/ld-linux*' -o -path './lib/ld-linux*' -o -path './lib64/*' \
        -o -name 'libc.so.6' -o -name 'libm.so.6' -o -name 'libdl.so.2' -o -name 'libpthread.so.0' -o -name 'librt.so.1' -o -name 'libgcc_s.so.1' \
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
    python3 packaging/dependencies.py --target "$target" licences >"$root/usr/share/doc/jobledger-exporter/third-party-licences.txt"
    # Versions are those of the packages' changelogs.
    local packages=() name
    for name in ${PACKAGES//,/ }; do
        packages+=(--debian "$name=$(zcat "$all/usr/share/doc/$name/changelog.Debian.gz" | sed -n '1s/.*(\(.*\)).*/\1/p')")
    done
    python3 packaging/dependencies.py --target "$target" "${packages[@]}" sbom >"$root/usr/share/doc/jobledger-exporter/sbom.cdx.json"
    chmod 1777 "$root/tmp"
}

if [ ${#binaries[@]} = 0 ]; then
    for each in $architectures; do
        binaries+=("$(packaging/binary.sh "$each")")
    done
fi
list=$NAME:$version
buildah "${store[@]}" manifest create "$list" >/dev/null
sboms=()
for binary in "${binaries[@]}"; do
    each=$(architecture "$binary")
    context=$scratch/$each
    [ ! -e "$context" ] || { echo "$0: two binaries for $each" >&2 && exit 64; }
    arrange "$binary" "$each" "$context/root"
    # Nothing is run: the architecture is only written down.
    buildah "${store[@]}" build --quiet --format oci --platform "linux/$each" --timestamp "$SOURCE_DATE_EPOCH" \
        --build-arg VERSION="$version" --build-arg REVISION="$revision" --build-arg CREATED="$created" \
        --file packaging/container/Containerfile --manifest "$list" "$context" >/dev/null
    sboms+=("$each")
done
mkdir -p "$(dirname "$out")"
rm -f "$out"
buildah "${store[@]}" manifest push --quiet --all "$list" "oci:$scratch/layout:$list" >&2
# Sorted and with one time, so that the same files make the same archive.
tar --create --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --file="$scratch/archive.tar" --directory="$scratch/layout" .
mv "$scratch/archive.tar" "$out"
for each in "${sboms[@]}"; do
    install -m 644 "$scratch/$each/root/usr/share/doc/jobledger-exporter/sbom.cdx.json" "${out%.tar}-$each.cdx.json"
done
ls -sh "$out"
