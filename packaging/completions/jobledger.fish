# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_jobledger_global_optspecs
    string join \n url= http.config.file= cluster= config= since= until= tz= timeout= no-sacct v/verbose color= width= ascii= h/help V/version
end

function __fish_jobledger_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_jobledger_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_jobledger_using_subcommand
    set -l cmd (__fish_jobledger_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c jobledger -n "__fish_jobledger_needs_command" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_needs_command" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_needs_command" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_needs_command" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_needs_command" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_needs_command" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_needs_command" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_needs_command" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_needs_command" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_needs_command" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_needs_command" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_needs_command" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_needs_command" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_needs_command" -s V -l version -d 'Print version'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "report" -d 'What jobs used of what they had, and what to change'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "list" -d 'Jobs, a line each'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "array" -d 'How the elements of an array differ'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "compare" -d 'Jobs side by side, and how well they scale'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "waste" -d 'What ended jobs held and did not use'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "usage" -d 'What users, accounts, partitions or nodes held and used, from the counters of owners'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "top" -d 'What running jobs do now, live'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "export" -d 'A job\'s data as a file for other programs'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "record" -d 'Records what the node\'s exporter shows of the job that this runs in, for reports and exports without a server'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "snapshot" -d 'What the job that this runs in used on this node so far, as a line of JSON'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "mail" -d 'SLURM\'s mail of a job, with its report: what MailProg of slurm.conf starts'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "admin-comment" -d 'Stores what a job used in SLURM\'s AdminComment: what EpilogSlurmctld of slurm.conf starts'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "spool" -d 'Does what mail --spool and admin-comment --spool left to it, until it is ended: a service'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "digest" -d 'Mails users what their ended jobs wasted, by a file of policies'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "idle-gpus" -d 'Mails users whose running jobs have idle GPUs, and cancels such jobs where the site wants that'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "check" -d 'What of this program works here, and what would change it'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "completions" -d 'Completions for a shell'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "man" -d 'The man page of this program, or of a command'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "flags" -d 'The page docs/cli-flags.md'
complete -c jobledger -n "__fish_jobledger_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -s f -l format -d 'How it is shown [default: as the ending of --output says, without one text]' -r -f -a "text\t'For a terminal'
json\t'All that is known'
markdown\t'For tickets and wikis'
html\t'A page with plots for a browser, in one file'
pdf\t'The same for paper'
seff\t'The lines of seff'
jobstats\t'The page of jobstats'
jobstats-json\t'What jobstats --json prints'
jobstats-blob\t'What jobstats stores in SLURM\'s AdminComment'"
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -s o -l output -d 'Writes to a file instead of the standard output. Its ending says the format: .txt, .json, .md, .html, .pdf' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l run -d 'Which run of a requeued job, from 1 [default: the last]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l wait -d 'Waits until the job\'s end was scraped, so many seconds at most' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l recording -d 'From these files of record instead of a server' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -s u -l user -d 'Jobs of this user, or all [default: your own]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -s A -l account -d 'Jobs of this account' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -s p -l partition -d 'Jobs in this partition' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -s a -l array -d 'Elements of this array' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -s s -l state -d 'Jobs that run, or that ended' -r -f -a "running\t'Running'
ended\t'Ended'"
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -s f -l format -d 'How they are listed' -r -f -a "text\t'A table'
parsable\t'Fields with | between them, as sacct --parsable2; seconds, bytes, joules, and ratios of 0 to 1'
json\t'JSON'"
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -s c -l columns -d 'Which columns, in their order: job, user, account, partition, name, state, start, elapsed, nodes, cpus, cpu, memory, peak, gpus, gpu, time, energy, advice' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -s f -l format -d 'How it is shown' -r -f -a "text\t'Histograms'
json\t'JSON'"
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand array" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -s f -l format -d 'How they are shown' -r -f -a "text\t'A table'
parsable\t'Fields with | between them, as sacct --parsable2; seconds, bytes, joules, and ratios of 0 to 1'
json\t'JSON'"
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand compare" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -s b -l by -d 'What is added up' -r -f -a "job\t'Each job'
user\t'Users'
account\t'Accounts'
partition\t'Partitions'"
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -s k -l kind -d 'What the most of comes first' -r -f -a "cpu\t'Cores that did not work'
gpu\t'GPUs on which nothing ran'
memory\t'Memory above the highest peak of a node'"
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -s n -l top -d 'How many are shown' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -s u -l user -d 'Jobs of this user [default: all that you may see]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -s A -l account -d 'Jobs of this account' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -s p -l partition -d 'Jobs in this partition' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -s f -l format -d 'How it is shown' -r -f -a "text\t'A table'
parsable\t'Fields with | between them, as sacct --parsable2; seconds, bytes, joules, and ratios of 0 to 1'
json\t'JSON'"
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand waste" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -s b -l by -d 'What is added up' -r -f -a "user\t'Users'
account\t'Accounts'
partition\t'Partitions'
node\t'Nodes, with what no job can be charged with'"
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -s u -l user -d 'Jobs of this user [default: all that you may see]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -s A -l account -d 'Jobs of this account' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -s p -l partition -d 'Jobs in this partition' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -s f -l format -d 'How it is shown' -r -f -a "table\t'A table with a total'
csv\t'CSV (RFC 4180)'
json\t'JSON'"
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand usage" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -s u -l user -d 'Jobs of this user [default: all that you may see]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -s A -l account -d 'Jobs of this account' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -s p -l partition -d 'Jobs in this partition' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -s s -l sort -d 'What comes first' -r -f -a "idle\t'Idle GPUs, then idle cores'
cores\t'Idle cores'
memory\t'Memory that is held'
power\t'Power'
time\t'The earliest start'
job\t'The number'"
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -s d -l delay -d 'Seconds between two looks' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l over -d 'Minutes over which what jobs use is a mean: some scrapes. Of a younger job it is the mean since its start' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -s 1 -l once -d 'Prints the table once'
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l recording -d 'From these files of record instead of a server' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -s o -l output -d 'The file, whose name says its format: .csv, .parquet, .json, .h5; the directory of the archive with --layout=clustercockpit' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l layout -d 'How the data is laid out: wide or long (.csv, .parquet; wide if not set), slurm (.h5, as SLURM\'s profile plugin), clustercockpit, supremm (.json)' -r -f -a "wide\t'A column for each metric'
long\t'A row for each value'
slurm\t'As SLURM\'s acct_gather_profile/hdf5, for sh5util'
clustercockpit\t'ClusterCockpit\'s job archive'
supremm\t'The summary that XDMoD reads'"
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l by -d 'What a row of .csv and .parquet is of' -r -f -a "node\t'A node'
gpu\t'A GPU'
job\t'The job'
step\t'A step on a node, where the exporter publishes steps'
task\t'A task of a step, where the exporter publishes tasks'"
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -s m -l metrics -d 'Which metrics, by the names of their columns, * stands for any text [default: all]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l step -d 'Seconds between two values [default: 60, of a recording as it was recorded]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l run -d 'Which run of a requeued job, from 1 [default: the last]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l anonymize -d 'Replaces names of users, accounts, jobs and nodes by tokens that follow from the key in this file, 16 bytes or more' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l subcluster -d 'The subcluster in ClusterCockpit\'s archive' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l exclusive -d 'Whether others could have jobs on the nodes, for ClusterCockpit: 0 anybody, 1 nobody, 2 the same user' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l resource-id -d 'The number of the cluster in XDMoD, for SUPReMM' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l force -d 'Writes for ClusterCockpit what its format demands and is not known as 0, with a tag that says so'
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -s i -l interval -d 'Seconds between two readings, which are at multiples of it' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -s o -l output -d 'The file, to which is added; %j is the job and %N the node' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l exporter -d 'The page of the node\'s exporter; also record.exporter in the configuration [default: http://127.0.0.1:9810/metrics]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l job -d 'The job\'s number on the node [default: the job that this runs in]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l whole-node -d 'All series of the node, too'
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l own-cgroup -d 'Reads the job\'s own cgroup, as where no exporter answers'
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand record" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l exporter -d 'The page of the node\'s exporter; also record.exporter in the configuration [default: http://127.0.0.1:9810/metrics]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l job -d 'The job\'s number on the node [default: the job that this runs in]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l own-cgroup -d 'Reads the job\'s own cgroup, as where no exporter answers'
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand snapshot" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -s s -l subject -d 'The subject, as SLURM writes it: it says which job it is and what happened' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l wait -d 'Waits until the job\'s end was scraped, so many seconds at most' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l without-report -d 'Sends it without a report, and says why there is none' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l dry-run -d 'Shows the mail on the standard output and does not send it'
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l spool -d 'Leaves it to `jobledger spool`. Where that does not run, or has too many, it is sent at once, without a report'
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand mail" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l wait -d 'Waits until the job\'s end was scraped, so many seconds at most' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l spool -d 'Leaves it to `jobledger spool`. Where that does not run, or has too many, nothing is stored'
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand admin-comment" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand spool" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l policies -d 'The file of policies' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l only -d 'Of this user alone' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l send -d 'Sends the mails, and does what the policies say'
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l dry-run -d 'Shows the mails and what would be done, and does nothing'
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand digest" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l policies -d 'The file of policies' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l only -d 'Of this user alone' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l send -d 'Sends the mails, and does what the policies say'
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l dry-run -d 'Shows the mails and what would be done, and does nothing'
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand idle-gpus" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l url -d 'The URL of Prometheus, with the path before /api/v1; also $JOBLEDGER_URL, or server.url in the configuration' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l http.config.file -d 'Credentials and TLS for the server, in the format of promtool\'s --http.config.file' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l cluster -d 'The cluster, where the server has several' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l config -d 'Reads this configuration alone, instead of /etc/jobledger/jobledger.toml and ~/.config/jobledger/jobledger.toml' -r -F
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l since -d 'The earliest time to look at: 2026-11-01, 2026-11-01T08:00, or how long ago: 12h, 30d [default: 30d; of list 1d, of waste and digest 7d]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l until -d 'The latest time to look at' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l tz -d 'The time zone of times that are shown and given, such as Europe/Berlin [default: the system\'s]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l timeout -d 'Seconds for a query and its answer' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless $NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l width -d 'Columns of a report as text [default: the terminal\'s, 120 at most; 80 without one]' -r
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l ascii -d 'No characters beyond ASCII in a report as text' -r -f -a "auto\t'Where $LC_ALL, $LC_CTYPE or $LANG names a locale without UTF-8'
always\t'Always'
never\t'Never'"
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -l no-sacct -d 'Does not ask sacct for state, time limit and waiting time'
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -s v -l verbose -d 'Shows each query, with its time and the size of its answer, on the standard error'
complete -c jobledger -n "__fish_jobledger_using_subcommand flags" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "report" -d 'What jobs used of what they had, and what to change'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "list" -d 'Jobs, a line each'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "array" -d 'How the elements of an array differ'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "compare" -d 'Jobs side by side, and how well they scale'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "waste" -d 'What ended jobs held and did not use'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "usage" -d 'What users, accounts, partitions or nodes held and used, from the counters of owners'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "top" -d 'What running jobs do now, live'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "export" -d 'A job\'s data as a file for other programs'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "record" -d 'Records what the node\'s exporter shows of the job that this runs in, for reports and exports without a server'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "snapshot" -d 'What the job that this runs in used on this node so far, as a line of JSON'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "mail" -d 'SLURM\'s mail of a job, with its report: what MailProg of slurm.conf starts'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "admin-comment" -d 'Stores what a job used in SLURM\'s AdminComment: what EpilogSlurmctld of slurm.conf starts'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "spool" -d 'Does what mail --spool and admin-comment --spool left to it, until it is ended: a service'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "digest" -d 'Mails users what their ended jobs wasted, by a file of policies'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "idle-gpus" -d 'Mails users whose running jobs have idle GPUs, and cancels such jobs where the site wants that'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "check" -d 'What of this program works here, and what would change it'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "completions" -d 'Completions for a shell'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "man" -d 'The man page of this program, or of a command'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "flags" -d 'The page docs/cli-flags.md'
complete -c jobledger -n "__fish_jobledger_using_subcommand help; and not __fish_seen_subcommand_from report list array compare waste usage top export record snapshot mail admin-comment spool digest idle-gpus check completions man flags help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
