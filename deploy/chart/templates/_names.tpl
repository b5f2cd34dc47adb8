{{- /* Names and labels. A revision that is empty, or "default", has no suffix, as in Istio's chart. */}}

{{- define "navarch.suffix" -}}
{{- if and .Values.revision (ne .Values.revision "default") }}-{{ .Values.revision }}{{ end }}
{{- end }}

{{- define "navarch.revision" -}}
{{ .Values.revision | default "default" }}
{{- end }}

{{- /* The Service at which proxies look for their control plane. */}}
{{- define "navarch.service" -}}
istiod{{ include "navarch.suffix" . }}
{{- end }}

{{- /* Takes a dict of root and entry, one of navarch.deployments. */}}
{{- define "navarch.deployment" -}}
{{ include "navarch.service" .root }}{{ with .entry.name }}-{{ . }}{{ end }}
{{- end }}

{{- define "navarch.etcd" -}}
navarch-etcd{{ include "navarch.suffix" . }}
{{- end }}

{{- /* The version, as a label may say it. */}}
{{- define "navarch.version" -}}
{{ .Values.tag | default .Chart.AppVersion | trunc 63 | trimAll "-_." | quote }}
{{- end }}

{{- /* Refuses a name that is longer than Kubernetes takes of its kind: a dict of value, name, of (what) and most. CronJobs: 52, since their Jobs have names of up to 63.
StatefulSets: 52, since their Pods have the label controller-revision-hash of at most 63. (kubernetes.io: CronJob limitations; kubernetes/kubernetes#64023) */}}
{{- define "navarch.checkName" -}}
{{- if gt (len .name) (int .most) }}{{ fail (printf "%s: the name %s%s has %d characters, at most %d are allowed" .value .name .of (len .name) (int .most)) }}{{ end }}
{{- end }}

{{- define "navarch.labels" -}}
app.kubernetes.io/name: navarch
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ include "navarch.version" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: istio
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
istio.io/rev: {{ include "navarch.revision" . | quote }}
{{- end }}

{{- /* Annotations that a value has, a line each, each a text. */}}
{{- define "navarch.annotations" -}}
{{- range $key, $value := . }}
{{ $key }}: {{ include "navarch.scalar" $value | quote }}
{{- end }}
{{- end }}

{{- /* The labels by which the Services, policies and budgets know the Pods of this revision. */}}
{{- define "navarch.selector" -}}
app.kubernetes.io/name: navarchd
istio.io/rev: {{ include "navarch.revision" . | quote }}
{{- end }}

{{- define "navarch.etcdSelector" -}}
app.kubernetes.io/name: navarch-etcd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Annotations of Secrets that are made once: Helm, Argo CD and Flux do not delete them when the chart does not have them any more, and Flux does not
replace them (fluxcd.io: kustomize.toolkit.fluxcd.io/ssa; argo-cd.readthedocs.io: Sync Options). */}}
{{- define "navarch.keptSecret" -}}
helm.sh/resource-policy: keep
argocd.argoproj.io/sync-options: Prune=false,Delete=false
kustomize.toolkit.fluxcd.io/prune: disabled
kustomize.toolkit.fluxcd.io/ssa: IfNotPresent
{{- end }}

{{- /* Who renders without a cluster (`helm template`, as Argo CD does) makes other contents each time: an API server refuses to put those into a Secret that is
immutable. One that was made before is left as it is, since no rollback could take that back. Takes what is there of the Secret. */}}
{{- define "navarch.immutable" }}
{{- if or (not .) .immutable }}
immutable: true
{{- end }}
{{- end }}

{{- define "navarch.image" -}}
{{ .Values.hub }}/{{ .Values.image }}:{{ .Values.tag | default .Chart.AppVersion }}
{{- end }}
