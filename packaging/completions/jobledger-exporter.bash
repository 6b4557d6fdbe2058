_jobledger__exporter() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="jobledger__exporter"
                ;;
            jobledger__exporter,counters)
                cmd="jobledger__exporter__subcmd__counters"
                ;;
            jobledger__exporter,generate)
                cmd="jobledger__exporter__subcmd__generate"
                ;;
            jobledger__exporter,gpu)
                cmd="jobledger__exporter__subcmd__gpu"
                ;;
            jobledger__exporter,help)
                cmd="jobledger__exporter__subcmd__help"
                ;;
            jobledger__exporter,perf)
                cmd="jobledger__exporter__subcmd__perf"
                ;;
            jobledger__exporter__subcmd__help,counters)
                cmd="jobledger__exporter__subcmd__help__subcmd__counters"
                ;;
            jobledger__exporter__subcmd__help,generate)
                cmd="jobledger__exporter__subcmd__help__subcmd__generate"
                ;;
            jobledger__exporter__subcmd__help,gpu)
                cmd="jobledger__exporter__subcmd__help__subcmd__gpu"
                ;;
            jobledger__exporter__subcmd__help,help)
                cmd="jobledger__exporter__subcmd__help__subcmd__help"
                ;;
            jobledger__exporter__subcmd__help,perf)
                cmd="jobledger__exporter__subcmd__help__subcmd__perf"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        jobledger__exporter)
            opts="-h -V --once --check --log.level --log.format --control.socket --state.file --state.descriptors --security.no-drop --security.user --security.no-landlock --security.no-seccomp --web.listen-address --web.systemd-socket --web.config.file --web.telemetry-path --web.max-requests --web.max-connections --web.scrapers --web.timeout-offset --path.procfs --path.sysfs --path.cgroupfs --path.dev --scrape.min-interval --scrape.timeout --jobs.retention --jobs.retention-max --jobs.readers --jobs.stale-after --jobs.descriptors --jobs.steps --jobs.tasks --jobs.metadata-dir --jobs.environment-hints --metric.job-labels --metric.profile --metric.created --metric.max-series --collector.disable-defaults --collector.job --no-collector.job --collector.cpu --no-collector.cpu --collector.cpuset --no-collector.cpuset --collector.memory --no-collector.memory --collector.pressure --no-collector.pressure --collector.io --no-collector.io --collector.network --no-collector.network --collector.processes --no-collector.processes --collector.procio --no-collector.procio --collector.procsum --no-collector.procsum --collector.perf --no-collector.perf --collector.perf.plan --collector.perf.groups --collector.perf.events-file --collector.perf.method --collector.perf.most-descriptors --collector.perf.mux-interval --collector.energy --no-collector.energy --collector.energy.idle-watts --collector.energy.redfish-url --collector.energy.redfish-credentials --collector.energy.redfish-ca --collector.energy.redfish-certificate --collector.memory_traffic --no-collector.memory_traffic --collector.memory-traffic.resctrl --collector.gpu --no-collector.gpu --collector.gpu.period --collector.gpu.processes --collector.gpu.nvml-library --collector.gpu.peaks-file --collector.gpu.gpustat-dir --collector.gpu.job-mapping-dir --collector.gpu.gres-order --security.no-device-helper --collector.owners --no-collector.owners --owner.labels --owner.limit --owner.co2-grams-per-kwh --collector.counters --no-collector.counters --counters.lock-file --collector.node_cpu --no-collector.node_cpu --collector.node_memory --no-collector.node_memory --collector.node_load --no-collector.node_load --collector.node_network --no-collector.node_network --collector.node_pressure --no-collector.node_pressure --collector.node_cpufreq --no-collector.node_cpufreq --collector.node_hardware --no-collector.node_hardware --collector.node_validation --no-collector.node_validation --counters.results-file --collector.infiniband --no-collector.infiniband --collector.slingshot --no-collector.slingshot --collector.node_disk --no-collector.node_disk --collector.nfs --no-collector.nfs --collector.lustre --no-collector.lustre --collector.exporter --no-collector.exporter --help --version gpu perf counters generate help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --log.level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                --log.format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --control.socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state.descriptors)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --security.user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.listen-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.config.file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.telemetry-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.max-requests)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.max-connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.scrapers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --web.timeout-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.procfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.sysfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.cgroupfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.dev)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scrape.min-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scrape.timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jobs.retention)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jobs.retention-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jobs.readers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jobs.stale-after)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jobs.descriptors)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jobs.metadata-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metric.job-labels)
                    COMPREPLY=($(compgen -W "user account partition qos" -- "${cur}"))
                    return 0
                    ;;
                --metric.profile)
                    COMPREPLY=($(compgen -W "lean standard full" -- "${cur}"))
                    return 0
                    ;;
                --metric.max-series)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.job)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.cpu)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.cpuset)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.memory)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.pressure)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.io)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.network)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.processes)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.procio)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.procsum)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.perf)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.perf.plan)
                    COMPREPLY=($(compgen -W "essential full" -- "${cur}"))
                    return 0
                    ;;
                --collector.perf.groups)
                    COMPREPLY=($(compgen -W "flops memory topdown cache branches software" -- "${cur}"))
                    return 0
                    ;;
                --collector.perf.events-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.perf.method)
                    COMPREPLY=($(compgen -W "auto cgroup bpf" -- "${cur}"))
                    return 0
                    ;;
                --collector.perf.most-descriptors)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.perf.mux-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.energy)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.energy.idle-watts)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.energy.redfish-url)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.energy.redfish-credentials)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.energy.redfish-ca)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.energy.redfish-certificate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.memory_traffic)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.gpu)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.gpu.period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.gpu.nvml-library)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.gpu.peaks-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.gpu.gpustat-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.gpu.job-mapping-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.gpu.gres-order)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.owners)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --owner.labels)
                    COMPREPLY=($(compgen -W "user account partition qos none" -- "${cur}"))
                    return 0
                    ;;
                --owner.limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --owner.co2-grams-per-kwh)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.counters)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --counters.lock-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.node_cpu)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.node_memory)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.node_load)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.node_network)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.node_pressure)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.node_cpufreq)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.node_hardware)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.node_validation)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --counters.results-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --collector.infiniband)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.slingshot)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.node_disk)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.nfs)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.lustre)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --collector.exporter)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        jobledger__subcmd__exporter__subcmd__counters)
            opts="-h --for --control.socket --help yield resume status"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --control.socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        jobledger__subcmd__exporter__subcmd__generate)
            opts="-h --help flags metrics man bash zsh fish elvish"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        jobledger__subcmd__exporter__subcmd__gpu)
            opts="-h --control.socket --help release resume"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --control.socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        jobledger__subcmd__exporter__subcmd__help)
            opts="gpu perf counters generate help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        jobledger__subcmd__exporter__subcmd__help__subcmd__counters)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        jobledger__subcmd__exporter__subcmd__help__subcmd__generate)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        jobledger__subcmd__exporter__subcmd__help__subcmd__gpu)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        jobledger__subcmd__exporter__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        jobledger__subcmd__exporter__subcmd__help__subcmd__perf)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        jobledger__subcmd__exporter__subcmd__perf)
            opts="-h --microarchitecture --list --plan --smt --nmi-watchdog --events-file --validate --peaks --cpus --time --output --although-busy --counters.lock-file --format --path.procfs --path.sysfs --path.cgroupfs --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --microarchitecture)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --plan)
                    COMPREPLY=($(compgen -W "essential full" -- "${cur}"))
                    return 0
                    ;;
                --smt)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --nmi-watchdog)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --events-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --counters.lock-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --path.procfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.sysfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path.cgroupfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _jobledger__exporter -o nosort -o bashdefault -o default jobledger-exporter
else
    complete -F _jobledger__exporter -o bashdefault -o default jobledger-exporter
fi
