{{/*
What the container sees of the host: a JSON list of {name, path, at, type, propagation, writable, recursive}. All is read-only, but what is
written by order; `recursive` also what is mounted below, where Kubernetes can (not with propagation).
*/}}
{{- define "jobledger.hostPaths" -}}
{{- $v := .Values -}}
{{- /* Everything but the GPUs: the processes of jobs, PSI, RAPL, disks, NFS. Below it may be binfmt_misc, which names programs to run. */ -}}
{{- $paths := list (dict "name" "proc" "path" "/proc" "at" "/host/proc" "type" "Directory" "recursive" true) -}}
{{- /* cgroups (fs/cgroup below it), hardware, network devices, InfiniBand, powercap, debugfs for Lustre, AMD's and Intel's GPUs.
Not recursive with resctrl, which is written below it: how runtimes order the two was not tried. */ -}}
{{- $paths = append $paths (dict "name" "sys" "path" "/sys" "at" "/host/sys" "type" "Directory" "recursive" (not $v.options.resctrl)) -}}
{{- if $v.options.resctrl -}}
{{- $paths = append $paths (dict "name" "resctrl" "path" "/sys/fs/resctrl" "at" "/host/sys/fs/resctrl" "type" "Directory" "writable" true) -}}
{{- end -}}
{{- if eq $v.gpu.nvidia "none" -}}
{{- /* Numbers of device nodes (gpu). The container may open none: the runtime's device rules hold.
Below it are shm and mqueue, which everybody may write. */ -}}
{{- $paths = append $paths (dict "name" "dev" "path" "/dev" "at" "/host/dev" "type" "Directory" "recursive" true) -}}
{{- end -}}
{{- if eq $v.gpu.nvidia "hostPath" -}}
{{- $paths = append $paths (dict "name" "nvml" "path" $v.gpu.libraryHostPath "at" "/host/nvidia/libnvidia-ml.so.1" "type" "File") -}}
{{- end -}}
{{- /* What the prolog leaves; orders are taken at a socket beside it. */ -}}
{{- if $v.options.orders -}}
{{- $paths = append $paths (dict "name" "run" "path" "/run/jobledger" "at" "/run/jobledger" "type" "DirectoryOrCreate" "writable" true) -}}
{{- else -}}
{{- $paths = append $paths (dict "name" "run" "path" "/run/jobledger" "at" "/host/run/jobledger" "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- if $v.gpu.gpustat -}}
{{- $paths = append $paths (dict "name" "gpustat" "path" "/run/gpustat" "at" "/host/run/gpustat" "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- with $v.gpu.jobMappingHostPath -}}
{{- $paths = append $paths (dict "name" "job-mapping" "path" . "at" "/host/job-mapping" "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- with $v.host.lockDirectory -}}
{{- /* The directory: a bind mount of the file would stay the old one when it is replaced. */ -}}
{{- $paths = append $paths (dict "name" "lock" "path" . "at" "/host/lock" "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- if $v.host.passwd -}}
{{- /* The file alone, though it goes stale when it is replaced: its directory has shadow, too, which root's uid could read. */ -}}
{{- $paths = append $paths (dict "name" "passwd" "path" "/etc/passwd" "at" "/etc/passwd" "type" "File") -}}
{{- end -}}
{{- range $i, $path := $v.host.mounts -}}
{{- /* At its own path, which becomes a label; what is mounted there later is seen, too. */ -}}
{{- $paths = append $paths (dict "name" (printf "mounts-%d" $i) "path" $path "at" $path "type" "Directory" "propagation" "HostToContainer") -}}
{{- end -}}
{{- toJson $paths -}}
{{- end -}}
