#!/bin/bash
# Makes the packages in target/packages: deb, rpm, the plain binaries, the mixin, SBOMs, SHA256SUMS. Other files in that directory are not touched,
# and only what was made is in the sums.
#
# JOBLEDGER_SIGNING_KEY has SHA256SUMS signed, and with it everything else (SHA256SUMS.asc, OpenPGP): the fingerprint of a key that gpg
# has, or a file with a secret key. Without it nothing is signed, and that is said.
#
#   packaging/build.sh                    for release: of packaging/binary.sh, which builds against an old glibc
#   packaging/build.sh --binary FILE      of an exporter that is there, for a look and for the tests; jobledger is beside it, or --cli FILE
#   ... --only deb|rpm --output DIR --glibc VERSION (refused if a binary needs a later one) --level 0 (of xz, for tests: it compresses little, soon)
#
# Same sources, same bytes: times are SOURCE_DATE_EPOCH (the last commit unless set), nothing of the machine gets in. Needs Debian's debhelper
# and rpm; for release also what binary.sh needs.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC

MAINTAINER=${JOBLEDGER_MAINTAINER:-Jobledger developers <packages@jobledger.invalid>}

out=$PWD/target/packages
binary=
cli=
only=
promised=
level=
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$(realpath -e "$2") ;;
    --cli) cli=$(realpath -e "$2") ;;
    --output) mkdir -p "$2" && out=$(realpath "$2") ;;
    --only) only=$2 ;;
    --glibc) promised=$2 ;;
    --level) level=$2 ;;
    *) echo "usage: $0 [--binary FILE] [--cli FILE] [--only deb|rpm] [--output DIR] [--glibc VERSION] [--level LEVEL]" >&2 && exit 64 ;;
    esac
    shift 2
done
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The latest version of glibc that a binary asks for.
needs_glibc() {
    objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1
}

# Everything that is in a package, in the order of the tree that both kinds are made from.
arrange() {
    local tree=$1
    install -D -m 755 "$binary" "$tree/bin/jobledger-exporter"
    install -D -m 755 "$cli" "$tree/bin/jobledger"
    install -D -m 644 -t "$tree/systemd" packaging/systemd/jobledger-exporter.service
    install -D -m 644 -t "$tree/sysusers.d" packaging/sysusers.d/jobledger.conf
    install -D -m 644 -t "$tree/tmpfiles.d" packaging/tmpfiles.d/jobledger.conf
    install -D -m 644 -t "$tree/etc/default" packaging/default/jobledger-exporter
    install -D -m 644 -t "$tree/man/exporter" packaging/man/jobledger-exporter.1
    install -D -m 644 -t "$tree/man/cli" packaging/man/*.1
    rm "$tree/man/cli/jobledger-exporter.1"
    for program in jobledger-exporter jobledger; do
        install -D -m 644 "packaging/completions/$program.bash" "$tree/completions/$program"
        install -D -m 644 -t "$tree/completions" "packaging/completions/_$program" "packaging/completions/$program.fish"
    done
    install -D -m 644 -t "$tree/licences" LICENSE-APACHE LICENSE-MIT
    install -D -m 644 -t "$tree/share/systemd" packaging/systemd/drop-ins/*.conf
    install -D -m 755 -t "$tree/share/slurm/prolog.d" slurm/prolog.d/*.sh
    install -D -m 755 -t "$tree/share/slurm/epilog.d" slurm/epilog.d/*.sh
    install -D -m 644 -t "$tree/share/slurm" slurm/job_submit.lua
    install -D -m 755 -t "$tree/share/slurmctld" slurm/slurmctld/*.sh
    install -D -m 644 -t "$tree/share/systemd-digest" packaging/systemd/digest/*
    install -D -m 644 -t "$tree/share/systemd-spool" packaging/systemd/spool/*
    install -D -m 644 -t "$tree/doc/exporter" CHANGELOG.md README.md SECURITY.md
    install -D -m 644 -t "$tree/doc/exporter/docs" docs/*.md
    install -D -m 644 -t "$tree/doc/cli" CHANGELOG.md packaging/jobledger.toml.example packaging/digest.toml.example
    install -D -m 644 -t "$tree/doc/cli/docs" docs/cli.md docs/cli-flags.md docs/digest.md docs/export.md docs/hdf5.md docs/mail.md docs/record.md docs/report.md
    python3 packaging/dependencies.py licences >"$tree/doc/exporter/third-party-licences.txt"
    python3 packaging/dependencies.py --program jobledger licences >"$tree/doc/cli/third-party-licences.txt"

    # What a site edits is in /etc.
    packaging/monitoring.sh "$tree/share"
    mkdir -p "$tree/etc/jobledger/rules" "$tree/doc/monitoring"
    mv "$tree/share/rules/site.yaml" "$tree/share/rules/alerts/settings.yaml" "$tree/etc/jobledger/rules/"
    mv "$tree/share/rules"/*.md "$tree/doc/monitoring/"
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# Debian's packages of the libraries that a binary is linked with.
libraries() {
    echo -n "libc6 (>= $(needs_glibc "$1"))"
    # Unwinding is zig's own in a release, and the compiler's library elsewhere.
    # Read to its end: grep -q would leave objdump a broken pipe, which pipefail takes for "not found".
    if objdump -p "$1" | grep 'NEEDED *libgcc_s' >/dev/null; then
        echo -n ", libgcc-s1"
    fi
}

make_deb() {
    local tree=$1
    cp -r packaging/debian "$tree/debian"
    sed -i "s|@MAINTAINER@|$MAINTAINER|; s|@LIBRARIES@|$(libraries "$binary")|; s|@CLI_LIBRARIES@|$(libraries "$cli")|" "$tree/debian/control"
    printf 'jobledger (%s-1) unstable; urgency=medium\n\n  * New release: see changelog.gz.\n\n -- %s  %s\n' \
        "$version" "$MAINTAINER" "$(date -R -d "@$SOURCE_DATE_EPOCH")" >"$tree/debian/changelog"
    # The licence as the format of debian/copyright wants it.
    { sed '/^@MIT@$/,$d' packaging/debian/copyright && echo 'License: Expat' && sed '1,4d; s/^$/./; s/^/ /' LICENSE-MIT; } >"$tree/debian/copyright"
    mkdir -p "$tree/debian/source"
    echo '3.0 (quilt)' >"$tree/debian/source/format"
    cp "$tree/systemd/jobledger-exporter.service" "$tree/debian/jobledger-exporter.service"
    cp "$tree/sysusers.d/jobledger.conf" "$tree/debian/jobledger-exporter.sysusers"
    cp "$tree/tmpfiles.d/jobledger.conf" "$tree/debian/jobledger-exporter.tmpfiles"
    (cd "$tree" && DPKG_DEB_COMPRESSOR_LEVEL=${level:-6} dpkg-buildpackage --build=binary --unsigned-changes --no-check-builddeps) >"$scratch/deb.log" 2>&1 ||
        { cat "$scratch/deb.log" >&2 && return 1; }
    cp "$scratch"/*.deb "$made/"
}

make_rpm() {
    local tree=$1
    rpmbuild -bb --quiet --define "_topdir $scratch/rpm" --define "_rpmdir $scratch/rpms" --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
        --define "jobledger_payload w${level:-7}.xzdio" --define "jobledger_version $version" --define "jobledger_tree $tree" --define "jobledger_maintainer $MAINTAINER" \
        --define "jobledger_changelog_date $(date '+%a %b %d %Y' -d "@$SOURCE_DATE_EPOCH")" packaging/rpm/jobledger.spec >"$scratch/rpm.log" 2>&1 ||
        { cat "$scratch/rpm.log" >&2 && return 1; }
    cp "$scratch"/rpms/*.rpm "$made/"
}

# A signature that stands beside the file.
sign() {
    local key=$JOBLEDGER_SIGNING_KEY
    if [ -f "$key" ]; then
        # A keyring for this one key. Its agent ends with the directory.
        mkdir -m 700 "$scratch/keys"
        export GNUPGHOME=$scratch/keys
        gpg --batch --quiet --import "$key" || return 1
        key=$(gpg --batch --with-colons --list-secret-keys | sed -n 's/^fpr:*\([0-9A-F]*\):$/\1/p' | head -n 1)
    fi
    gpg --batch --yes --quiet --local-user "$key" --digest-algo SHA256 --armor --output "$1.asc" --detach-sign "$1"
}

if [ -z "$binary" ]; then
    binary=$(packaging/binary.sh)
    cli=$(packaging/binary.sh --program jobledger)
fi
cli=$(realpath -e "${cli:-$(dirname "$binary")/jobledger}")
needed=$({ needs_glibc "$binary" && needs_glibc "$cli"; } | sort -V | tail -n 1)
if [ -n "$promised" ] && [ "$(printf '%s\n' "$needed" "$promised" | sort -V | tail -n 1)" != "$promised" ]; then
    echo "a binary needs glibc $needed, and $promised is promised" >&2
    exit 1
fi
# Complete before anything in the output is touched: that may be a pool, or hold the binary itself.
made=$scratch/made
mkdir "$made"
arrange "$scratch/tree"
cp -a "$scratch/tree" "$scratch/deb-tree"
[ "$only" = rpm ] || make_deb "$scratch/deb-tree"
[ "$only" = deb ] || make_rpm "$scratch/tree"
packaging/mixin.sh --output "$made" >/dev/null
python3 packaging/dependencies.py sbom >"$made/jobledger-exporter.cdx.json"
python3 packaging/dependencies.py --program jobledger sbom >"$made/jobledger.cdx.json"
install -m 755 "$binary" "$made/jobledger-exporter-$version-$(uname -m)-linux-gnu"
install -m 755 "$cli" "$made/jobledger-$version-$(uname -m)-linux-gnu"
(cd "$made" && sha256sum -- * >"$scratch/SHA256SUMS" && mv "$scratch/SHA256SUMS" .)
if [ -n "${JOBLEDGER_SIGNING_KEY:-}" ]; then
    sign "$made/SHA256SUMS" || { echo "cannot sign with the key $JOBLEDGER_SIGNING_KEY" >&2 && exit 1; }
    signed="signed: SHA256SUMS.asc"
else
    signed="not signed: JOBLEDGER_SIGNING_KEY names no key"
fi
mkdir -p "$out"
# One of an earlier build would not fit.
rm -f "$out/SHA256SUMS.asc"
cp --remove-destination "$made"/* "$out/"
echo "$out: glibc $needed or later; $signed"
ls -1sh "$made"
