#!/bin/sh
# What jobledger-spool.service starts: with the settings of the other scripts (docs/mail.md).

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
settings=${JOBLEDGER_SETTINGS:-/etc/default/jobledger-slurm}
# shellcheck source=/dev/null
if [ -r "$settings" ]; then . "$settings"; fi

exec jobledger spool
