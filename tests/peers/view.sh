#!/bin/sh
# Runs a command that sees a crowd's control groups at /sys/fs/cgroup, as on a node of SLURM: view.sh v1|v2 CGROUPFS DIRECTORY COMMAND...
# The mounts are in a namespace of its own and go with the command. DIRECTORY is an empty one.
set -eu
version=$1 cgroupfs=$2 directory=$3
shift 3
if [ "${JOBLEDGER_VIEW:-}" != inside ]; then
    JOBLEDGER_VIEW=inside exec unshare --mount --propagation private "$0" "$version" "$cgroupfs" "$directory" "$@"
fi
unset JOBLEDGER_VIEW
if [ "$version" = v2 ]; then
    mount --bind "$cgroupfs" /sys/fs/cgroup
    exec "$@"
fi
mount -t tmpfs -o mode=755 none "$directory"
for controller in "$cgroupfs"/*; do
    name=${controller##*/}
    mkdir "$directory/$name"
    mount --bind "$(readlink -f "$controller")" "$directory/$name"
done
# By this name on most nodes.
if [ ! -e "$directory/cpu,cpuacct" ]; then
    mkdir "$directory/cpu,cpuacct"
    mount --bind "$(readlink -f "$cgroupfs/cpuacct")" "$directory/cpu,cpuacct"
fi
mount --rbind "$directory" /sys/fs/cgroup
exec "$@"
