#!/bin/sh
# Jobledger's part of slurmd's Epilog: removes the file that prolog.d/jobledger.sh wrote for the job
# (docs/metadata.md). Same ways to use it, same promises: exit status 0, no output, no waiting.

exec </dev/null >/dev/null 2>&1
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL

main() {
    id=${SLURM_JOB_ID:-${SLURM_JOBID-}}
    case $id in '' | *[!0-9]* | 0* | ?????????????????????*) return ;; esac

    JOBLEDGER_DIR=/run/jobledger
    settings=${JOBLEDGER_SETTINGS:-/etc/default/jobledger-slurm}
    # shellcheck source=/dev/null
    if [ -r "$settings" ]; then . "$settings"; fi
    dir=$JOBLEDGER_DIR/jobs
    [ -d "$dir" ] && [ ! -L "$dir" ] && [ ! -L "$JOBLEDGER_DIR" ] || return

    # Where several slurmd share this host, the file is that of the node whose prolog wrote last: one that ends
    # earlier leaves it to the other.
    node=''
    if [ -f "$dir/$id" ] && [ ! -L "$dir/$id" ]; then
        while IFS= read -r line; do
            case $line in node=*) node=${line#node=} ;; esac
        done <"$dir/$id"
    fi
    if [ "$node" = "${SLURMD_NODENAME:-$node}" ] || [ -z "$node" ]; then rm -f "$dir/$id"; fi
    # What a prolog left that was killed half-way.
    rm -f "$dir/.$id".*
}

(main)
exit 0
