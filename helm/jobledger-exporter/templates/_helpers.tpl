{{- define "jobledger.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 52 characters, so that what is appended (-dashboard-...) is a name still. */}}
{{- define "jobledger.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "jobledger.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "jobledger.selectorLabels" -}}
app.kubernetes.io/name: {{ include "jobledger.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "jobledger.labels" -}}
{{- $own := dict "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") "app.kubernetes.io/managed-by" .Release.Service "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/part-of" "jobledger" -}}
{{- $selector := include "jobledger.selectorLabels" . | fromYaml -}}
{{- toYaml (merge $selector $own .Values.commonLabels) -}}
{{- end -}}

{{/* The label of the pod of `helm test`, by which the network policy knows it; nothing where there is none. */}}
{{- define "jobledger.testLabels" -}}
{{- if and .Values.daemonset.enabled .Values.service.enabled .Values.test.enabled (not (include "jobledger.clientCertificates" .)) -}}
jobledger-test: {{ include "jobledger.fullname" . }}
{{- end -}}
{{- end -}}

{{- define "jobledger.serviceAccountName" -}}
{{- default (ternary (include "jobledger.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* Takes {image, tag, root}: the digest wins. */}}
{{- define "jobledger.image" -}}
{{- $name := printf "%s/%s" (default .image.registry (.root.Values.global).imageRegistry) .image.repository -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .tag .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What the web configuration has, whoever made it: yes or nothing. */}}
{{- define "jobledger.tls" -}}
{{- with .Values.webConfig }}{{ if or .tls.secretName (and .existingSecret .existingSecretHas.tls) }}yes{{ end }}{{ end -}}
{{- end -}}
{{- define "jobledger.clientCertificates" -}}
{{- with .Values.webConfig }}{{ if or (and .tls.secretName (ne .tls.clientAuth "NoClientCert")) (and .existingSecret .existingSecretHas.clientCertificates) }}yes{{ end }}{{ end -}}
{{- end -}}
{{- define "jobledger.users" -}}
{{- with .Values.webConfig }}{{ if or .basicAuthUsers (and .existingSecret .existingSecretHas.basicAuth) }}yes{{ end }}{{ end -}}
{{- end -}}
{{- define "jobledger.webConfigSecret" -}}
{{- with .Values.webConfig -}}
{{- if .existingSecret -}}
{{- .existingSecret -}}
{{- else if or .tls.secretName .basicAuthUsers -}}
{{- include "jobledger.fullname" $ }}-web
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The file that the chart makes, in the exporter-toolkit's format. */}}
{{- define "jobledger.webConfig" -}}
{{- with .Values.webConfig -}}
{{- if .tls.secretName }}
tls_server_config:
  cert_file: /etc/jobledger/tls/tls.crt
  key_file: /etc/jobledger/tls/tls.key
  min_version: {{ .tls.minVersion }}
  {{- if ne .tls.clientAuth "NoClientCert" }}
  client_auth_type: {{ .tls.clientAuth }}
  client_ca_file: /etc/jobledger/tls/ca.crt
  {{- end }}
{{- end }}
{{- with .basicAuthUsers }}
basic_auth_users:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/*
The capabilities that what is switched on cannot do without: exporter/src/collector/registry.rs for collectors, docs/security.md
for the rest. tests/helm holds this table against both. Everything else needs none:

- energy: powercap's energy_uj is root's with mode 0400, and root's uid opens it without a capability;
- lustre: the same with debugfs, mode 0700.

A pod that starts as root becomes uid 65534 once these are open, which takes SETGID and SETUID; it gives both up with that.
*/}}
{{- define "jobledger.capabilityTable" -}}
collectors:
  # perf_event_open(2) of other users' cgroups and of whole CPUs; kept, since counters are opened when jobs start
  perf: [PERFMON]
  memory_traffic: [PERFMON]
  # makes a table, loads two programs (BPF) and attaches them to SLURM's cgroup (NET_ADMIN); kept
  network: [BPF, NET_ADMIN]
  # /proc/PID/io and /proc/PID/smaps_rollup of other users' processes
  procio: [DAC_READ_SEARCH, SYS_PTRACE]
  procsum: [DAC_READ_SEARCH, SYS_PTRACE]
options:
  # BPF_PROG_QUERY and BPF_PROG_GET_FD_BY_ID of device programs; only the helper keeps them
  deviceHelper: [NET_ADMIN, SYS_ADMIN]
  # opens the power PMU, then gives it up
  powerPmu: [PERFMON]
  # /proc/PID/environ
  environmentHints: [DAC_READ_SEARCH, SYS_PTRACE]
{{- end -}}

{{/* {add: [...]}: sorted, without repetition; nothing of the table below `full`, where the schema lets nothing through that needs one. */}}
{{- define "jobledger.capabilities" -}}
{{- $add := list -}}
{{- if ne .Values.profile "minimal" -}}
{{- $add = list "SETGID" "SETUID" -}}
{{- end -}}
{{- if eq .Values.profile "full" -}}
{{- $add = concat $add .Values.extraCapabilities -}}
{{- $table := include "jobledger.capabilityTable" . | fromYaml -}}
{{- range $name, $needed := $table.collectors }}{{ if get $.Values.collectors $name }}{{ $add = concat $add $needed }}{{ end }}{{ end -}}
{{- range $name, $needed := $table.options }}{{ if get $.Values.options $name }}{{ $add = concat $add $needed }}{{ end }}{{ end -}}
{{- end -}}
{{- dict "add" ($add | uniq | sortAlpha) | toYaml -}}
{{- end -}}

{{/* Seconds of a duration of Prometheus' that has one unit; nothing for others. */}}
{{- define "jobledger.seconds" -}}
{{- if regexMatch "^[0-9]+s$" . }}{{ trimSuffix "s" . }}{{ else if regexMatch "^[0-9]+m$" . }}{{ mul 60 (int (trimSuffix "m" .)) }}{{ else if regexMatch "^[0-9]+h$" . }}{{ mul 3600 (int (trimSuffix "h" .)) }}{{ end -}}
{{- end -}}

{{/* What a schema cannot say: relations between values. */}}
{{- define "jobledger.validate" -}}
{{- include "jobledger.renamed" . -}}
{{- $monitors := list -}}
{{- range $name := list "serviceMonitor" "podMonitor" "vmPodScrape" -}}
{{- if (get $.Values $name).enabled }}{{ $monitors = append $monitors $name }}{{ end -}}
{{- end -}}
{{- if gt (len $monitors) 1 -}}
{{- fail (printf "%s are all enabled: each pod would be scraped %d times" (join " and " $monitors) (len $monitors)) -}}
{{- end -}}
{{- $scrapes := dict -}}
{{- range $name := $monitors }}{{ $_ := set $scrapes $name (get $.Values $name).interval }}{{ end -}}
{{- if .Values.scrapeConfig.enabled }}{{ $_ := set $scrapes "scrapeConfig" .Values.scrapeConfig.scrapeInterval }}{{ end -}}
{{- range $name, $every := $scrapes -}}
{{- $interval := include "jobledger.seconds" $every -}}
{{- $timeout := include "jobledger.seconds" (get $.Values $name).scrapeTimeout -}}
{{- if and $interval $timeout (gt (int $timeout) (int $interval)) -}}
{{- fail (printf "%s: scrapeTimeout %s is longer than the interval %s" $name (get $.Values $name).scrapeTimeout $every) -}}
{{- end -}}
{{- end -}}
{{- range $name := $monitors -}}
{{- with get $.Values $name -}}
{{- if and .sampleLimit (or (eq (int $.Values.maxSeries) 0) (le (int .sampleLimit) (int $.Values.maxSeries))) -}}
{{- fail (printf "%s.sampleLimit %d is not above maxSeries %d: whole scrapes would be dropped before the exporter drops what matters least" $name (int .sampleLimit) (int $.Values.maxSeries)) -}}
{{- end -}}
{{- if and (include "jobledger.users" $) (not .basicAuth) -}}
{{- fail (printf "webConfig has users and %s.basicAuth is empty: scrapes would be refused" $name) -}}
{{- end -}}
{{- if and (include "jobledger.clientCertificates" $) (not (and .tlsConfig.cert .tlsConfig.keySecret)) -}}
{{- fail (printf "webConfig asks for client certificates and %s.tlsConfig has no cert and keySecret: scrapes would be refused" $name) -}}
{{- end -}}
{{- if and (include "jobledger.tls" $) (not .tlsConfig) -}}
{{- fail (printf "webConfig has TLS and %s.tlsConfig is empty: pods are asked by their addresses, which no certificate names, so it needs a serverName (with the ca, unless a public one signed) or insecureSkipVerify" $name) -}}
{{- end -}}
{{- if and .tlsConfig (not (include "jobledger.tls" $)) -}}
{{- fail (printf "%s.tlsConfig is set and webConfig has no TLS" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if or .Values.prometheusRule.enabled .Values.vmRule.enabled -}}
{{- range $file, $needs := include "jobledger.rulesMissing" . | fromYaml -}}
{{- if hasPrefix "alerts/" $file -}}
{{- fail (printf "rules.files: alerts of %s cannot fire without %s" $file (join " and " $needs)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $label, $patterns := .Values.rules.excludedJobs -}}
{{- range $pattern := $patterns -}}
{{- /* regexMatch says no to what is no regular expression; anything else matches nothing by its empty end. */ -}}
{{- if not (regexMatch (printf "%s|" $pattern) "") -}}
{{- fail (printf "rules.excludedJobs.%s: %q is no regular expression" $label $pattern) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.appArmorProfile.type (semverCompare "<1.30-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "appArmorProfile needs Kubernetes 1.30, this is %s: use podAnnotations container.apparmor.security.beta.kubernetes.io/exporter" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}
