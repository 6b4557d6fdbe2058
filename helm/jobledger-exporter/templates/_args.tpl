{{/* The command line, a JSON list. */}}
{{- define "jobledger.args" -}}
{{- $v := .Values -}}
{{- /* In brackets, since it may be of IPv6; the exporter takes either family there. */ -}}
{{- $host := ternary "[$(HOST_IP)]" "" (eq $v.web.listenOn "host") -}}
{{- /* Not at /proc and /sys: runtimes put the container's own there, and mask parts of it (powercap). */ -}}
{{- $args := list "--path.procfs=/host/proc" "--path.sysfs=/host/sys" "--path.cgroupfs=/host/sys/fs/cgroup" -}}
{{- if eq $v.gpu.nvidia "none" -}}
{{- /* NVIDIA's library opens the container's own /dev, and what may be written there is kept apart by this path. */ -}}
{{- $args = append $args "--path.dev=/host/dev" -}}
{{- end -}}
{{- $args = append $args (printf "--web.listen-address=%s:%d" $host (int $v.web.port)) -}}
{{- $args = append $args (printf "--web.telemetry-path=%s" $v.web.telemetryPath) -}}
{{- $args = append $args (printf "--web.max-requests=%d" (int $v.web.maxRequests)) -}}
{{- if include "jobledger.webConfigSecret" . -}}
{{- $args = append $args "--web.config.file=/etc/jobledger/web/web-config.yml" -}}
{{- end -}}
{{- $args = concat $args (list (printf "--log.level=%s" $v.log.level) (printf "--log.format=%s" $v.log.format)) -}}
{{- if not $v.options.orders -}}
{{- $args = append $args "--jobs.metadata-dir=/host/run/jobledger/jobs" -}}
{{- end -}}
{{- $args = concat $args (list (printf "--jobs.retention=%s" $v.jobs.retention) (printf "--jobs.stale-after=%s" $v.jobs.staleAfter)) -}}
{{- $args = append $args "--state.file=/run/jobledger-state/state" -}}
{{- if $v.jobs.steps }}{{ $args = append $args "--jobs.steps" }}{{ end -}}
{{- if $v.jobs.tasks }}{{ $args = append $args "--jobs.tasks" }}{{ end -}}
{{- if $v.options.environmentHints }}{{ $args = append $args "--jobs.environment-hints" }}{{ end -}}
{{- with $v.jobs.labels }}{{ $args = append $args (printf "--metric.job-labels=%s" (join "," .)) }}{{ end -}}
{{- $args = append $args (printf "--metric.profile=%s" $v.metricProfile) -}}
{{- $args = append $args (printf "--metric.max-series=%d" (int $v.maxSeries)) -}}
{{- range $name, $on := $v.collectors -}}
{{- $args = append $args (printf "--%scollector.%s" (ternary "" "no-" $on) $name) -}}
{{- end -}}
{{- if ne (get $v.collectors "gpu" | toString) "false" -}}
{{- $args = append $args (printf "--collector.gpu.period=%s" $v.gpu.period) -}}
{{- if $v.gpu.processes }}{{ $args = append $args "--collector.gpu.processes" }}{{ end -}}
{{- with $v.gpu.gresOrder }}{{ $args = append $args (printf "--collector.gpu.gres-order=%s" (join "," .)) }}{{ end -}}
{{- if eq $v.gpu.nvidia "hostPath" }}{{ $args = append $args "--collector.gpu.nvml-library=/host/nvidia/libnvidia-ml.so.1" }}{{ end -}}
{{- if $v.gpu.gpustat }}{{ $args = append $args "--collector.gpu.gpustat-dir=/host/run/gpustat" }}{{ end -}}
{{- if $v.gpu.jobMappingHostPath }}{{ $args = append $args "--collector.gpu.job-mapping-dir=/host/job-mapping" }}{{ end -}}
{{- end -}}
{{- if $v.options.resctrl }}{{ $args = append $args "--collector.memory-traffic.resctrl" }}{{ end -}}
{{- if not $v.options.deviceHelper }}{{ $args = append $args "--security.no-device-helper" }}{{ end -}}
{{- if $v.host.lockDirectory }}{{ $args = append $args "--counters.lock-file=/host/lock/likwid.lock" }}{{ end -}}
{{- concat $args $v.extraArgs | toJson -}}
{{- end -}}
