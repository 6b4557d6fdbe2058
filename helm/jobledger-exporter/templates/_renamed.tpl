{{/* Values that had another name before 0.1.0, by their old path. `helm upgrade` with old values is refused by the new names. */}}
{{- define "jobledger.renamedTable" -}}
monitor.kind: serviceMonitor.enabled, podMonitor.enabled or vmPodScrape.enabled
monitor: serviceMonitor, podMonitor or vmPodScrape, with the same keys
rules.enabled: prometheusRule.enabled (or vmRule.enabled)
rules.namespace: prometheusRule.namespace (or vmRule.namespace)
rules.labels: prometheusRule.labels (or vmRule.labels)
rules.annotations: prometheusRule.annotations (or vmRule.annotations)
{{- end -}}

{{- define "jobledger.renamed" -}}
{{- $found := list -}}
{{- range $old, $new := include "jobledger.renamedTable" . | fromYaml -}}
{{- $path := splitList "." $old -}}
{{- $at := $.Values -}}
{{- range initial $path }}{{ $at = get $at . | default dict }}{{ end -}}
{{- if hasKey $at (last $path) }}{{ $found = append $found (printf "%s is now %s" $old $new) }}{{ end -}}
{{- end -}}
{{- /* The registry was a part of the name. */ -}}
{{- range $path, $image := dict "image" .Values.image "test.image" .Values.test.image -}}
{{- if regexMatch "^[^/]*[.:][^/]*/" $image.repository -}}
{{- $found = append $found (printf "%s.repository %s has a registry: that is now %s.registry" $path $image.repository $path) -}}
{{- end -}}
{{- end -}}
{{- with $found }}{{ fail (printf "these values have new names:\n  %s" (join "\n  " .)) }}{{ end -}}
{{- end -}}
