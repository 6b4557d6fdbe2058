#!/bin/sh
# Stores what a job used in SLURM's AdminComment, as jobstats does, for jobstats itself, Job Defense Shield, reportseff and Open OnDemand
# (docs/mail.md): EpilogSlurmctld=/usr/share/jobledger/slurmctld/jobledger-admincomment.sh
#
# The job is completing for slurmctld until this ends. So jobledger-spool.service does it later. Errors are in syslog.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
settings=${JOBLEDGER_SETTINGS:-/etc/default/jobledger-slurm}
# shellcheck source=/dev/null
if [ -r "$settings" ]; then . "$settings"; fi

jobledger admin-comment --spool 2>&1 >/dev/null | logger -t jobledger-admincomment
exit 0
