{{/* A number as PromQL has it: whole ones without an exponent. */}}
{{- define "jobledger.number" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if eq (float64 .) (floor .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* The exclusion of jobs, in the form that alerts/settings.yaml has it: {partition: [a, b]} selects partition=~"a|b". */}}
{{- define "jobledger.excluded" -}}
{{- $lines := list -}}
{{- range $label, $patterns := . -}}
{{- with $patterns -}}
{{- $lines = append $lines (printf "    jobledger_job_info{%s=~\"%s\"}" $label (join "|" .)) -}}
{{- end -}}
{{- end -}}
{{- if $lines -}}
group by (cluster, job, instance, slurm_node, jobid) (
{{ join "\n  or\n" $lines }}
)
{{- else -}}
group by (cluster, job, instance, slurm_node, jobid) (jobledger_job_info{jobid=""})
{{- end -}}
{{- end -}}

{{/* Files of rules that are on, a JSON list: those of values, else `site`, recording/ and alerts/. */}}
{{- define "jobledger.ruleFiles" -}}
{{- $files := list -}}
{{- range $path, $_ := .Files.Glob "files/rules/**.yaml" -}}
{{- $file := trimPrefix "files/rules/" $path | trimSuffix ".yaml" -}}
{{- $on := or (eq $file "site") (hasPrefix "recording/" $file) (hasPrefix "alerts/" $file) -}}
{{- if hasKey $.Values.rules.files $file }}{{ $on = get $.Values.rules.files $file }}{{ end -}}
{{- if $on }}{{ $files = append $files $file }}{{ end -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{/* {file: [files that it reads and that are off]}. */}}
{{- define "jobledger.rulesMissing" -}}
{{- $on := include "jobledger.ruleFiles" . | fromJsonArray -}}
{{- $missing := dict -}}
{{- range $file, $needs := .Files.Get "files/needs.json" | fromJson -}}
{{- if has $file $on -}}
{{- range $need := $needs }}{{ if not (has $need $on) }}{{ $_ := set $missing $file (append (get $missing $file | default list) $need) }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toYaml $missing -}}
{{- end -}}

{{/* Name of what there is once per Prometheus or Grafana. It has no release in it, so that Helm refuses a second one in the namespace. */}}
{{- define "jobledger.sharedName" -}}
{{- printf "jobledger-%s" (. | lower | replace "/" "-" | replace "_" "-" | trimPrefix "jobledger-" | replace "dashboard-jobledger-" "dashboard-") | trunc 253 -}}
{{- end -}}

{{- define "jobledger.alertmanagerNamespace" -}}
{{- default .Release.Namespace .Values.alertmanagerConfig.namespace -}}
{{- end -}}

{{/* Takes {rule, root}: the rule with the site's changes; empty if its alert is switched off. */}}
{{- define "jobledger.rule" -}}
{{- $rule := .rule -}}
{{- $root := .root -}}
{{- $v := .root.Values.rules -}}
{{- $off := false -}}
{{- if $rule.alert -}}
{{- $own := get $v.alerts $rule.alert | default dict -}}
{{- $off = eq (get $own "enabled" | toString) "false" -}}
{{- with $own.for }}{{ $_ := set $rule "for" . }}{{ end -}}
{{- with $v.runbookUrl -}}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s.md" . $rule.alert) -}}
{{- end -}}
{{- with $v.grafanaUrl -}}
{{- range $name, $text := $rule.annotations }}{{ $_ := set $rule.annotations $name (replace "https://grafana.example.org" $v.grafanaUrl $text) }}{{ end -}}
{{- end -}}
{{- $severity := ternary (dict "severity" $own.severity) dict (hasKey $own "severity") -}}
{{- $_ := set $rule "labels" (merge (deepCopy ($own.labels | default dict)) $severity $rule.labels $v.alertLabels) -}}
{{- with .root.Values.alertmanagerConfig -}}
{{- if and .enabled .labelNamespace }}{{ $_ := set $rule.labels "namespace" (include "jobledger.alertmanagerNamespace" $root) }}{{ end -}}
{{- end -}}
{{- $_ := set $rule "annotations" (merge (deepCopy ($own.annotations | default dict)) $rule.annotations $v.alertAnnotations) -}}
{{- else if hasPrefix "jobledger:alert_setting:" $rule.record -}}
{{- $name := trimPrefix "jobledger:alert_setting:" $rule.record -}}
{{- if hasKey $v.settings $name }}{{ $_ := set $rule "expr" (printf "vector(%s)" (include "jobledger.number" (get $v.settings $name))) }}{{ end -}}
{{- else if eq $rule.record "jobledger:alert_job:excluded" -}}
{{- with $v.excludedJobs }}{{ $_ := set $rule "expr" (include "jobledger.excluded" .) }}{{ end -}}
{{- else if or (eq $rule.record "jobledger:carbon_intensity:grams_per_kwh") (eq $rule.record "jobledger:power_usage_effectiveness:ratio") -}}
{{- $set := ternary $v.carbonIntensity $v.powerUsageEffectiveness (hasPrefix "jobledger:carbon" $rule.record) -}}
{{- if not (kindIs "invalid" $set) -}}
{{- $number := include "jobledger.number" $set -}}
{{- $_ := set $rule "expr" (ternary $number (printf "vector(%s)" $number) (kindIs "string" $set)) -}}
{{- if hasKey $rule "labels" }}{{ $_ := set $rule.labels "source" "values.yaml" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if not $off }}{{ toYaml $rule }}{{ end -}}
{{- end -}}
