#!/bin/sh
# SLURM's mail with the report of the job in it (docs/mail.md): MailProg=/usr/share/jobledger/slurmctld/jobledger-mail.sh
#
# slurmctld starts it with -s SUBJECT RECIPIENT, waits for two minutes at most and has few threads for mails (MAIL_PROG_TIMEOUT,
# src/slurmctld/agent.c). What the nodes measured is in Prometheus after their next scrape. So the mail waits in the spool of
# jobledger-spool.service. Errors are in syslog.
#
# A user writes the recipient and the job's name, and this is SlurmUser: they are never options.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
settings=${JOBLEDGER_SETTINGS:-/etc/default/jobledger-slurm}
# shellcheck source=/dev/null
if [ -r "$settings" ]; then . "$settings"; fi

if [ $# -ne 3 ] || [ "$1" != -s ]; then
    echo "usage: $0 -s SUBJECT RECIPIENT" >&2
    exit 64
fi
jobledger mail --spool --subject="$2" -- "$3" 2>&1 >/dev/null | logger -t jobledger-mail
exit 0
